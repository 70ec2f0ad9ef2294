"""A network that fails between admin-api and the gateway: each record once, and none after its report of failure."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from admin_api.errors import ApiError
from admin_api.kafka_producer import Producer
from admin_api.new_records import NewRecord
from clients.proxy import Action, KafkaProxy
from protocol_lib import client
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode

from tests.unit.admin_api.test_produce import offset_end, stored, stream

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

RECORD = {"value": {"type": "JSON", "data": 1}}


@dataclass
class Way:
    """A stack whose admin-api reaches the gateway through a proxy, and a topic of one partition."""

    stack: Stack
    proxy: KafkaProxy
    topic: str

    def send(self, *records: dict[str, Any]) -> list[dict[str, Any]]:
        return stream(self.stack, f"{self.stack.cluster}/topics/{self.topic}", *records)

    @property
    def end(self) -> int:
        return offset_end(self.stack, self.topic, 0)


@pytest.fixture
def way(stack: Stack, admin: Callable[..., httpx.Client], request: pytest.FixtureRequest) -> Iterator[Way]:
    opened = contextlib.AsyncExitStack()
    proxy = stack.loop.run(opened.enter_async_context(KafkaProxy(stack.kafka)))
    reached = admin(stack.storage_address, admin_gateways=proxy.bootstrap, admin_gateway_timeout_s=60)
    topic = "doubt" + str(abs(hash(request.node.name)))
    stack.create_topic(topic)
    yield Way(replace(stack, http=reached), proxy, topic)
    stack.loop.run(opened.aclose())


def failing(api: ApiKey, *actions: Action) -> Callable[[ApiKey], Action]:
    left = list(actions)
    return lambda key: left.pop(0) if key == api and left else Action.PASS


def test_a_lost_answer_leaves_each_record_once(way: Way) -> None:
    """The gateway stored the records and its answer is lost, twice: they are sent again under their sequences."""
    assert [report["offset"] for report in way.send(RECORD)] == [0]
    way.proxy.on_answer = failing(ApiKey.PRODUCE, Action.DROP, Action.DROP)
    assert [report.get("offset") for report in way.send(RECORD, RECORD, RECORD)] == [1, 2, 3]
    assert [report.get("offset") for report in way.send(RECORD)] == [4]
    assert way.end == 5
    assert way.proxy.requests[ApiKey.PRODUCE] == 5
    assert way.proxy.requests[ApiKey.METADATA] == 0  # its addresses may be out of reach of admin-api


@pytest.mark.parametrize(("lost", "stored_once"), [("on_request", 0), ("on_answer", 1)])
def test_nothing_is_sent_any_more_after_a_report_of_failure(way: Way, lost: str, stored_once: int) -> None:
    assert way.send(RECORD)[0]["offset"] == 0
    setattr(way.proxy, lost, lambda key: Action.DROP if key == ApiKey.PRODUCE else Action.PASS)
    assert way.send(RECORD) == [{"error_code": 50302, "message": "The gateway cannot be reached."}]
    sent = way.proxy.requests[ApiKey.PRODUCE]
    setattr(way.proxy, lost, lambda _: Action.PASS)
    way.stack.loop.run(asyncio.sleep(0.5))
    assert way.proxy.requests[ApiKey.PRODUCE] == sent
    assert way.end == 1 + stored_once
    assert way.send(RECORD)[0]["offset"] == 1 + stored_once


@pytest.mark.parametrize("first", ["no answer", ErrorCode.REQUEST_TIMED_OUT])
def test_a_batch_in_doubt_whose_identity_is_lost(way: Way, monkeypatch: pytest.MonkeyPatch, first: Any) -> None:
    """It is never sent under another identity, which would store it twice."""
    codes = [ErrorCode.UNKNOWN_PRODUCER_ID, first]

    async def failing(*args: Any, **options: Any) -> list[client.ProducedPartition]:
        answers = await produce(*args, **options)
        code = codes.pop() if codes else ErrorCode.NONE
        if code == "no answer":
            raise client.ResponseTimeoutError
        return [replace(each, error_code=code) for each in answers]

    produce = client.produce
    monkeypatch.setattr(client, "produce", failing)
    (report,) = way.send(RECORD)
    assert report["error_code"] != 200
    assert codes == []
    assert way.end == 1
    assert way.send(RECORD)[0]["offset"] == 1


def test_a_topic_that_is_deleted_before_its_record_comes_stays_deleted(stack: Stack) -> None:
    """The gateway creates topics that Metadata names, so the producer asks for none."""
    record = NewRecord(None, None, b"late", (), 0)
    (outcome,) = stack.loop.run(Producer(stack.clients).produce("deleted", 1, [record]))
    assert isinstance(outcome, ApiError)
    assert outcome.error_code == 40403
    assert stack.http.get(f"{stack.cluster}/topics/deleted").status_code == 404


def test_a_record_that_is_refused_costs_no_other_its_place(way: Way) -> None:
    """Those after it are sent under other sequence numbers, in their order."""
    way.stack.http.put(
        f"{way.stack.cluster}/topics/{way.topic}/configs/max.message.bytes", json={"value": "2000"}
    ).raise_for_status()
    large = {"value": {"type": "STRING", "data": "x" * 3000}}
    numbers = [{"value": {"type": "JSON", "data": number}} for number in range(20)]
    numbers[3] = numbers[11] = numbers[12] = large
    codes = [report["error_code"] for report in way.send(*numbers)]
    assert codes == [413 if number in (3, 11, 12) else 200 for number in range(20)]
    assert [int(row[3]) for row in stored(way.stack, way.topic, 0)] == [n for n in range(20) if n not in (3, 11, 12)]
