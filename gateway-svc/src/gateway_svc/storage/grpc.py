"""Storage behind gRPC.

Appends and reads of all connections share one long-lived stream (`storage_stream`), heartbeats and commits another
(`group_stream`): what waits when the writer wakes leaves in one message, answers come back in any order by call id.
Everything else is a unary call.

When storage goes, what is in flight is answered at once: an append that was never sent LEADER_NOT_AVAILABLE, one
whose fate is unknown REQUEST_TIMED_OUT, a read NOT_LEADER_OR_FOLLOWER (all three make clients ask for metadata and
try again); group calls COORDINATOR_NOT_AVAILABLE. While it is away, appends are answered at once, reads when their
wait is over (or clients would spin), and unary calls, heartbeats and commits wait for it up to CONTROL_WAIT_S. The
streams come back by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import grpc
from broker_contract import (
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
from gateway_svc.storage.group_stream import CONTROL_WAIT_S, GroupStream
from gateway_svc.storage.lasting_stream import RECONNECT_MAX_S
from gateway_svc.storage.protocols import Storage
from gateway_svc.storage.record_stream import RecordStream

#: How long a group call may be parked beyond the member's own timeouts; a SyncGroup's are not known.
PARKED_EXTRA_S: Final = 60.0
SYNC_WAIT_S: Final = 360.0
#: A gateway that stops, and one that lists the gateways, do not wait long.
_SHORT_WAIT_S: Final = 1.0

_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_TIMED_OUT: Final = ErrorCode.REQUEST_TIMED_OUT
_NO_COORDINATOR: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
#: A method of `storage`'s Protocols.
Method = Callable[[RequestT], Coroutine[Any, Any, AnswerT]]
#: A group's state, as ListGroups says it of both protocols.
_STABLE: Final = "Stable"

_OfGroup = groups_pb2.JoinGroupRequest | groups_pb2.SyncGroupRequest | groups_pb2.LeaveGroupRequest
_OfGroups = groups_pb2.DescribeGroupsRequest | groups_pb2.DescribeConsumerGroupsRequest | groups_pb2.DeleteGroupsRequest
StubMethod = grpc.aio.UnaryUnaryMultiCallable


class _Unary:
    """Makes the Protocols' methods of one channel's unary calls."""

    def __init__(self, metrics: GatewayMetrics, connected: asyncio.Event) -> None:
        self._metrics = metrics
        self._connected = connected

    def once(
        self,
        method: StubMethod[RequestT, AnswerT],
        otherwise: Callable[[RequestT], AnswerT] | None = None,
        timeout_s: float = CONTROL_WAIT_S,
    ) -> Method[RequestT, AnswerT]:
        """A call that is not asked again: storage may have done what it says.

        Args:
            method: of a stub.
            otherwise: gives the answer when storage has none in time, or raises; without it, so does the call.
        """

        async def call(request: RequestT) -> AnswerT:
            try:
                return await self._ask(method, request, timeout_s)
            except StorageUnavailable:
                if otherwise is None:
                    raise
                return otherwise(request)

        return call

    def repeatable(
        self, method: StubMethod[RequestT, AnswerT], otherwise: Callable[[RequestT], AnswerT]
    ) -> Method[RequestT, AnswerT]:
        """As `once`, a call that changes nothing the second time: asked again when storage died over it."""

        async def call(request: RequestT) -> AnswerT:
            loop = asyncio.get_running_loop()
            until = loop.time() + CONTROL_WAIT_S
            while True:
                try:
                    return await self._ask(method, request, until - loop.time())
                except StorageUnavailable:
                    if loop.time() + RECONNECT_MAX_S >= until:
                        return otherwise(request)
                    await asyncio.sleep(RECONNECT_MAX_S)

        return call

    def parked(
        self,
        method: StubMethod[RequestT, AnswerT],
        otherwise: Callable[[RequestT], AnswerT],
        wait_s: Callable[[RequestT], float],
    ) -> Method[RequestT, AnswerT]:
        """As `once`, a call that may be parked for minutes: storage must be there before, or the wait for it would be
        as long."""

        async def call(request: RequestT) -> AnswerT:
            try:
                async with asyncio.timeout(CONTROL_WAIT_S):
                    await self._connected.wait()
                return await self._ask(method, request, wait_s(request))
            except (TimeoutError, StorageUnavailable):
                return otherwise(request)

        return call

    async def _ask(self, method: StubMethod[RequestT, AnswerT], request: RequestT, timeout_s: float) -> AnswerT:
        """One call that waits for storage to be there."""
        try:
            return await method(request, timeout=timeout_s, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            self._metrics.storage_errors[error.code().name] += 1
            raise StorageUnavailable(f"{error.code().name}: {error.details()}") from error


# -- answers without storage -------------------------------------------------------------------------------------------


def _offsets_missing(request: data_pb2.ListOffsetsRequest) -> data_pb2.ListOffsetsResponse:
    missing = data_pb2.ListOffsetsResponse.Found(error_code=_NOT_LEADER, timestamp=-1, offset=-1, leader_epoch=-1)
    return data_pb2.ListOffsetsResponse(offsets=[missing for _ in request.targets])


def _epochs_missing(request: data_pb2.EndEpochsRequest) -> data_pb2.EndEpochsResponse:
    missing = data_pb2.EndEpochsResponse.End(error_code=_NOT_LEADER, leader_epoch=-1, end_offset=-1)
    return data_pb2.EndEpochsResponse(ends=[missing for _ in request.targets])


def _records_not_deleted(request: data_pb2.DeleteRecordsRequest) -> data_pb2.DeleteRecordsResponse:
    missing = data_pb2.DeleteRecordsResponse.Deleted(error_code=_NOT_LEADER, log_start_offset=-1)
    return data_pb2.DeleteRecordsResponse(partitions=[missing for _ in request.targets])


def _topics_unknown(request: topics_pb2.DescribeTopicsRequest) -> topics_pb2.DescribeTopicsResponse:
    if request.all:
        raise StorageUnavailable("which topics there are")
    error = ErrorCode.LEADER_NOT_AVAILABLE
    topics = [topics_pb2.Topic(error_code=error, name=each.name, id=each.id) for each in request.topics]
    return topics_pb2.DescribeTopicsResponse(topics=topics)


def _topics_not_created(request: topics_pb2.CreateTopicsRequest) -> topics_pb2.CreateTopicsResponse:
    topics = [topics_pb2.CreatedTopic(name=each.name, error_code=_TIMED_OUT) for each in request.topics]
    return topics_pb2.CreateTopicsResponse(topics=topics)


def _topics_not_deleted(request: topics_pb2.DeleteTopicsRequest) -> topics_pb2.DeleteTopicsResponse:
    topics = [topics_pb2.DeletedTopic(name=each.name, id=each.id, error_code=_TIMED_OUT) for each in request.topics]
    return topics_pb2.DeleteTopicsResponse(topics=topics)


def _configs_unknown(request: topics_pb2.DescribeConfigsRequest) -> topics_pb2.DescribeConfigsResponse:
    resources = [
        topics_pb2.ResourceConfigs(type=each.type, name=each.name, error_code=_TIMED_OUT) for each in request.resources
    ]
    return topics_pb2.DescribeConfigsResponse(resources=resources)


def _configs_not_altered(request: topics_pb2.AlterConfigsRequest) -> topics_pb2.AlterConfigsResponse:
    resources = [topics_pb2.AlteredResource(error_code=_TIMED_OUT) for _ in request.resources]
    return topics_pb2.AlterConfigsResponse(resources=resources)


def _resources_unknown(_: topics_pb2.ListConfigResourcesRequest) -> topics_pb2.ListConfigResourcesResponse:
    return topics_pb2.ListConfigResourcesResponse(error_code=_TIMED_OUT)


def _not_joined(request: groups_pb2.JoinGroupRequest) -> groups_pb2.JoinGroupResponse:
    return groups_pb2.JoinGroupResponse(error_code=_NO_COORDINATOR, generation_id=-1, member_id=request.member_id)


def _not_synced(_: groups_pb2.SyncGroupRequest) -> groups_pb2.SyncGroupResponse:
    return groups_pb2.SyncGroupResponse(error_code=_NO_COORDINATOR)


def _not_left(_: groups_pb2.LeaveGroupRequest) -> groups_pb2.LeaveGroupResponse:
    return groups_pb2.LeaveGroupResponse(error_code=_NO_COORDINATOR)


def _consumer_groups_unknown(
    request: groups_pb2.DescribeConsumerGroupsRequest,
) -> groups_pb2.DescribeConsumerGroupsResponse:
    group = groups_pb2.DescribeConsumerGroupsResponse.Group
    groups = [group(group_id=each, error_code=_NO_COORDINATOR) for each in request.group_ids]
    return groups_pb2.DescribeConsumerGroupsResponse(groups=groups)


def _commits_unknown(request: groups_pb2.FetchOffsetsRequest) -> groups_pb2.FetchOffsetsResponse:
    group = groups_pb2.FetchOffsetsResponse.Group
    groups = [group(group_id=each.group_id, error_code=_NO_COORDINATOR) for each in request.groups]
    return groups_pb2.FetchOffsetsResponse(groups=groups)


def _groups_not_listed(_: groups_pb2.ListGroupsRequest) -> groups_pb2.ListGroupsResponse:
    return groups_pb2.ListGroupsResponse(error_code=_NO_COORDINATOR)


def _groups_unknown(request: groups_pb2.DescribeGroupsRequest) -> groups_pb2.DescribeGroupsResponse:
    group = groups_pb2.DescribeGroupsResponse.Group
    groups = [group(group_id=each, error_code=_NO_COORDINATOR) for each in request.group_ids]
    return groups_pb2.DescribeGroupsResponse(groups=groups)


def _groups_not_deleted(request: groups_pb2.DeleteGroupsRequest) -> groups_pb2.DeleteGroupsResponse:
    return groups_pb2.DeleteGroupsResponse(error_codes=[_NO_COORDINATOR for _ in request.group_ids])


def _offsets_not_deleted(_: groups_pb2.DeleteOffsetsRequest) -> groups_pb2.DeleteOffsetsResponse:
    return groups_pb2.DeleteOffsetsResponse(error_code=_NO_COORDINATOR)


def _no_producer_id(_: producers_pb2.InitProducerIdRequest) -> producers_pb2.InitProducerIdResponse:
    return producers_pb2.InitProducerIdResponse(error_code=_NO_COORDINATOR)


def _join_wait_s(request: groups_pb2.JoinGroupRequest) -> float:
    return max(request.rebalance_timeout_ms, request.session_timeout_ms, 0) / 1000 + PARKED_EXTRA_S


# -- the Protocols of `storage` ----------------------------------------------------------------------------------------


class GrpcOffsets:
    def __init__(self, channel: grpc.aio.Channel, unary: _Unary) -> None:
        stub = data_pb2_grpc.DataStub(channel)
        self.list_offsets = unary.repeatable(stub.ListOffsets, _offsets_missing)
        self.end_epochs = unary.repeatable(stub.EndEpochs, _epochs_missing)
        # Deleting below the same offset twice is deleting once.
        self.delete_records = unary.repeatable(stub.DeleteRecords, _records_not_deleted)


def _before(method: Method[RequestT, AnswerT], told: Callable[[RequestT], None]) -> Method[RequestT, AnswerT]:
    """The method; `told` gets the request just before its answer is given."""

    async def call(request: RequestT) -> AnswerT:
        try:
            return await method(request)
        finally:
            told(request)

    return call


def _telling(method: Method[RequestT, AnswerT], told: Callable[[AnswerT], None]) -> Method[RequestT, AnswerT]:
    """The method; `told` gets the answer just before it is given."""

    async def call(request: RequestT) -> AnswerT:
        answer = await method(request)
        told(answer)
        return answer

    return call


class GrpcTopics:
    def __init__(self, channel: grpc.aio.Channel, unary: _Unary, stream: GroupStream) -> None:
        def doubt(_: object) -> None:
            stream.doubt()

        def doubt_if_created(answer: topics_pb2.DescribeTopicsResponse) -> None:
            if answer.created:
                stream.doubt()

        stub = topics_pb2_grpc.TopicsStub(channel)
        self.describe_topics = _telling(unary.repeatable(stub.DescribeTopics, _topics_unknown), doubt_if_created)
        self.create_topics = _before(unary.once(stub.CreateTopics, _topics_not_created), doubt)
        self.delete_topics = _before(unary.once(stub.DeleteTopics, _topics_not_deleted), doubt)
        self.describe_configs = unary.repeatable(stub.DescribeConfigs, _configs_unknown)
        self.alter_configs = _before(unary.once(stub.AlterConfigs, _configs_not_altered), doubt)
        self.list_config_resources = unary.repeatable(stub.ListConfigResources, _resources_unknown)


class GrpcGroups:
    """Where the answer tells something of groups, promises of heartbeats are doubted before it is given."""

    def __init__(self, channel: grpc.aio.Channel, unary: _Unary, stream: GroupStream) -> None:
        def doubt(request: _OfGroup) -> None:
            stream.doubt((request.group_id,))

        def doubt_many(request: _OfGroups) -> None:
            stream.doubt(request.group_ids)

        def doubt_others(answer: groups_pb2.ListGroupsResponse) -> None:
            """All but those that are said to be as they were when their heartbeats were promised."""
            stream.doubt(but={each.group_id for each in answer.groups if each.state == _STABLE})

        stub = groups_pb2_grpc.GroupsStub(channel)
        self.heartbeat = stream.heartbeat
        self.commit_offsets = stream.commit_offsets
        self.consumer_group_heartbeat = stream.consumer_group_heartbeat
        self.join_group = _before(unary.parked(stub.JoinGroup, _not_joined, _join_wait_s), doubt)
        self.sync_group = _before(unary.parked(stub.SyncGroup, _not_synced, lambda _: SYNC_WAIT_S), doubt)
        self.leave_group = _before(unary.once(stub.LeaveGroup, _not_left), doubt)
        self.describe_consumer_groups = _before(
            unary.repeatable(stub.DescribeConsumerGroups, _consumer_groups_unknown), doubt_many
        )
        self.fetch_offsets = unary.repeatable(stub.FetchOffsets, _commits_unknown)
        self.list_groups = _telling(unary.repeatable(stub.ListGroups, _groups_not_listed), doubt_others)
        self.describe_groups = _before(unary.repeatable(stub.DescribeGroups, _groups_unknown), doubt_many)
        self.delete_groups = _before(unary.once(stub.DeleteGroups, _groups_not_deleted), doubt_many)
        # What is gone already is gone.
        self.delete_offsets = unary.repeatable(stub.DeleteOffsets, _offsets_not_deleted)


class GrpcProducers:
    def __init__(self, channel: grpc.aio.Channel, unary: _Unary) -> None:
        # Repeatable: an id that nobody was told of is never used.
        stub = producers_pb2_grpc.ProducersStub(channel)
        self.init_producer_id = unary.repeatable(stub.InitProducerId, _no_producer_id)


class GrpcCluster:
    """Leases and the list of gateways: the caller repeats these anyway, so they fail fast."""

    def __init__(self, channel: grpc.aio.Channel, unary: _Unary) -> None:
        stub = cluster_pb2_grpc.ClusterStub(channel)
        self.register_gateway = unary.once(stub.RegisterGateway)
        self.remove_gateway = unary.once(stub.RemoveGateway, timeout_s=_SHORT_WAIT_S)
        self.describe_cluster = unary.once(stub.DescribeCluster, timeout_s=_SHORT_WAIT_S)


class GrpcStorage:
    """The connection to storage-svc: `storage` is what handlers are given; `close` it at the end."""

    def __init__(self, channel: grpc.aio.Channel, gateway_name: str, metrics: GatewayMetrics) -> None:
        self._channel = channel
        self._records = RecordStream(channel, gateway_name, metrics)
        self._groups = GroupStream(channel, metrics)
        unary = _Unary(metrics, self._records.connected)
        self.storage = Storage(
            records=self._records,
            window=self._records.window,
            offsets=GrpcOffsets(channel, unary),
            topics=GrpcTopics(channel, unary, self._groups),
            groups=GrpcGroups(channel, unary, self._groups),
            producers=GrpcProducers(channel, unary),
            cluster=GrpcCluster(channel, unary),
        )

    @classmethod
    def connect(cls, address: str, gateway_name: str, metrics: GatewayMetrics) -> GrpcStorage:
        """Connects in the background, for as long as it takes."""
        return cls(rpc.channel(address), gateway_name, metrics)

    def fault(self) -> str | None:
        """Why storage cannot be reached, for /readyz; None when it can."""
        up = self._records.connected.is_set() and self._groups.connected.is_set()
        return None if up else "storage is not connected"

    async def close(self) -> None:
        await self._groups.close()
        await self._records.close()
        await self._channel.close()
