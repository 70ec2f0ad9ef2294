"""A connection closes after the answers that are due, as in Kafka: a producer without them sends its records again.

It closes if a request without an answer (acks=0) fails, if a request cannot be served, or if the client sends no more.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from gateway_svc.requests.admission import Admission
from protocol_lib.messages.create_topics import CreateTopicsRequest

from tests.wire.conftest import Running, StartBroker, Wire, batch, fetch_request, produce, produce_request, until
from tests.wire.rights.prefixed import Prefixed
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of


async def end_of(broker: Running, topic: str, end: int) -> None:
    """Wait until the topic has this end, and fail if it gets another."""
    log = broker.core.logs.logs[topic, 0]
    await until(lambda: log.high_watermark >= end)
    assert log.log_end_offset == end


async def offsets(wire: Wire, count: int) -> list[tuple[int, int]]:
    """Return error code and base offset of the next answers."""
    rows = [(await wire.receive())[1].responses[0].partition_responses[0] for _ in range(count)]
    return [(row.error_code, row.base_offset) for row in rows]


@pytest.mark.parametrize("is_learned", [False, True])
@pytest.mark.parametrize("fault", ["denied", "missing", "half denied", "corrupt"])
async def test_requests_before_it_are_answered(start_broker: StartBroker, fault: str, is_learned: bool) -> None:
    policy = Prefixed()
    broker = await start_broker(admission=partial(Admission, policy=policy), topics="a:1,b:1")
    policy.set(False)
    wire = await broker.connect()
    for offset in range(2 * is_learned):
        assert await produce(wire, "a", batch(b"x"), acks=-1) == (0, 3 * offset)
        wire.send(0, 7, produce_request("a", batch(b"x"), acks=0))
        wire.sent.clear()
        assert await produce(wire, "a", batch(b"x"), acks=-1) == (0, 3 * offset + 2)
    before = broker.core.logs.logs["a", 0].log_end_offset
    for _ in range(3):
        wire.send(0, 7, produce_request("a", batch(b"x"), acks=-1))
    failing = produce_request(
        {"denied": "b", "missing": "a-missing"}.get(fault, "a"),
        batch(b"x")[:-1] + b"!" if fault == "corrupt" else batch(b"x"),
        acks=0,
    )
    if fault == "half denied":
        failing.topic_data += produce_request("b", batch(b"x"), acks=0).topic_data
    wire.send(0, 7, failing)
    assert await offsets(wire, 3) == [(0, before + number) for number in range(3)]
    assert await wire.closed() == b""
    await end_of(broker, "a", before + 3 + (fault == "half denied"))


async def test_no_request_after_it_starts(start_broker: StartBroker) -> None:
    policy = Prefixed()
    broker = await start_broker(admission=partial(Admission, policy=policy), topics="a:1,b:1")
    policy.set(False)
    wire = await broker.connect()
    wire.send(0, 7, produce_request("a", batch(b"x"), acks=-1))
    wire.send(0, 7, produce_request("b", batch(b"x"), acks=0))
    for _ in range(3):
        wire.send(0, 7, produce_request("a", batch(b"x"), acks=-1))
    wire.send(1, 11, fetch_request("a", 0, wait_ms=60_000))
    assert await offsets(wire, 1) == [(0, 0)]
    assert await wire.closed() == b""
    await end_of(broker, "a", 1)


@pytest.fixture(params=["combined", "separate"])
async def broker(request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path) -> AsyncIterator[Running]:
    if request.param == "combined":
        yield await start_broker()
        return
    storage = RemoteStorage(tmp_path)
    await storage.start()
    async with gateway_of(storage, "one") as running:
        yield running
    await storage.stop()


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, -1)


#: Bytes after which a connection has to close, and the reason.
NOT_SERVED = {
    "malformed fetch": (b"\0\0\0\x0b" + header(1, 11) + b"x", "malformed_body"),
    "malformed produce": (b"\0\0\0\x0b" + header(0, 7) + b"x", "malformed_body"),
    "malformed header": (b"\0\0\0\x0a" + header(1, 11)[:8] + b"\0\x09", "malformed_header"),
    "unknown api": (b"\0\0\0\x0a" + header(999, 0), "unknown_api"),
    "long one of an unknown api": (b"\0\1\0\0" + header(999, 0), "unknown_api"),
    "negative length": (b"\xff\xff\xff\xff", "frame_length"),
    "length beyond the limit": (b"\x7f\xff\xff\xff", "frame_length"),
}


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("case", NOT_SERVED)
async def test_requests_before_one_that_cannot_be_served_are_answered(
    broker: Running, case: str, is_held: bool
) -> None:
    wire = await broker.connect()
    sent, reason = NOT_SERVED[case]
    for _ in range(3):
        wire.send(0, 7, produce_request("single", batch(b"x"), acks=-1))
    if is_held:
        wire.send(19, 2, CreateTopicsRequest(topics=(), timeout_ms=1000))
    wire.writer.write(sent)
    wire.send(0, 7, produce_request("single", batch(b"late"), acks=-1))
    assert await offsets(wire, 3) == [(0, 0), (0, 1), (0, 2)]
    if is_held:
        assert (await wire.receive())[1].topics == ()
    assert await wire.closed() == b""
    assert broker.refused == {reason: 1}
    again = await broker.connect()
    assert await produce(again, "single", batch(b"y"), acks=-1) == (0, 3)
    assert broker.gateway.memory_held == 0


async def test_a_client_that_sends_no_more_gets_its_answers(broker: Running) -> None:
    wire = await broker.connect()
    for _ in range(3):
        wire.send(0, 7, produce_request("single", batch(b"x"), acks=-1))
    wire.send(19, 2, CreateTopicsRequest(topics=(), timeout_ms=1000))
    wire.send(0, 7, produce_request("orders", batch(b"x"), acks=-1))
    wire.writer.write_eof()
    assert await offsets(wire, 3) == [(0, 0), (0, 1), (0, 2)]
    assert (await wire.receive())[1].topics == ()
    assert await offsets(wire, 1) == [(0, 0)]
    assert await wire.closed() == b""
    assert broker.gateway.memory_held == 0


async def test_a_long_answer_is_sent_to_its_end(broker: Running) -> None:
    wire = await broker.connect()
    for offset in range(12):
        assert await produce(wire, "single", batch(b"x" * 1_000_000), acks=-1) == (0, offset)
    wire.send(1, 11, fetch_request("single", 0))
    size = int.from_bytes(await wire.reader.readexactly(4), "big")
    wire.writer.write_eof()
    await asyncio.sleep(0.1)
    assert size > 12_000_000
    assert len(await wire.closed()) == size


async def test_a_read_that_waits_ends_with_its_client(broker: Running) -> None:
    wire = await broker.connect()
    wire.send(1, 11, fetch_request("single", 0, wait_ms=60_000))
    wire.writer.write_eof()
    assert await asyncio.wait_for(wire.closed(), 30) == b""
