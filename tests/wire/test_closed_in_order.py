"""A request without an answer (acks=0) that fails closes its connection, as in Kafka: after the answers before it.

A producer whose answers were lost would send their records again.
"""

from __future__ import annotations

from functools import partial

import pytest
from gateway_svc.requests.admission import Admission

from tests.wire.conftest import Running, StartBroker, Wire, batch, fetch_request, produce, produce_request, until
from tests.wire.rights.test_table import Prefixed


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
