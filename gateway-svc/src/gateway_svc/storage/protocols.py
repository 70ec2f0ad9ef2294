"""Storage as the handlers see it: one Protocol per noun, in the types of the contract.

Two implementations: `gateway_svc.storage.grpc` speaks gRPC to storage-svc; in one process the storage core's own
service objects have these methods. Every call is answered, even when storage is lost. A lost connection becomes a Kafka
error code: 5 for an append that was never sent, 7 for one that may be stored, 6 for a read, 15 for a call about groups.
A call whose answer has no field for a code raises StorageUnavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from broker_contract import (
    access_pb2,
    cluster_pb2,
    data_pb2,
    groups_pb2,
    logs_pb2,
    producers_pb2,
    topics_pb2,
    transactions_pb2,
    users_pb2,
)
from broker_contract.data import (
    AheadRequest,
    AheadResponse,
    Append,
    AppendResponse,
    ReadRequest,
    ReadResponse,
    Slice,
)
from broker_contract.revisions import Revisions

from gateway_svc.storage.append_window import AppendWindow


class Records(Protocol):
    """Partition logs. Each method answers by calling `done` exactly once, later or before it returns."""

    def append(self, request: Append, done: Callable[[AppendResponse], None]) -> None:
        """Append batches, which must not change until `done` is called."""
        ...

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        """Read whole batches. Return a function that gives the read up, after which `done` is not called."""
        ...

    @property
    def revisions(self) -> Revisions | None:
        """The counters that show whether an answer of `read_ahead` is still valid; None when this process sees none.

        It is another object after the connection to storage was lost.
        """
        ...

    def read_ahead(self, request: AheadRequest, done: Callable[[AheadResponse], None]) -> None:
        """Answer the next reads of a consumer before it sends them."""
        ...


class RecordReader(Protocol):
    """The sender of a lane's bytes to a client."""

    def has_records(self) -> None:
        """Go on: bytes have come, or the lane is closed."""
        ...

    def fail(self, error: Exception) -> None:
        """Close: `has_records` has raised this error."""
        ...


class LaneAnswer(Protocol):
    """The bytes of the slices of one answer, in their order, which the system moves from storage to a client."""

    #: The parts of the client's answer that hold these bytes and were not sent.
    users: int

    def move(self, to: int, most: int) -> int:
        """Move at most `most` bytes to a socket, and return how many.

        Raises:
            OSError: storage or the socket has failed.
        """
        ...

    def receive(self, into: memoryview) -> int:
        """Copy the next bytes, and return how many: 0 if none has come.

        Raises:
            OSError: storage has failed.
        """
        ...

    @property
    def is_dry(self) -> bool:
        """Whether the next bytes have not come. Otherwise the socket has no room."""
        ...

    def wait(self, reader: RecordReader) -> None:
        """Have the reader called, later, when bytes have come, or the lane is closed."""
        ...

    def release(self) -> None:
        """Give the lane back: all bytes were moved, or nobody wants them any more. Idempotent."""
        ...


class RecordLanes(Protocol):
    """Ways for records past this process, from a storage whose files it cannot see."""

    @property
    def is_usable(self) -> bool:
        """Whether a read would get a lane now."""
        ...

    def __len__(self) -> int:
        """Return the number of lanes."""
        ...

    def read(self, slices: Sequence[Slice], done: Callable[[LaneAnswer | None], None]) -> Callable[[], None]:
        """Ask for the bytes of slices; return a function that gives the read up.

        `done` is called once, now or later, with None if they must be read by value.
        """
        ...


class Offsets(Protocol):
    async def list_offsets(self, request: data_pb2.ListOffsetsRequest) -> data_pb2.ListOffsetsResponse: ...

    async def end_epochs(self, request: data_pb2.EndEpochsRequest) -> data_pb2.EndEpochsResponse: ...

    async def delete_records(self, request: data_pb2.DeleteRecordsRequest) -> data_pb2.DeleteRecordsResponse: ...


class Topics(Protocol):
    async def describe_topics(self, request: topics_pb2.DescribeTopicsRequest) -> topics_pb2.DescribeTopicsResponse: ...

    async def create_topics(self, request: topics_pb2.CreateTopicsRequest) -> topics_pb2.CreateTopicsResponse: ...

    async def create_partitions(
        self, request: topics_pb2.CreatePartitionsRequest
    ) -> topics_pb2.CreatePartitionsResponse: ...

    async def delete_topics(self, request: topics_pb2.DeleteTopicsRequest) -> topics_pb2.DeleteTopicsResponse: ...

    async def describe_configs(
        self, request: topics_pb2.DescribeConfigsRequest
    ) -> topics_pb2.DescribeConfigsResponse: ...

    async def alter_configs(self, request: topics_pb2.AlterConfigsRequest) -> topics_pb2.AlterConfigsResponse: ...

    async def list_config_resources(
        self, request: topics_pb2.ListConfigResourcesRequest
    ) -> topics_pb2.ListConfigResourcesResponse: ...


class RepeatableHeartbeat(Protocol):
    """A heartbeat that its member may repeat over the same connection, with the same bytes, once it was answered."""

    def __call__(self, done: Callable[[Any], None]) -> bool:
        """Repeat the heartbeat; `done` gets None when the answer is the same, or the new answer, later or at once.

        Returns False, and does not call `done`, when the whole heartbeat must be sent; this object is useless then.
        """
        ...

    def forget(self) -> None:
        """Free its memory: the client will not repeat it, or it was refused."""
        ...


class RepeatableCommit(Protocol):
    """A commit that its client may repeat with other offsets, over the same connection, once it was answered."""

    def __call__(self, offsets: Sequence[int], done: Callable[[Sequence[int]], None]) -> bool:
        """Commit these offsets; `done` gets the error code of each, or no codes when there is no error.

        Returns False when no offset was committed: the whole commit must be sent, and this object is useless.
        """
        ...

    def forget(self) -> None:
        """Free its memory: the client will not repeat it, or it was refused."""
        ...


class Groups(Protocol):
    """Groups. The calls that members repeat answer by calling `done` exactly once, later or before they return."""

    def heartbeat(
        self, request: groups_pb2.HeartbeatRequest, done: Callable[[groups_pb2.HeartbeatResponse], None]
    ) -> RepeatableHeartbeat | None: ...

    def commit_offsets(
        self,
        request: groups_pb2.CommitOffsetsRequest,
        done: Callable[[groups_pb2.CommitOffsetsResponse], None],
        is_wanted: Callable[[], bool],
    ) -> RepeatableCommit | None:
        """Commit offsets.

        `is_wanted` returns whether the client is still connected, also for repetitions. A commit that waits for storage
        is dropped without its client.
        """
        ...

    def consumer_group_heartbeat(
        self,
        request: groups_pb2.ConsumerGroupHeartbeatRequest,
        done: Callable[[groups_pb2.ConsumerGroupHeartbeatResponse], None],
    ) -> RepeatableHeartbeat | None: ...

    async def join_group(self, request: groups_pb2.JoinGroupRequest) -> groups_pb2.JoinGroupResponse: ...

    async def sync_group(self, request: groups_pb2.SyncGroupRequest) -> groups_pb2.SyncGroupResponse: ...

    async def leave_group(self, request: groups_pb2.LeaveGroupRequest) -> groups_pb2.LeaveGroupResponse: ...

    async def resolve_patterns(
        self, request: groups_pb2.ResolvePatternsRequest
    ) -> groups_pb2.ResolvePatternsResponse: ...

    async def describe_consumer_groups(
        self, request: groups_pb2.DescribeConsumerGroupsRequest
    ) -> groups_pb2.DescribeConsumerGroupsResponse: ...

    async def commit_transaction_offsets(
        self, request: groups_pb2.CommitTransactionOffsetsRequest
    ) -> groups_pb2.CommitOffsetsResponse: ...

    async def fetch_offsets(self, request: groups_pb2.FetchOffsetsRequest) -> groups_pb2.FetchOffsetsResponse: ...

    async def list_groups(self, request: groups_pb2.ListGroupsRequest) -> groups_pb2.ListGroupsResponse: ...

    async def describe_groups(self, request: groups_pb2.DescribeGroupsRequest) -> groups_pb2.DescribeGroupsResponse: ...

    async def delete_groups(self, request: groups_pb2.DeleteGroupsRequest) -> groups_pb2.DeleteGroupsResponse: ...

    async def delete_offsets(self, request: groups_pb2.DeleteOffsetsRequest) -> groups_pb2.DeleteOffsetsResponse: ...


class Producers(Protocol):
    async def init_producer_id(
        self, request: producers_pb2.InitProducerIdRequest
    ) -> producers_pb2.InitProducerIdResponse: ...


class Logs(Protocol):
    async def describe_producers(
        self, request: logs_pb2.DescribeProducersRequest
    ) -> logs_pb2.DescribeProducersResponse: ...

    async def describe_log_dirs(self, request: logs_pb2.DescribeLogDirsRequest) -> logs_pb2.DescribeLogDirsResponse: ...


class ClusterCalls(Protocol):
    async def register_gateway(
        self, request: cluster_pb2.RegisterGatewayRequest
    ) -> cluster_pb2.RegisterGatewayResponse: ...

    async def remove_gateway(self, request: cluster_pb2.RemoveGatewayRequest) -> cluster_pb2.RemoveGatewayResponse: ...

    async def describe_cluster(
        self, request: cluster_pb2.DescribeClusterRequest
    ) -> cluster_pb2.DescribeClusterResponse: ...


class Access(Protocol):
    """Access rules and quotas. A change has returned once every gateway that follows obeys it."""

    async def create_acls(self, request: access_pb2.CreateAclsRequest) -> access_pb2.CreateAclsResponse: ...

    async def describe_acls(self, request: access_pb2.DescribeAclsRequest) -> access_pb2.DescribeAclsResponse: ...

    async def delete_acls(self, request: access_pb2.DeleteAclsRequest) -> access_pb2.DeleteAclsResponse: ...

    async def follow(self, request: access_pb2.FollowRequest) -> access_pb2.FollowResponse: ...

    async def alter_quotas(self, request: access_pb2.AlterQuotasRequest) -> access_pb2.AlterQuotasResponse: ...

    async def charge_mutations(
        self, request: access_pb2.ChargeMutationsRequest
    ) -> access_pb2.ChargeMutationsResponse: ...

    async def describe_quotas(self, request: access_pb2.DescribeQuotasRequest) -> access_pb2.DescribeQuotasResponse: ...


class Transactions(Protocol):
    async def init_producer(
        self, request: transactions_pb2.InitProducerRequest
    ) -> transactions_pb2.InitProducerResponse: ...

    async def add_partitions(
        self, request: transactions_pb2.AddPartitionsRequest
    ) -> transactions_pb2.AddPartitionsResponse: ...

    async def add_offsets(self, request: transactions_pb2.AddOffsetsRequest) -> transactions_pb2.AddOffsetsResponse: ...

    async def end_transaction(
        self, request: transactions_pb2.EndTransactionRequest
    ) -> transactions_pb2.EndTransactionResponse: ...

    async def write_markers(
        self, request: transactions_pb2.WriteMarkersRequest
    ) -> transactions_pb2.WriteMarkersResponse: ...

    async def describe_transactions(
        self, request: transactions_pb2.DescribeTransactionsRequest
    ) -> transactions_pb2.DescribeTransactionsResponse: ...

    async def list_transactions(
        self, request: transactions_pb2.ListTransactionsRequest
    ) -> transactions_pb2.ListTransactionsResponse: ...


class Users(Protocol):
    async def find_credential(self, request: users_pb2.FindCredentialRequest) -> users_pb2.FindCredentialResponse:
        """Return the credential of a name, or one that no password fits."""
        ...

    async def describe_credentials(
        self, request: users_pb2.DescribeCredentialsRequest
    ) -> users_pb2.DescribeCredentialsResponse: ...

    async def alter_credentials(
        self, request: users_pb2.AlterCredentialsRequest
    ) -> users_pb2.AlterCredentialsResponse: ...


@dataclass(frozen=True, slots=True)
class StoragePorts:
    """Everything the gateway asks of storage."""

    records: Records
    offsets: Offsets
    topics: Topics
    groups: Groups
    producers: Producers
    logs: Logs
    cluster: ClusterCalls
    transactions: Transactions
    access: Access
    users: Users
    #: Whether storage lives in this process, and uses its files and its event loop.
    is_local: bool = False
    #: Bytes of appends on their way to a separate storage; connections wait while it is full.
    window: AppendWindow | None = None
    #: The ways for records past a gateway that does not see the files of a separate storage.
    lanes: RecordLanes | None = None
