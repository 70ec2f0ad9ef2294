"""Storage behind gRPC.

Appends and reads of all connections share one long-lived stream: what waits when the writer wakes leaves in one frame
(up to FRAME_BYTES), answers come back in any order by call id. Everything else is a unary call.

When storage goes, what is in flight is answered at once: an append that was never sent LEADER_NOT_AVAILABLE, one
whose fate is unknown REQUEST_TIMED_OUT, a read NOT_LEADER_OR_FOLLOWER (all three make clients ask for metadata and
try again); group calls COORDINATOR_NOT_AVAILABLE. While it is away, appends are answered at once, reads when their
wait is over (or clients would spin), and unary calls wait for it up to CONTROL_WAIT_S. The stream comes back by
itself.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
from broker_contract import (
    cluster_pb2,
    cluster_pb2_grpc,
    data_pb2,
    data_pb2_grpc,
    groups_pb2,
    groups_pb2_grpc,
    producers_pb2,
    producers_pb2_grpc,
    topics_pb2,
    topics_pb2_grpc,
)
from protocol_lib.errors import ErrorCode
from service_chassis import rpc

from gateway_svc.errors import StorageUnavailable
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage import Storage
from gateway_svc.storage_stream import RECONNECT_MAX_S, RecordStream

#: How long a unary call waits for storage to come back or to answer.
CONTROL_WAIT_S: Final = 10.0
#: How long a group call may be parked beyond the member's own timeouts; a SyncGroup's are not known.
PARKED_EXTRA_S: Final = 60.0
SYNC_WAIT_S: Final = 360.0


async def _once(method: Any, request: Any, timeout_s: float, metrics: GatewayMetrics) -> Any:
    """One unary call that waits for storage to be there; what cannot be repeated is not."""
    try:
        return await method(request, timeout=timeout_s, wait_for_ready=True)
    except grpc.aio.AioRpcError as error:
        metrics.storage_errors[error.code().name] += 1
        raise StorageUnavailable(f"{error.code().name}: {error.details()}") from error


async def _repeatable(method: Any, request: Any, metrics: GatewayMetrics) -> Any:
    """A unary call that changes nothing: asked again when storage died over it."""
    loop = asyncio.get_running_loop()
    until = loop.time() + CONTROL_WAIT_S
    while True:
        try:
            return await _once(method, request, until - loop.time(), metrics)
        except StorageUnavailable:
            if loop.time() + RECONNECT_MAX_S >= until:
                raise
            await asyncio.sleep(RECONNECT_MAX_S)


class GrpcOffsets:
    def __init__(self, channel: grpc.aio.Channel, metrics: GatewayMetrics) -> None:
        self._stub = data_pb2_grpc.DataStub(channel)
        self._metrics = metrics

    async def list_offsets(self, request: data_pb2.ListOffsetsRequest) -> data_pb2.ListOffsetsResponse:
        try:
            answer: data_pb2.ListOffsetsResponse = await _repeatable(self._stub.ListOffsets, request, self._metrics)
        except StorageUnavailable:
            missing = data_pb2.ListOffsetsResponse.Found(
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, timestamp=-1, offset=-1, leader_epoch=-1
            )
            return data_pb2.ListOffsetsResponse(offsets=[missing for _ in request.targets])
        return answer

    async def end_epochs(self, request: data_pb2.EndEpochsRequest) -> data_pb2.EndEpochsResponse:
        try:
            answer: data_pb2.EndEpochsResponse = await _repeatable(self._stub.EndEpochs, request, self._metrics)
        except StorageUnavailable:
            missing = data_pb2.EndEpochsResponse.End(
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=-1, end_offset=-1
            )
            return data_pb2.EndEpochsResponse(ends=[missing for _ in request.targets])
        return answer

    async def delete_records(self, request: data_pb2.DeleteRecordsRequest) -> data_pb2.DeleteRecordsResponse:
        """Asked again when storage died over it: deleting below the same offset twice is deleting once."""
        try:
            answer: data_pb2.DeleteRecordsResponse = await _repeatable(self._stub.DeleteRecords, request, self._metrics)
        except StorageUnavailable:
            missing = data_pb2.DeleteRecordsResponse.Deleted(
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, log_start_offset=-1
            )
            return data_pb2.DeleteRecordsResponse(partitions=[missing for _ in request.targets])
        return answer


class GrpcTopics:
    def __init__(self, channel: grpc.aio.Channel, metrics: GatewayMetrics) -> None:
        self._stub = topics_pb2_grpc.TopicsStub(channel)
        self._metrics = metrics

    async def describe_topics(self, request: topics_pb2.DescribeTopicsRequest) -> topics_pb2.DescribeTopicsResponse:
        try:
            answer: topics_pb2.DescribeTopicsResponse = await _repeatable(
                self._stub.DescribeTopics, request, self._metrics
            )
        except StorageUnavailable:
            if request.all:
                raise
            return topics_pb2.DescribeTopicsResponse(
                topics=[
                    topics_pb2.Topic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=each.name, id=each.id)
                    for each in request.topics
                ]
            )
        return answer

    async def create_topics(self, request: topics_pb2.CreateTopicsRequest) -> topics_pb2.CreateTopicsResponse:
        try:
            answer: topics_pb2.CreateTopicsResponse = await _once(
                self._stub.CreateTopics, request, CONTROL_WAIT_S, self._metrics
            )
        except StorageUnavailable:
            return topics_pb2.CreateTopicsResponse(
                topics=[
                    topics_pb2.CreatedTopic(name=each.name, error_code=ErrorCode.REQUEST_TIMED_OUT)
                    for each in request.topics
                ]
            )
        return answer

    async def delete_topics(self, request: topics_pb2.DeleteTopicsRequest) -> topics_pb2.DeleteTopicsResponse:
        try:
            answer: topics_pb2.DeleteTopicsResponse = await _once(
                self._stub.DeleteTopics, request, CONTROL_WAIT_S, self._metrics
            )
        except StorageUnavailable:
            return topics_pb2.DeleteTopicsResponse(
                topics=[
                    topics_pb2.DeletedTopic(name=each.name, id=each.id, error_code=ErrorCode.REQUEST_TIMED_OUT)
                    for each in request.topics
                ]
            )
        return answer

    async def describe_configs(self, request: topics_pb2.DescribeConfigsRequest) -> topics_pb2.DescribeConfigsResponse:
        try:
            answer: topics_pb2.DescribeConfigsResponse = await _repeatable(
                self._stub.DescribeConfigs, request, self._metrics
            )
        except StorageUnavailable:
            return topics_pb2.DescribeConfigsResponse(
                resources=[
                    topics_pb2.ResourceConfigs(type=each.type, name=each.name, error_code=ErrorCode.REQUEST_TIMED_OUT)
                    for each in request.resources
                ]
            )
        return answer

    async def alter_configs(self, request: topics_pb2.AlterConfigsRequest) -> topics_pb2.AlterConfigsResponse:
        try:
            answer: topics_pb2.AlterConfigsResponse = await _once(
                self._stub.AlterConfigs, request, CONTROL_WAIT_S, self._metrics
            )
        except StorageUnavailable:
            return topics_pb2.AlterConfigsResponse(
                resources=[
                    topics_pb2.AlteredResource(error_code=ErrorCode.REQUEST_TIMED_OUT) for _ in request.resources
                ]
            )
        return answer


class GrpcGroups:
    def __init__(self, channel: grpc.aio.Channel, metrics: GatewayMetrics, connected: asyncio.Event) -> None:
        self._stub = groups_pb2_grpc.GroupsStub(channel)
        self._metrics = metrics
        self._connected = connected

    async def _parked(self, method: Any, request: Any, timeout_s: float) -> Any:
        """A call that may be parked for minutes: storage must be there before, or the wait for it would be as long."""
        try:
            async with asyncio.timeout(CONTROL_WAIT_S):
                await self._connected.wait()
        except TimeoutError as error:
            raise StorageUnavailable("not connected") from error
        return await _once(method, request, timeout_s, self._metrics)

    async def join_group(self, request: groups_pb2.JoinGroupRequest) -> groups_pb2.JoinGroupResponse:
        timeout_s = max(request.rebalance_timeout_ms, request.session_timeout_ms, 0) / 1000 + PARKED_EXTRA_S
        try:
            answer: groups_pb2.JoinGroupResponse = await self._parked(self._stub.JoinGroup, request, timeout_s)
        except StorageUnavailable:
            return groups_pb2.JoinGroupResponse(
                error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, generation_id=-1, member_id=request.member_id
            )
        return answer

    async def sync_group(self, request: groups_pb2.SyncGroupRequest) -> groups_pb2.SyncGroupResponse:
        try:
            answer: groups_pb2.SyncGroupResponse = await self._parked(self._stub.SyncGroup, request, SYNC_WAIT_S)
        except StorageUnavailable:
            return groups_pb2.SyncGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return answer

    async def heartbeat(self, request: groups_pb2.HeartbeatRequest) -> groups_pb2.HeartbeatResponse:
        try:
            answer: groups_pb2.HeartbeatResponse = await _repeatable(self._stub.Heartbeat, request, self._metrics)
        except StorageUnavailable:
            return groups_pb2.HeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return answer

    async def leave_group(self, request: groups_pb2.LeaveGroupRequest) -> groups_pb2.LeaveGroupResponse:
        try:
            answer: groups_pb2.LeaveGroupResponse = await _once(
                self._stub.LeaveGroup, request, CONTROL_WAIT_S, self._metrics
            )
        except StorageUnavailable:
            return groups_pb2.LeaveGroupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return answer

    async def consumer_group_heartbeat(
        self, request: groups_pb2.ConsumerGroupHeartbeatRequest
    ) -> groups_pb2.ConsumerGroupHeartbeatResponse:
        try:
            answer: groups_pb2.ConsumerGroupHeartbeatResponse = await _once(
                self._stub.ConsumerGroupHeartbeat, request, CONTROL_WAIT_S, self._metrics
            )
        except StorageUnavailable:
            return groups_pb2.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return answer

    async def describe_consumer_groups(
        self, request: groups_pb2.DescribeConsumerGroupsRequest
    ) -> groups_pb2.DescribeConsumerGroupsResponse:
        try:
            answer: groups_pb2.DescribeConsumerGroupsResponse = await _repeatable(
                self._stub.DescribeConsumerGroups, request, self._metrics
            )
        except StorageUnavailable:
            return groups_pb2.DescribeConsumerGroupsResponse(
                groups=[
                    groups_pb2.DescribeConsumerGroupsResponse.Group(
                        group_id=each, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
                    )
                    for each in request.group_ids
                ]
            )
        return answer

    async def commit_offsets(self, request: groups_pb2.CommitOffsetsRequest) -> groups_pb2.CommitOffsetsResponse:
        try:
            # Repeatable: it stores the same positions again.
            answer: groups_pb2.CommitOffsetsResponse = await _repeatable(
                self._stub.CommitOffsets, request, self._metrics
            )
        except StorageUnavailable:
            return groups_pb2.CommitOffsetsResponse(
                error_codes=[ErrorCode.COORDINATOR_NOT_AVAILABLE for _ in request.offsets]
            )
        return answer

    async def fetch_offsets(self, request: groups_pb2.FetchOffsetsRequest) -> groups_pb2.FetchOffsetsResponse:
        try:
            answer: groups_pb2.FetchOffsetsResponse = await _repeatable(self._stub.FetchOffsets, request, self._metrics)
        except StorageUnavailable:
            return groups_pb2.FetchOffsetsResponse(
                groups=[
                    groups_pb2.FetchOffsetsResponse.Group(
                        group_id=each.group_id, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
                    )
                    for each in request.groups
                ]
            )
        return answer

    async def list_groups(self, request: groups_pb2.ListGroupsRequest) -> groups_pb2.ListGroupsResponse:
        try:
            answer: groups_pb2.ListGroupsResponse = await _repeatable(self._stub.ListGroups, request, self._metrics)
        except StorageUnavailable:
            return groups_pb2.ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return answer

    async def describe_groups(self, request: groups_pb2.DescribeGroupsRequest) -> groups_pb2.DescribeGroupsResponse:
        try:
            answer: groups_pb2.DescribeGroupsResponse = await _repeatable(
                self._stub.DescribeGroups, request, self._metrics
            )
        except StorageUnavailable:
            return groups_pb2.DescribeGroupsResponse(
                groups=[
                    groups_pb2.DescribeGroupsResponse.Group(
                        group_id=each, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
                    )
                    for each in request.group_ids
                ]
            )
        return answer

    async def delete_groups(self, request: groups_pb2.DeleteGroupsRequest) -> groups_pb2.DeleteGroupsResponse:
        try:
            answer: groups_pb2.DeleteGroupsResponse = await _once(
                self._stub.DeleteGroups, request, CONTROL_WAIT_S, self._metrics
            )
        except StorageUnavailable:
            return groups_pb2.DeleteGroupsResponse(
                error_codes=[ErrorCode.COORDINATOR_NOT_AVAILABLE for _ in request.group_ids]
            )
        return answer

    async def delete_offsets(self, request: groups_pb2.DeleteOffsetsRequest) -> groups_pb2.DeleteOffsetsResponse:
        try:
            # Repeatable: what is gone already is gone.
            answer: groups_pb2.DeleteOffsetsResponse = await _repeatable(
                self._stub.DeleteOffsets, request, self._metrics
            )
        except StorageUnavailable:
            return groups_pb2.DeleteOffsetsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return answer


class GrpcProducers:
    def __init__(self, channel: grpc.aio.Channel, metrics: GatewayMetrics) -> None:
        self._stub = producers_pb2_grpc.ProducersStub(channel)
        self._metrics = metrics

    async def init_producer_id(
        self, request: producers_pb2.InitProducerIdRequest
    ) -> producers_pb2.InitProducerIdResponse:
        try:
            # Repeatable: an id that nobody was told of is never used.
            answer: producers_pb2.InitProducerIdResponse = await _repeatable(
                self._stub.InitProducerId, request, self._metrics
            )
        except StorageUnavailable:
            return producers_pb2.InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return answer


class GrpcCluster:
    """Leases and the list of gateways: the caller repeats these anyway, so they fail fast."""

    def __init__(self, channel: grpc.aio.Channel, metrics: GatewayMetrics) -> None:
        self._stub = cluster_pb2_grpc.ClusterStub(channel)
        self._metrics = metrics

    async def register_gateway(
        self, request: cluster_pb2.RegisterGatewayRequest
    ) -> cluster_pb2.RegisterGatewayResponse:
        answer: cluster_pb2.RegisterGatewayResponse = await _once(
            self._stub.RegisterGateway, request, CONTROL_WAIT_S, self._metrics
        )
        return answer

    async def remove_gateway(self, request: cluster_pb2.RemoveGatewayRequest) -> cluster_pb2.RemoveGatewayResponse:
        answer: cluster_pb2.RemoveGatewayResponse = await _once(self._stub.RemoveGateway, request, 1.0, self._metrics)
        return answer

    async def describe_cluster(
        self, request: cluster_pb2.DescribeClusterRequest
    ) -> cluster_pb2.DescribeClusterResponse:
        answer: cluster_pb2.DescribeClusterResponse = await _once(
            self._stub.DescribeCluster, request, 1.0, self._metrics
        )
        return answer


class GrpcStorage:
    """The connection to storage-svc: `storage` is what handlers are given; `close` it at the end."""

    def __init__(self, channel: grpc.aio.Channel, gateway_name: str, metrics: GatewayMetrics) -> None:
        self._channel = channel
        self._records = RecordStream(channel, gateway_name, metrics)
        self.storage = Storage(
            records=self._records,
            offsets=GrpcOffsets(channel, metrics),
            topics=GrpcTopics(channel, metrics),
            groups=GrpcGroups(channel, metrics, self._records.connected),
            producers=GrpcProducers(channel, metrics),
            cluster=GrpcCluster(channel, metrics),
        )

    @classmethod
    def connect(cls, address: str, gateway_name: str, metrics: GatewayMetrics) -> GrpcStorage:
        """Connects in the background, for as long as it takes."""
        return cls(rpc.channel(address), gateway_name, metrics)

    def fault(self) -> str | None:
        """Why storage cannot be reached, for /readyz; None when it can."""
        return None if self._records.connected.is_set() else "storage is not connected"

    async def close(self) -> None:
        await self._records.close()
        await self._channel.close()
