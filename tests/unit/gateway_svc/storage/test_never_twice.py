"""Never twice, never backwards: whether a call is sent again when storage dies over it, and whether it waits.

A call that storage may have carried out is sent again only if the second time changes nothing, not even after acts
of other clients in between. Every call of the contract has its line; a new call without one fails here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_contract import cluster_pb2, data_pb2, groups_pb2, logs_pb2, producers_pb2, topics_pb2, transactions_pb2
from gateway_svc.errors import StorageUnavailable
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.group_calls import GroupCall
from gateway_svc.storage.grpc import GrpcStorage
from google.protobuf.message_factory import GetMessageClass
from service_chassis import rpc
from service_chassis.grpc_server import Method, Server, stream, unary
from service_chassis.grpc_status import RpcError, Status

FILES = {
    "Data": data_pb2,
    "Topics": topics_pb2,
    "Groups": groups_pb2,
    "Producers": producers_pb2,
    "Logs": logs_pb2,
    "Cluster": cluster_pb2,
    "Transactions": transactions_pb2,
}
#: The Protocol of `storage.protocols` that has the methods of a service.
NOUNS = {"Data": "offsets"}

#: Whether a call is sent again, by service and method.
SENT_AGAIN: dict[str, bool] = {
    "Data.ListOffsets": True,  # reads
    "Data.EndEpochs": True,  # reads
    "Data.DeleteRecords": True,  # below the same offset: nothing is left there; see DELETE_TO_END
    "Topics.DescribeTopics": True,  # reads; a topic that it creates is there the second time
    "Topics.CreateTopics": False,  # another client may have deleted the topic
    "Topics.DeleteTopics": False,  # another client may have made one of that name
    "Topics.DescribeConfigs": True,  # reads
    "Topics.CreatePartitions": False,  # the same name may be another topic by now
    "Logs.DescribeProducers": True,  # reads
    "Logs.DescribeLogDirs": True,  # reads
    "Topics.AlterConfigs": False,  # another client may have changed them; a repeated append or subtract counts twice
    "Topics.ListConfigResources": True,  # reads
    "Groups.JoinGroup": False,  # it would add a member, or take a static member's place
    "Groups.SyncGroup": False,  # the group may be in another generation
    "Groups.LeaveGroup": False,  # a member of that name may have joined
    "Groups.DescribeConsumerGroups": True,  # reads
    "Groups.ResolvePatterns": True,  # the names are those of one version of the topics
    "Groups.CommitTransactionOffsets": False,  # another transaction of the producer may have begun
    "Groups.FetchOffsets": True,  # reads
    "Groups.ListGroups": True,  # reads
    "Groups.DescribeGroups": True,  # reads
    "Groups.DeleteGroups": False,  # the group may have begun again
    "Groups.DeleteOffsets": False,  # a member may have committed
    "Transactions.InitProducer": False,  # it would fence the producer that came since
    "Transactions.AddPartitions": False,  # the transaction may have ended, and would begin again
    "Transactions.AddOffsets": False,  # the same
    "Transactions.EndTransaction": False,  # the producer may be in the next transaction
    "Transactions.WriteMarkers": False,  # the same
    "Transactions.DescribeTransactions": True,  # reads
    "Transactions.ListTransactions": True,  # reads
    "Producers.InitProducerId": True,  # an id that no client has received is never used
    "Cluster.RegisterGateway": False,  # its caller repeats it
    "Cluster.RemoveGateway": False,  # its caller stops
    "Cluster.DescribeCluster": False,  # its caller has the last answer
}
#: Whether a call of the group stream goes to the next stream after it was sent.
SENT_TO_NEXT_STREAM: dict[str, bool] = {
    "heartbeat": True,  # it only starts the session again
    "commit_offsets": False,  # another gateway's commit may have followed
    "consumer_group_heartbeat": False,  # its member may have gone on with another epoch
}
DELETE_TO_END = data_pb2.DeleteRecordsRequest(targets=[data_pb2.DeleteRecordsRequest.Target(topic="t", offset=-1)])


def unary_methods() -> dict[str, Any]:
    return {
        f"{service}.{method.name}": method
        for service, file in FILES.items()
        for method in file.DESCRIPTOR.services_by_name[service].methods
        if not method.client_streaming and not method.server_streaming
    }


def test_every_call_has_a_decision() -> None:
    assert unary_methods().keys() == SENT_AGAIN.keys()
    kinds = {field.name for field in groups_pb2.GroupCall.DESCRIPTOR.oneofs_by_name["call"].fields}
    assert kinds == SENT_TO_NEXT_STREAM.keys()
    assert {
        f"{name}.{each.name}"
        for name, file in FILES.items()
        for each in file.DESCRIPTOR.services_by_name[name].methods
        if each.client_streaming or each.server_streaming
    } == {"Data.Exchange", "Data.Records", "Groups.Exchange"}


class DyingStorage:
    """Receives every unary call and dies over the first of them: its answer is an error of the connection."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        #: The time that the gateway gave each call, in seconds; None without an end.
        self.times: list[float | None] = []
        self.is_dead = asyncio.Event()

    def handler(self, method: Any) -> Method:
        async def receive(request: Any, context: Any) -> Any:
            self.received.append(request)
            self.times.append(context.time_remaining())
            self.is_dead.set()
            if len(self.received) == 1:
                raise RpcError(Status.UNAVAILABLE, "died")
            return GetMessageClass(method.output_type)()

        return unary(
            receive,
            GetMessageClass(method.input_type).FromString,
            GetMessageClass(method.output_type).SerializeToString,
        )


async def read_all(context: Any) -> None:
    while await context.read() is not None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/storage.sock"


async def serve(address: str, dying: DyingStorage) -> Server:
    server = rpc.server()
    for service, file in FILES.items():
        methods = {
            name.partition(".")[2]: dying.handler(method)
            for name, method in unary_methods().items()
            if name.startswith(service)
        }
        if service in ("Data", "Groups"):
            methods["Exchange"] = stream(read_all)
        name = file.DESCRIPTOR.services_by_name[service].full_name
        server.add(name, methods)
    server.listen(address)
    await server.start()
    return server


@pytest.fixture
async def storage(address: str) -> AsyncIterator[GrpcStorage]:
    made = GrpcStorage.connect(address, "one", GatewayMetrics())
    yield made
    await made.close()


def method_of(storage: GrpcStorage, name: str) -> Any:
    service, _, method = name.partition(".")
    return getattr(
        getattr(storage.storage, NOUNS.get(service, service.lower())), re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower()
    )


@pytest.mark.parametrize("name", SENT_AGAIN)
async def test_a_call_that_storage_died_over_is_sent_again_only_if_that_changes_nothing(
    storage: GrpcStorage, address: str, name: str
) -> None:
    dying = DyingStorage()
    server = await serve(address, dying)
    request = GetMessageClass(unary_methods()[name].input_type)()
    try:
        await method_of(storage, name)(request)
    except StorageUnavailable:
        assert not SENT_AGAIN[name]
    assert len(dying.received) == 1 + SENT_AGAIN[name]
    await server.stop(0)


@pytest.mark.parametrize("name", ["Groups.JoinGroup", "Groups.SyncGroup", "Groups.LeaveGroup"])
async def test_a_call_that_waits_for_other_members_has_no_end_of_the_gateways(
    storage: GrpcStorage, address: str, name: str
) -> None:
    """Others may have a longer rebalance timeout than the member that waits."""
    dying = DyingStorage()
    server = await serve(address, dying)
    await method_of(storage, name)(GetMessageClass(unary_methods()[name].input_type)())
    (given,) = dying.times
    assert (given is None) == (name != "Groups.LeaveGroup")
    await server.stop(0)


async def test_records_up_to_a_moments_end_are_deleted_once(storage: GrpcStorage, address: str) -> None:
    dying = DyingStorage()
    server = await serve(address, dying)
    await storage.storage.offsets.delete_records(DELETE_TO_END)
    assert dying.received == [DELETE_TO_END]
    await server.stop(0)


@pytest.mark.parametrize("name", SENT_AGAIN)
async def test_a_call_that_waits_for_storage_ends_with_its_client(
    storage: GrpcStorage, address: str, name: str
) -> None:
    """Each of them is cancelled while there is no storage; none of them is there when storage comes."""
    request = GetMessageClass(unary_methods()[name].input_type)()
    task = asyncio.create_task(method_of(storage, name)(request))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    dying = DyingStorage()
    server = await serve(address, dying)
    async with asyncio.timeout(20):
        await storage._records.connected.wait()
    with pytest.raises(StorageUnavailable):
        await storage.storage.cluster.describe_cluster(cluster_pb2.DescribeClusterRequest())
    assert dying.received == [cluster_pb2.DescribeClusterRequest()]
    await server.stop(0)


@pytest.mark.parametrize("kind", SENT_TO_NEXT_STREAM)
def test_a_call_of_the_stream_that_was_sent_goes_to_the_next_only_if_that_changes_nothing(kind: str) -> None:
    repeatable = kind != "consumer_group_heartbeat"
    request: Any = groups_pb2.CommitOffsetsRequest()
    call = GroupCall(kind, request, lambda _: None, 0.0, repeatable=repeatable)
    call.is_sent = True
    assert call.may_wait() == SENT_TO_NEXT_STREAM[kind]
