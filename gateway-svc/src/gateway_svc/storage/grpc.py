"""Storage over gRPC: the Protocols of `protocols` for a separate storage process.

Appends and reads of all connections share one long-lived stream (`record_stream`), heartbeats and commits another
(`group_stream`). Calls that wait for the writer leave in one message. Answers return in any order, by call id. All
other calls are unary (`unary`).

When storage is lost, calls on their way are answered at once:

    an append that was never sent        LEADER_NOT_AVAILABLE
    an append that may be stored         REQUEST_TIMED_OUT
    a read                               NOT_LEADER_OR_FOLLOWER
    a call of a group                    COORDINATOR_NOT_AVAILABLE

The first three make clients ask for metadata and try again. Without storage, appends are answered at once, and reads
when their wait is over (or clients would spin). Unary calls, heartbeats and commits wait for storage up to
CONTROL_WAIT_S. The streams are opened again when storage is back.
"""

from __future__ import annotations

from typing import Final

from broker_contract import (
    access_pb2,
    data_pb2,
    groups_pb2,
    logs_pb2,
    producers_pb2,
    stubs,
    topics_pb2,
    users_pb2,
)
from broker_contract.version import CONTRACT_VERSION
from protocol_lib.errors import ErrorCode
from service_chassis import rpc
from service_chassis.grpc_channel import Channel
from service_chassis.internal_tls import InternalTls

from gateway_svc.errors import StorageUnavailable
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.group_stream import GroupStream
from gateway_svc.storage.lanes import Lanes
from gateway_svc.storage.protocols import StoragePorts
from gateway_svc.storage.record_stream import RecordStream
from gateway_svc.storage.transaction_calls import GrpcTransactions
from gateway_svc.storage.unary import Unary, failed, no_coordinator, not_leader, timed_out

#: Seconds for the calls that end a lease or list the gateways.
_SHORT_WAIT_S: Final = 1.0
#: Seconds for a question of a follower, and for storage to be there, beyond the time for which storage may hold it.
_FOLLOW_S: Final = 2.0
#: Seconds for a credential: less than a client waits for its login.
_LOGIN_WAIT_S: Final = 5.0


def _names_offsets(request: data_pb2.DeleteRecordsRequest) -> bool:
    """Return whether all offsets are named: a high watermark (-1) may be another one when the call is repeated."""
    return all(target.offset >= 0 for target in request.targets)


class GrpcOffsets:
    def __init__(self, channel: stubs.Channel, unary: Unary) -> None:
        stub = stubs.DataStub(channel)
        self.list_offsets = unary.repeatable(
            stub.ListOffsets,
            not_leader(data_pb2.ListOffsetsResponse, timestamp=-1, offset=-1, leader_epoch=-1),
        )
        self.end_epochs = unary.repeatable(
            stub.EndEpochs, not_leader(data_pb2.EndEpochsResponse, leader_epoch=-1, end_offset=-1)
        )
        self.delete_records = unary.repeatable(
            stub.DeleteRecords, not_leader(data_pb2.DeleteRecordsResponse, log_start_offset=-1), _names_offsets
        )


_no_topics = failed(topics_pb2.DescribeTopicsResponse, ErrorCode.LEADER_NOT_AVAILABLE)
_not_committed = no_coordinator(groups_pb2.CommitOffsetsResponse)


def _topics_unknown(request: topics_pb2.DescribeTopicsRequest) -> topics_pb2.DescribeTopicsResponse:
    if request.all:
        raise StorageUnavailable("which topics there are")
    return _no_topics(request)


class GrpcTopics:
    def __init__(self, channel: stubs.Channel, unary: Unary) -> None:
        stub = stubs.TopicsStub(channel)
        self.describe_topics = unary.repeatable(stub.DescribeTopics, _topics_unknown)
        self.create_topics = unary.once(stub.CreateTopics, timed_out(topics_pb2.CreateTopicsResponse))
        self.create_partitions = unary.once(stub.CreatePartitions, timed_out(topics_pb2.CreatePartitionsResponse))
        self.delete_topics = unary.once(stub.DeleteTopics, timed_out(topics_pb2.DeleteTopicsResponse))
        self.describe_configs = unary.repeatable(stub.DescribeConfigs, timed_out(topics_pb2.DescribeConfigsResponse))
        self.alter_configs = unary.once(stub.AlterConfigs, timed_out(topics_pb2.AlterConfigsResponse))
        self.list_config_resources = unary.repeatable(
            stub.ListConfigResources, timed_out(topics_pb2.ListConfigResourcesResponse)
        )


class GrpcGroups:
    def __init__(self, channel: stubs.Channel, unary: Unary, stream: GroupStream) -> None:
        stub = stubs.GroupsStub(channel)
        self.heartbeat = stream.heartbeat
        self.commit_offsets = stream.commit_offsets
        self.consumer_group_heartbeat = stream.consumer_group_heartbeat
        self.join_group = unary.parked(stub.JoinGroup, no_coordinator(groups_pb2.JoinGroupResponse, generation_id=-1))
        self.sync_group = unary.parked(stub.SyncGroup, no_coordinator(groups_pb2.SyncGroupResponse))
        self.leave_group = unary.once(stub.LeaveGroup, no_coordinator(groups_pb2.LeaveGroupResponse))
        # Without an answer, the member's next heartbeat asks for it again.
        self.resolve_patterns = unary.repeatable(stub.ResolvePatterns, lambda _: groups_pb2.ResolvePatternsResponse())
        self.describe_consumer_groups = unary.repeatable(
            stub.DescribeConsumerGroups, no_coordinator(groups_pb2.DescribeConsumerGroupsResponse)
        )
        # Another transaction of the producer may have begun since the first call.
        self.commit_transaction_offsets = unary.once(
            stub.CommitTransactionOffsets, lambda request: _not_committed(request.commit)
        )
        self.fetch_offsets = unary.repeatable(stub.FetchOffsets, no_coordinator(groups_pb2.FetchOffsetsResponse))
        self.list_groups = unary.repeatable(stub.ListGroups, no_coordinator(groups_pb2.ListGroupsResponse))
        self.describe_groups = unary.repeatable(stub.DescribeGroups, no_coordinator(groups_pb2.DescribeGroupsResponse))
        self.delete_groups = unary.once(stub.DeleteGroups, no_coordinator(groups_pb2.DeleteGroupsResponse))
        # A member may have committed since the first call.
        self.delete_offsets = unary.once(stub.DeleteOffsets, no_coordinator(groups_pb2.DeleteOffsetsResponse))


class GrpcProducers:
    def __init__(self, channel: stubs.Channel, unary: Unary) -> None:
        # Repeatable: an id that no client has received stays unused.
        stub = stubs.ProducersStub(channel)
        self.init_producer_id = unary.repeatable(
            stub.InitProducerId, no_coordinator(producers_pb2.InitProducerIdResponse)
        )


class GrpcLogs:
    def __init__(self, channel: stubs.Channel, unary: Unary) -> None:
        stub = stubs.LogsStub(channel)
        self.describe_producers = unary.repeatable(
            stub.DescribeProducers, not_leader(logs_pb2.DescribeProducersResponse)
        )
        self.describe_log_dirs = unary.repeatable(stub.DescribeLogDirs, timed_out(logs_pb2.DescribeLogDirsResponse))


class GrpcCluster:
    """Leases and the list of gateways. The caller repeats these calls itself, so they fail fast."""

    def __init__(self, channel: stubs.Channel, unary: Unary) -> None:
        stub = stubs.ClusterStub(channel)
        self.register_gateway = unary.once(stub.RegisterGateway)
        self.remove_gateway = unary.once(stub.RemoveGateway, timeout_s=_SHORT_WAIT_S)
        self.describe_cluster = unary.once(stub.DescribeCluster, timeout_s=_SHORT_WAIT_S)


class GrpcAccess:
    def __init__(self, channel: stubs.Channel, unary: Unary) -> None:
        stub = stubs.AccessStub(channel)
        self.create_acls = unary.once(stub.CreateAcls, timed_out(access_pb2.CreateAclsResponse))
        self.describe_acls = unary.repeatable(stub.DescribeAcls, timed_out(access_pb2.DescribeAclsResponse))
        self.delete_acls = unary.once(stub.DeleteAcls, timed_out(access_pb2.DeleteAclsResponse))
        self._ask, self._follow = unary.ask, stub.Follow
        self.alter_quotas = unary.once(stub.AlterQuotas, timed_out(access_pb2.AlterQuotasResponse))
        self.charge_mutations = unary.once(stub.ChargeMutations)
        self.describe_quotas = unary.once(stub.DescribeQuotas)

    async def follow(self, request: access_pb2.FollowRequest) -> access_pb2.FollowResponse:
        """Ask once: the caller repeats it."""
        return await self._ask(self._follow, request, request.wait_ms / 1000 + _FOLLOW_S)


class GrpcUsers:
    """Users. Without storage there is no answer: a client that logs in comes again."""

    def __init__(self, channel: stubs.Channel, unary: Unary) -> None:
        stub = stubs.UsersStub(channel)
        self.find_credential = unary.once(stub.FindCredential, timeout_s=_LOGIN_WAIT_S)
        self.describe_credentials = unary.once(stub.DescribeCredentials)
        # Another change of the user may have been made since the first call.
        self.alter_credentials = unary.once(stub.AlterCredentials, _not_altered)


def _not_altered(request: users_pb2.AlterCredentialsRequest) -> users_pb2.AlterCredentialsResponse:
    users = dict.fromkeys([each.user for each in request.deletions] + [each.user for each in request.upsertions])
    error = ErrorCode.REQUEST_TIMED_OUT
    result = users_pb2.AlterCredentialsResponse.Result
    return users_pb2.AlterCredentialsResponse(results=[result(user=user, error_code=error) for user in users])


class GrpcStorage:
    """The connection to storage-svc. Handlers use `storage`; `close` must follow."""

    def __init__(
        self,
        channel: Channel,
        gateway_name: str,
        metrics: GatewayMetrics,
        *,
        record_lanes: int = 0,
    ) -> None:
        """Connect in the background. At most `record_lanes` lanes."""
        self._channel = channel
        #: Counts of its connections.
        self.counts = channel.counts
        self._records = RecordStream(channel, gateway_name, metrics)
        self._groups = GroupStream(channel, metrics)
        #: None without lanes, and with TLS, which takes every byte through this process.
        self.lanes = Lanes(channel, record_lanes, metrics) if record_lanes and channel.is_plain else None
        unary = Unary(metrics, self._records.connected)
        self.storage = StoragePorts(
            records=self._records,
            window=self._records.window,
            lanes=self.lanes,
            offsets=GrpcOffsets(channel, unary),
            topics=GrpcTopics(channel, unary),
            groups=GrpcGroups(channel, unary, self._groups),
            producers=GrpcProducers(channel, unary),
            logs=GrpcLogs(channel, unary),
            cluster=GrpcCluster(channel, unary),
            transactions=GrpcTransactions(channel, unary),
            access=GrpcAccess(channel, unary),
            users=GrpcUsers(channel, unary),
        )

    @classmethod
    def connect(
        cls,
        address: str,
        gateway_name: str,
        metrics: GatewayMetrics,
        *,
        record_lanes: int = 0,
        tls: InternalTls | None = None,
    ) -> GrpcStorage:
        """Connect in the background, for as long as it takes. Options as for the class.

        With TLS there are no lanes: the system cannot move what has to be decrypted.
        """
        channel = rpc.channel(address, CONTRACT_VERSION, tls=tls)
        return cls(channel, gateway_name, metrics, record_lanes=0 if tls is not None else record_lanes)

    def fault(self) -> str | None:
        """Return why storage cannot be reached, for /readyz; None when it can."""
        if (refusal := self._records.refusal or self._groups.refusal) is not None:
            return refusal
        up = self._records.connected.is_set() and self._groups.connected.is_set()
        return None if up else "storage is not connected"

    async def close(self) -> None:
        if self.lanes is not None:
            await self.lanes.close()
        await self._groups.close()
        await self._records.close()
        await self._channel.close()
