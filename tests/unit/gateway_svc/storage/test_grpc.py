"""Calls to storage that change groups: promises of heartbeats are not used once they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_contract import cluster_pb2, groups_pb2, topics_pb2
from broker_contract.version import CONTRACT_VERSION
from gateway_svc.errors import StorageUnavailable
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage import lasting_stream
from gateway_svc.storage.grpc import GrpcStorage
from service_chassis import rpc
from service_chassis.grpc_server import Method, stream, unary
from service_chassis.version import VERSION


def listed(**states: str) -> groups_pb2.ListGroupsResponse:
    groups = [groups_pb2.ListGroupsResponse.Group(group_id=name, state=state) for name, state in states.items()]
    return groups_pb2.ListGroupsResponse(groups=groups)


#: The calls whose answers end promises: the Protocol's name, the request and the answer.
CALLS: dict[str, tuple[str, Any, Any]] = {
    "JoinGroup": ("groups", groups_pb2.JoinGroupRequest(group_id="g"), groups_pb2.JoinGroupResponse()),
    "SyncGroup": ("groups", groups_pb2.SyncGroupRequest(group_id="g"), groups_pb2.SyncGroupResponse()),
    "LeaveGroup": ("groups", groups_pb2.LeaveGroupRequest(group_id="g"), groups_pb2.LeaveGroupResponse()),
    "DeleteGroups": ("groups", groups_pb2.DeleteGroupsRequest(group_ids=["g"]), groups_pb2.DeleteGroupsResponse()),
    "DescribeGroups": (
        "groups",
        groups_pb2.DescribeGroupsRequest(group_ids=["g"]),
        groups_pb2.DescribeGroupsResponse(),
    ),
    "DescribeConsumerGroups": (
        "groups",
        groups_pb2.DescribeConsumerGroupsRequest(group_ids=["g"]),
        groups_pb2.DescribeConsumerGroupsResponse(),
    ),
    "ListGroups": ("groups", groups_pb2.ListGroupsRequest(), listed(g="PreparingRebalance")),
    "ListGroups: gone": ("groups", groups_pb2.ListGroupsRequest(), listed(h="Stable")),
    "CreateTopics": ("topics", topics_pb2.CreateTopicsRequest(), topics_pb2.CreateTopicsResponse()),
    "DescribeTopics": ("topics", topics_pb2.DescribeTopicsRequest(), topics_pb2.DescribeTopicsResponse(created=True)),
    "DeleteTopics": ("topics", topics_pb2.DeleteTopicsRequest(), topics_pb2.DeleteTopicsResponse()),
    "AlterConfigs": ("topics", topics_pb2.AlterConfigsRequest(), topics_pb2.AlterConfigsResponse()),
}
#: The same for calls whose answers show only states in which promises hold.
OTHER_CALLS: dict[str, tuple[str, Any, Any]] = {
    "ListGroups": ("groups", groups_pb2.ListGroupsRequest(), listed(g="Stable")),
    "DescribeTopics": ("topics", topics_pb2.DescribeTopicsRequest(), topics_pb2.DescribeTopicsResponse()),
}


async def promise_all(context: Any) -> None:
    """Serve storage's end of the streams: promise all heartbeats, and never revoke a promise."""
    while (message := await context.read()) is not None:
        answers = [
            groups_pb2.GroupAnswer(call_id=each.call_id, heartbeat=groups_pb2.HeartbeatResponse(), may_repeat=True)
            for each in message.calls
        ]
        await context.write(groups_pb2.GroupAnswers(answers=answers))


async def read_all(context: Any) -> None:
    while await context.read() is not None:
        pass


class Answers:
    """Storage's, to all but heartbeats."""

    def __init__(self) -> None:
        self.next: Any = None

    def handler(self, request: Any, response: Any) -> Method:
        async def answer(_request: Any, _context: Any) -> Any:
            return self.next

        decode = type(request).FromString
        return unary(answer, decode, type(response).SerializeToString)


@pytest.fixture
async def answers() -> Answers:
    return Answers()


@pytest.fixture
async def storage(tmp_path: Path, answers: Answers) -> AsyncIterator[GrpcStorage]:
    """It is trusted for as long as a test may take."""
    server = rpc.server()
    methods = {
        noun: {
            name.partition(":")[0]: answers.handler(request, response)
            for name, (of, request, response) in CALLS.items()
            if of == noun
        }
        for noun in ("groups", "topics")
    }
    methods["groups"]["Exchange"] = stream(
        promise_all, groups_pb2.GroupCalls.FromString, groups_pb2.GroupAnswers.SerializeToString
    )
    server.add("millrace.v1.Groups", methods["groups"])
    server.add("millrace.v1.Topics", methods["topics"])
    server.add("millrace.v1.Data", {"Exchange": stream(read_all)})
    server.listen(f"unix:{tmp_path}/storage.sock")
    await server.start()
    made = GrpcStorage.connect(f"unix:{tmp_path}/storage.sock", "one", GatewayMetrics(), answer_age_max_s=60.0)
    yield made
    await made.close()
    await server.stop(0)


async def is_used_after(storage: GrpcStorage, answers: Answers, name: str, call: tuple[str, Any, Any]) -> bool:
    """Return whether a promise for group "g" is used after a call was answered."""
    noun, request, answers.next = call
    answered = asyncio.Event()
    promise = storage.storage.groups.heartbeat(groups_pb2.HeartbeatRequest(group_id="g"), lambda _: answered.set())
    assert promise is not None
    await asyncio.wait_for(answered.wait(), 60)
    assert promise()
    method = "".join(f"_{each.lower()}" if each.isupper() else each for each in name.partition(":")[0]).strip("_")
    assert await getattr(getattr(storage.storage, noun), method)(request) == answers.next
    return promise()


@pytest.mark.parametrize("name", CALLS)
async def test_a_promise_is_doubted_before_an_answer_that_tells_of_its_group(
    storage: GrpcStorage, answers: Answers, name: str
) -> None:
    assert not await is_used_after(storage, answers, name, CALLS[name])


@pytest.mark.parametrize("name", OTHER_CALLS)
async def test_a_promise_is_not_doubted_without_need(storage: GrpcStorage, answers: Answers, name: str) -> None:
    assert await is_used_after(storage, answers, name, OTHER_CALLS[name])


@pytest.mark.parametrize("stream", ["_records", "_groups"])
async def test_storage_is_there_while_both_streams_are_up(storage: GrpcStorage, stream: str) -> None:
    async with asyncio.timeout(60):
        while storage.fault() is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    getattr(storage, stream).connected.clear()
    assert storage.fault() == "storage is not connected"


async def test_storage_of_another_release_is_named_in_readiness_and_asked_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting_stream, "REFUSED_PAUSE_S", 600.0)
    server = rpc.server("another")
    server.listen(f"unix:{tmp_path}/other.sock")
    await server.start()
    counts = GatewayMetrics()
    storage = GrpcStorage.connect(f"unix:{tmp_path}/other.sock", "one", counts)
    async with asyncio.timeout(60):
        while sum(counts.storage_errors[name] for name in ("stream", "group_stream")) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    fault = storage.fault()
    assert fault is not None
    assert fault.endswith(
        f"with contract another, the caller is Millrace {VERSION} with contract {CONTRACT_VERSION}: "
        "all services must be of one release"
    )
    with pytest.raises(StorageUnavailable, match="FAILED_PRECONDITION: storage is Millrace"):
        await storage.storage.cluster.register_gateway(cluster_pb2.RegisterGatewayRequest(name="one"))
    assert [counts.storage_errors[name] for name in ("stream", "group_stream")] == [1, 1]
    await storage.close()
    await server.stop(0)
