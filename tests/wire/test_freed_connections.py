"""A closed connection is freed at once, after any request: not when Python's collector comes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from gateway_svc.clients.connection import Connection
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.heartbeat import HeartbeatRequest

from tests.wire.conftest import Running, StartBroker, batch, fetch_request, produce, until
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of


@pytest.fixture
def before() -> Iterator[list[weakref.ref[Connection]]]:
    """Connections that earlier tests have left; the collector is off until the end of the test."""
    gc.collect()
    gc.disable()
    yield known_connections([])
    gc.enable()


def known_connections(but: Sequence[weakref.ref[Connection]]) -> list[weakref.ref[Connection]]:
    others = [each() for each in but]
    return [weakref.ref(each) for each in gc.get_objects() if type(each) is Connection and each not in others]


async def begun(count: int, but: Sequence[weakref.ref[Connection]]) -> list[weakref.ref[Connection]]:
    """Wait for exactly `count` connections that the gateway has accepted; return them."""
    await until(lambda: len(known_connections(but)) == count)
    return known_connections(but)


async def freed(connections: list[weakref.ref[Connection]]) -> bool:
    """Return whether the connections are freed soon: without the collector nothing else would free them."""
    for _ in range(1000):
        if not any(connection() for connection in connections):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_closed_connection_is_freed_at_once(broker: Running, before: list[weakref.ref[Connection]]) -> None:
    """The connection is freed after any request, also with answers under way, and not by Python's collector."""
    wire = await broker.connect()
    await wire.call(18, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    assert await produce(wire, "single", batch(b"x" * 900_000)) == (0, 0)
    for _ in range(2):
        await wire.call(1, 11, fetch_request("single", 0))
    await wire.call(12, 4, HeartbeatRequest(group_id="none", generation_id=0, member_id="m"))
    wire.send(1, 11, fetch_request("single", 1, wait_ms=60_000))
    reading_nothing = await broker.connect()
    reading_nothing.writer.transport.pause_reading()
    for _ in range(20):
        reading_nothing.send(1, 11, fetch_request("single", 0))
    await asyncio.sleep(0.1)
    connections = await begun(2, before)

    await wire.close()
    reading_nothing.writer.transport.abort()

    assert await freed(connections)


async def test_the_clock_that_ends_stuck_connections_keeps_none(
    start_broker: StartBroker, before: list[weakref.ref[Connection]]
) -> None:
    broker = await start_broker(frame_timeout_ms=100)  # it looks at them twice in this time
    wires = [await broker.connect() for _ in range(3)]
    for wire in wires:
        await wire.call(18, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    connections = known_connections(before)
    assert len(connections) == 3
    await asyncio.sleep(0.2)

    for wire in wires:
        await wire.close()

    assert await freed(connections)


@pytest.mark.event_loops("uvloop")
async def test_the_streams_to_storage_keep_none(tmp_path: Path, before: list[weakref.ref[Connection]]) -> None:
    """The last messages on them are not kept, although no further message replaces them."""
    remote = RemoteStorage(tmp_path)
    await remote.start()
    try:
        async with gateway_of(remote, "one") as broker:
            wires = [await broker.connect() for _ in range(3)]
            await produce(wires[0], "single", batch(b"x" * 900_000), acks=-1)
            await wires[1].call(1, 11, fetch_request("single", 0))
            await wires[2].call(12, 4, HeartbeatRequest(group_id="none", generation_id=0, member_id="m"))
            connections = known_connections(before)
            assert len(connections) == 3

            for wire in wires:
                await wire.close()

            assert await freed(connections)
    finally:
        await remote.stop()


async def test_a_connection_too_many_is_freed_at_once(
    start_broker: StartBroker, before: list[weakref.ref[Connection]]
) -> None:
    broker = await start_broker(max_connections=1)
    first = await broker.connect()
    connections = await begun(1, before)

    second = await broker.connect()
    assert await second.closed() == b""
    connections += known_connections([*before, *connections])
    await first.close()

    assert await freed(connections)


async def test_a_parked_fetch_is_finished_when_its_client_leaves(start_broker: StartBroker) -> None:
    broker = await start_broker(topics="parked:1")
    wire = await broker.connect()
    wire.send(1, 11, fetch_request("parked", 0, wait_ms=60_000))
    await until(lambda: broker.core.data.parked_read_count == 1)
    await wire.close()
    counted = broker.gateway.metrics.api("Fetch").answers
    await until(lambda: bool(counted))
    assert dict(counted) == {(11, "NETWORK_EXCEPTION"): 1}
