"""A quota is one function of request, answer and time: its delay is in the answer, and the gateway holds to it.

The policy is a double, which says 200 ms. It stands for the file that quotas take.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest
from gateway_svc.requests.admission import Admission
from gateway_svc.requests.call import Call
from gateway_svc.requests.resources import Operation, ResourceType
from protocol_lib.api import ApiKey
from support.certificates import Authority
from support.late import aiokafka

from tests.wire.conftest import Running, StartBroker, Wire, batch, fetch_request, produce, produce_request, until
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

THROTTLE_MS = 200


class Quota:
    """A `requests.admission.Policy` that throttles some APIs, and notes what it is asked for."""

    decides_access = False
    may_lapse = False
    throttles = True
    is_current = True

    def __init__(self) -> None:
        self.throttled: set[int] = {ApiKey.PRODUCE, ApiKey.FETCH}
        self.asked: list[tuple[int, int, int, int]] = []

    def attach(self, changed: object) -> None: ...

    def may(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str | None) -> bool:
        return True

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> int | None:
        return None

    def throttle_ms(self, call: Call, size: int) -> int:
        assert 0 <= time.perf_counter() - call.started_at < 60
        if call.route.api_key not in self.throttled:
            return 0
        self.asked.append((call.route.api_key, call.count, call.size, size))
        return THROTTLE_MS


@pytest.fixture
def quota() -> Quota:
    return Quota()


@pytest.fixture(params=["combined", "separate"])
async def broker(
    request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path, quota: Quota
) -> AsyncIterator[Running]:
    admission = partial(Admission, policy=quota)
    if request.param == "combined":
        yield await start_broker(admission=admission)
        return
    storage = RemoteStorage(tmp_path)
    await storage.start()
    async with gateway_of(storage, "one", admission=admission) as running:
        yield running
    await storage.stop()


@contextlib.contextmanager
def lasting(least_s: float) -> Iterator[None]:
    """Fail if the block takes less time."""
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin >= least_s


async def test_a_client_that_does_not_wait_is_served_no_sooner(broker: Running, quota: Quota) -> None:
    """The gateway or the socket holds its next requests, also after one without an answer."""
    wire = await broker.connect()
    with lasting(0.39):
        with lasting(0.19):
            first = await wire.call(0, 7, produce_request("single", batch(b"x")))
            wire.send(0, 7, produce_request("single", batch(b"x"), acks=0))
            wire.send(0, 7, produce_request("single", batch(b"x" * 100_000), acks=-1))
            del wire.sent[2]
            _, second = await wire.receive()
        assert [first.throttle_time_ms, second.throttle_time_ms] == [THROTTLE_MS, THROTTLE_MS]
        assert len(quota.asked) == 3
        wire.send(1, 11, fetch_request("single", 0, wait_ms=500))
        frame = await wire.receive_frame()
    assert quota.asked[-1][3] == len(frame), "the policy knows the size of the answer"
    assert frame[4:8] == THROTTLE_MS.to_bytes(4, "big")


async def test_a_client_of_tls_is_served_no_sooner_and_all_its_bytes_later(
    start_broker: StartBroker, quota: Quota, tmp_path: Path
) -> None:
    """Bytes that arrive in this time are kept encrypted, and counted for all wires of the listener."""
    authority = Authority(tmp_path)
    settings = authority.settings(authority.issue("server"))
    broker = await start_broker(admission=partial(Admission, policy=quota), **settings)
    host, port = broker.address
    made = await asyncio.open_connection(host, port, ssl=authority.trust(), server_hostname="localhost")
    wire = Wire(*made)
    with lasting(0.39):  # those that are in service together are throttled together
        for _ in range(6):
            wire.send(0, 7, produce_request("single", batch(b"x" * 100_000)))
        answers = [(await wire.receive())[1] for _ in range(6)]
    assert [each.responses[0].partition_responses[0].base_offset for each in answers] == [*range(6)]
    assert {each.throttle_time_ms for each in answers} == {THROTTLE_MS}
    (connection,) = broker.gateway._connections._open
    tls = connection._wire  # type: ignore[attr-defined]
    await until(lambda: not tls._is_paused)
    assert (tls._rest, tls._end.backlog, broker.gateway.memory_held) == (b"", 0, 0)
    await wire.close()


async def test_a_run_is_throttled_as_one(broker: Running, quota: Quota) -> None:
    quota.throttled.clear()
    wire = await broker.connect()
    for offset in range(2):
        assert await produce(wire, "single", batch(b"x")) == (0, offset)
    quota.throttled.add(ApiKey.PRODUCE)
    for _ in range(5):
        wire.send(0, 7, produce_request("single", batch(b"x")))
    answers = [(await wire.receive())[1] for _ in range(5)]
    offsets = [each.responses[0].partition_responses[0].base_offset for each in answers]
    assert (offsets, {each.throttle_time_ms for each in answers}) == ([2, 3, 4, 5, 6], {THROTTLE_MS})
    assert sum(count for _, count, _, _ in quota.asked) == 5


async def test_a_throttled_client_that_leaves_costs_nothing_and_one_that_stays_does_not_delay_a_stop(
    start_broker: StartBroker, quota: Quota, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(admission=partial(Admission, policy=quota))
    monkeypatch.setattr(f"{__name__}.THROTTLE_MS", 30_000)
    gone, stays = await broker.connect(), await broker.connect()
    for wire in (gone, stays):
        await produce(wire, "single", batch(b"x"))
        wire.send(0, 7, produce_request("single", batch(b"x" * 10_000)))
    await until(lambda: broker.gateway.memory_held == 0)
    gone.writer.transport.abort()
    await asyncio.wait_for(broker.gateway.stop(), 10)
    assert broker.gateway.metrics.connections == 0


async def test_a_stock_client_waits(broker: Running, quota: Quota) -> None:
    options = {"bootstrap_servers": f"localhost:{broker.address[1]}"}
    async with aiokafka.AIOKafkaProducer(**options) as producer:
        with lasting(0.39):
            for number in range(3):
                await producer.send_and_wait("single", b"%d" % number)
    async with aiokafka.AIOKafkaConsumer("single", **options, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(60):
            assert [(await consumer.getone()).value for _ in range(3)] == [b"0", b"1", b"2"]
