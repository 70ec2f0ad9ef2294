"""The answers of admin-api while storage does not answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from admin_api.errors import ApiError
from admin_api.storage import Storage
from broker_contract import administration_pb2, topics_pb2
from broker_contract.version import CONTRACT_VERSION
from google.protobuf.message_factory import GetMessageClass
from service_chassis import logs, rpc
from service_chassis.grpc_server import unary
from service_chassis.grpc_status import RpcError, Status

from tests.unit.admin_api.conftest import serving_storage


@pytest.mark.parametrize(
    ("start_patience_s", "at_first"), [(60.0, ["debug"] * 3), (0.0, ["warning", "debug", "debug"])]
)
async def test_silence_is_worth_one_warning_and_none_while_storage_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start_patience_s: float, at_first: list[str]
) -> None:
    storage_address = f"unix:{tmp_path}/storage.sock"

    async def ask_and_be_answered(storage: Storage) -> bool:
        try:
            await storage.calls(1).cluster()
        except ApiError:
            return False
        return True

    with logs.configured("admin-api", "debug", "json"):
        storage = Storage(storage_address, timeout_s=60, start_patience_s=start_patience_s)
        assert [await ask_and_be_answered(storage) for _ in range(3)] == [False] * 3
        async with serving_storage(tmp_path / "data", storage_address):
            while not await ask_and_be_answered(storage):
                pass
        assert [await ask_and_be_answered(storage) for _ in range(3)] == [False] * 3
        await storage.close()

    events = ("storage call failed", "storage answers")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    logged = [(line["event"], line["level"]) for line in lines if line["event"] in events]
    answers = logged.index(("storage answers", "info"))
    assert logged[:3] == [("storage call failed", level) for level in at_first]
    assert {level for _, level in logged[3:answers]} <= {"debug"}
    failed = [level for event, level in logged[answers + 1 :] if event == "storage call failed"]
    assert failed == ["warning", "debug", "debug"]


#: The calls of the service that only admin-api makes: it sends none again, also one that storage died over.
SENT_AGAIN = dict.fromkeys(
    ("AlterOffsets", "DescribeLagTimes", "DescribeSamples", "DescribeScrub", "DescribeSegments"), False
)


@pytest.mark.parametrize("name", SENT_AGAIN)
async def test_a_call_that_storage_died_over_is_not_sent_again(tmp_path: Path, name: str) -> None:
    service = administration_pb2.DESCRIPTOR.services_by_name["Administration"]
    assert {method.name for method in service.methods} == SENT_AGAIN.keys()
    received = []

    async def die(request: Any, context: Any) -> None:
        received.append(request)
        raise RpcError(Status.UNAVAILABLE, "died")

    server = rpc.server(CONTRACT_VERSION)
    handlers = {method.name: unary(die, GetMessageClass(method.input_type).FromString) for method in service.methods}
    server.add(service.full_name, handlers)
    server.listen(f"unix:{tmp_path}/storage.sock")
    await server.start()
    storage = Storage(f"unix:{tmp_path}/storage.sock", timeout_s=20)
    calls = storage.calls(1)
    offset = administration_pb2.AlterOffsetsRequest.Offset(topic="t")
    sent: dict[str, Callable[[], Awaitable[Any]]] = {
        "AlterOffsets": lambda: calls.alter_offsets("g", [offset]),
        "DescribeLagTimes": lambda: calls.lag_times(["g"]),
        "DescribeScrub": lambda: calls.scrub(1),
        "DescribeSamples": lambda: calls.samples(0, 0),
        "DescribeSegments": lambda: calls.segments("", None, 1),
    }
    with pytest.raises(ApiError) as raised:
        await sent[name]()
    assert (raised.value.status_code, len(received)) == (503, 1)
    await storage.close()
    await server.stop(0)


@pytest.mark.parametrize(("timeout_s", "expected"), [(5.0, 25.0), (60.0, 60.0)])
async def test_changes_of_topics_may_take_longer(timeout_s: float, expected: float) -> None:
    """A topic of 9,000 partitions takes longer than other answers, and REST's clients wait for 30 s."""
    given: dict[str, float] = {}

    class Topics:
        async def CreateTopics(self, _request: Any, *, timeout: float) -> Any:  # noqa: N802
            given["create"] = timeout
            return topics_pb2.CreateTopicsResponse(topics=[topics_pb2.CreatedTopic(name="t")])

        async def CreatePartitions(self, _request: Any, *, timeout: float) -> Any:  # noqa: N802
            given["grow"] = timeout
            return topics_pb2.CreatePartitionsResponse(topics=[topics_pb2.GrownTopic(name="t")])

        async def DeleteTopics(self, _request: Any, *, timeout: float) -> Any:  # noqa: N802
            given["delete"] = timeout
            return topics_pb2.DeleteTopicsResponse(topics=[topics_pb2.DeletedTopic(name="t")])

    storage = Storage("unix:/nowhere", timeout_s=timeout_s)
    storage.topics = Topics()  # type: ignore[assignment]
    calls = storage.calls(1)
    await calls.create_topic(topics_pb2.NewTopic(name="t"), validate_only=False)
    await calls.create_partitions("t", 2)
    assert await calls.delete_topics(["t"]) == {}
    assert given == dict.fromkeys(("create", "grow", "delete"), expected)
    await storage.close()
