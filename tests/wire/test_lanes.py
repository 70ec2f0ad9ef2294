"""Fetches of a gateway that cannot see storage's files: over lanes, and by value where a lane cannot be had."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gateway_svc.storage import lanes as lanes_module
from gateway_svc.storage.lanes import LaneAnswer, Lanes
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from service_chassis.grpc_server import Server, ServerCall
from service_chassis.http2.pipes import MemoryPipe
from storage_svc.rpc import slice_sender
from storage_svc.rpc.slice_sender import SliceSender

from tests.wire.conftest import Running, Wire, batch, fetch_request, produce, until
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

pytestmark = pytest.mark.event_loops("uvloop")

MIB = 1 << 20
#: More than the sockets and pipes between storage and a client hold.
COUNT = 24


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[RemoteStorage]:
    remote = RemoteStorage(tmp_path)
    await remote.start()
    yield remote
    await remote.stop()


class Rig:
    """A gateway with lanes, and 24 MB of records."""

    def __init__(self, broker: Running, server: Server, lanes: Lanes, records: bytes) -> None:
        self.broker = broker
        #: Storage's.
        self.server = server
        self.lanes = lanes
        self.records = records

    @property
    def outcomes(self) -> dict[str, int]:
        return {name: count for name, count in self.broker.gateway.metrics.lane_reads.items() if count}

    async def fetch(self, wire: Wire, *, wait_ms: int = 500, max_bytes: int = 1 << 26, version: int = 11) -> bytes:
        """Return the records of one partition, once they were checked."""
        answer = await wire.call(1, version, fetch_request("single", 0, max_bytes=max_bytes, wait_ms=wait_ms))
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code, partition.high_watermark) == (0, COUNT)
        records = bytes(partition.records)
        assert self.records.startswith(records)
        return records

    async def stuck(self) -> Wire:
        """Return a connection whose client has sent a fetch, and reads nothing of its answer."""
        wire = await self.broker.connect()
        wire.writer.transport.pause_reading()
        sent = self.outcomes.get("sent", 0)
        wire.send(1, 11, fetch_request("single", 0, wait_ms=500))
        await until(lambda: self.outcomes.get("sent", 0) == sent + 1)
        await asyncio.sleep(0.05)
        return wire

    async def descriptors_at_rest(self) -> list[str]:
        """Return what is open without clients and lanes, once each part was used: it then keeps its epoll object."""
        stuck = await self.stuck()
        await self.read_on(stuck)
        stuck.writer.transport.abort()
        await until(lambda: self.broker.gateway.metrics.connections == 0)
        for lane in list(self.lanes._lanes):
            lane.close("unused")
        await until(lambda: len(self.server._connections) == 1)
        gc.collect()
        await asyncio.sleep(0.01)
        return descriptors()

    async def read_on(self, wire: Wire) -> bytes:
        wire.writer.transport.resume_reading()
        _, answer = await wire.receive()
        return bytes(answer.responses[0].partitions[0].records)


@contextlib.asynccontextmanager
async def rig_of(storage: RemoteStorage, **settings: Any) -> AsyncIterator[Rig]:
    async with gateway_of(storage, "one", **settings) as broker:
        wire = await broker.connect()
        records = batch(os.urandom(MIB - 1000))
        for number in range(COUNT):
            acks = -1 if number == COUNT - 1 else 1
            assert await produce(wire, "single", records, acks=acks) == (0, number)
        await wire.close()
        assert storage.core is not None
        path = storage.settings.data_dir / storage.core.logs.logs["single", 0].segments.active.relative_path
        lanes = broker.gateway._parts.storage.lanes
        assert isinstance(lanes, Lanes)
        yield Rig(broker, storage.server._server, lanes, path.read_bytes())
        lanes.check_invariants()


@pytest.fixture
async def rig(storage: RemoteStorage) -> AsyncIterator[Rig]:
    async with rig_of(storage) as rig:
        yield rig


def descriptors() -> list[str]:
    """Return what is open, sorted: sockets and pipes by their kind."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            found.append(os.readlink(f"/proc/self/fd/{name}").partition(":[")[0])
    return sorted(found)


async def test_large_fetches_go_over_lanes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One lane serves one fetch after the other, of all versions and sizes, and the gateway holds no records."""
    held: list[int] = []
    begun = Lanes._begun
    monkeypatch.setattr(Lanes, "_begun", lambda *given: (begun(*given), held.append(rig.broker.gateway.memory_held))[0])
    wire = await rig.broker.connect()
    for version, wait_ms, max_bytes in ((4, 500, MIB), (11, 500, 8 * MIB), (12, 0, 2 * MIB), (11, 500, 1 << 26)):
        records = await rig.fetch(wire, version=version, wait_ms=wait_ms, max_bytes=max_bytes)
        assert len(records) == len(rig.records) // COUNT * min(COUNT, max_bytes // MIB)
    assert (rig.outcomes, len(rig.lanes)) == ({"sent": 4}, 1)
    assert max(held) < 64 << 10


async def test_small_fetches_do_without(rig: Rig) -> None:
    wire = await rig.broker.connect()
    records = batch(bytes(50_000))
    assert await produce(wire, "orders", records, acks=-1) == (0, 0)
    for wait_ms in (0, 500):
        answer = await wire.call(1, 11, fetch_request("orders", 0, wait_ms=wait_ms))
        assert len(answer.responses[0].partitions[0].records) == len(records)
    assert rig.outcomes == {"small": 1}  # the one that did not wait; the other has its records in the first answer


async def test_partitions_and_what_lies_between_them_come_in_order(rig: Rig) -> None:
    wire = await rig.broker.connect()
    sent = {}
    for index, size in enumerate((200_000, 10, 300_000)):
        sent[index] = batch(os.urandom(size))
        assert (await produce(wire, "orders", sent[index], partition=index, acks=-1))[0] == 0
    sent[2] += batch(b"second")
    assert (await produce(wire, "orders", batch(b"second"), partition=2, acks=-1)) == (0, 1)
    partitions = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=MIB) for n in (2, 1, 0)]
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=MIB, session_epoch=0,
        topics=(FetchTopic(topic="orders", partitions=tuple(partitions)),),
    )  # fmt: skip
    answer = await wire.call(1, 11, request)
    found = {each.partition_index: bytes(each.records) for each in answer.responses[0].partitions}
    assert {index: len(records) for index, records in found.items()} == {n: len(each) for n, each in sent.items()}
    assert all(found[index].startswith(batch_start(records)) for index, records in sent.items())
    assert rig.outcomes == {"sent": 1}
    assert answer.session_id != 0


def batch_start(records: bytes) -> bytes:
    return records[:8]


@pytest.mark.parametrize("gateway_record_lanes", [1])
async def test_fetches_without_a_free_lane_are_read_by_value(storage: RemoteStorage, gateway_record_lanes: int) -> None:
    """A client that reads nothing holds the only lane; it gets all of its answer later."""
    async with rig_of(storage, gateway_record_lanes=gateway_record_lanes) as rig:
        stuck = await rig.stuck()
        other = await rig.broker.connect()
        assert len(await rig.fetch(other)) >= 8 * (MIB - 1000)
        assert rig.outcomes == {"sent": 1, "busy": 1}
        assert await rig.read_on(stuck) == rig.records
        await rig.fetch(other)
        assert (rig.outcomes, len(rig.lanes)) == ({"sent": 2, "busy": 1}, 1)


async def test_a_system_without_splice(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.lanes, "_new_pipe", MemoryPipe)
    wire = await rig.broker.connect()
    assert await rig.fetch(wire) == rig.records
    stuck = await rig.stuck()
    assert await rig.read_on(stuck) == rig.records


@pytest.mark.parametrize("is_cut", [False, True])
async def test_records_to_convert_come_over_a_lane(rig: Rig, monkeypatch: pytest.MonkeyPatch, is_cut: bool) -> None:
    """If the lane breaks in the middle, they are read by value: the old client has seen nothing of it."""
    wire = await rig.broker.connect()

    async def fetched() -> bytes:
        answer = await wire.call(1, 3, fetch_request("single", 0, max_bytes=6 * MIB, wait_ms=500))
        return bytes(answer.responses[0].partitions[0].records)

    received: list[int] = []
    receive = LaneAnswer.receive

    def cut(answer: LaneAnswer, into: memoryview) -> int:
        received.append(receive(answer, into))
        if is_cut and sum(received) > MIB:
            raise ConnectionError("cut off")
        return received[-1]

    monkeypatch.setattr(LaneAnswer, "receive", cut)
    records = await fetched()
    assert len(records) > 5 * MIB
    assert (sum(received) == len(rig.records) // COUNT * 6) == (not is_cut)
    assert (rig.outcomes, len(rig.lanes)) == ({"sent": 1}, 0 if is_cut else 1)
    assert rig.broker.gateway.memory_held == 0
    monkeypatch.setattr(Lanes, "is_usable", False)
    assert await fetched() == records
    assert rig.outcomes == {"sent": 1}


async def test_clients_that_leave_take_their_lanes_with_them(rig: Rig) -> None:
    """In the middle of an answer, and between the question and the answer. No descriptor is left."""
    before = await rig.descriptors_at_rest()
    for _ in range(3):
        stuck = await rig.stuck()
        assert len(rig.lanes) == 1
        stuck.writer.transport.abort()
        await until(lambda: len(rig.lanes) == 0)
    for turns in range(12):
        wire = await rig.broker.connect()
        wire.send(1, 11, fetch_request("single", 0, wait_ms=500))
        for _ in range(turns):
            await asyncio.sleep(0)
        wire.writer.transport.abort()
    await rig.descriptors_at_rest()
    await until(lambda: not Counter(descriptors()) - Counter(before))
    rig.lanes.check_invariants()
    assert await rig.fetch(await rig.broker.connect()) == rig.records


@pytest.mark.parametrize("is_killed_first", [False, True])
async def test_a_storage_that_dies(rig: Rig, storage: RemoteStorage, is_killed_first: bool) -> None:
    """In the middle of an answer: the connection is closed. Before it: the client gets an answer, and asks again."""
    wire = await rig.broker.connect()
    await rig.fetch(wire, max_bytes=MIB)
    if is_killed_first:
        for connection in list(rig.server._connections):
            connection.transport.abort()
        answer = await wire.call(1, 11, fetch_request("single", 0, wait_ms=100))
        assert answer.responses[0].partitions[0].error_code in (0, 6)
    else:
        stuck = await rig.stuck()
        for connection in list(rig.server._connections):
            connection.transport.abort()
        stuck.writer.transport.resume_reading()
        assert len(await stuck.closed()) < len(rig.records)
    await until(lambda: rig.broker.gateway._parts.storage.records._records.connected.is_set())  # type: ignore[attr-defined]
    assert await rig.fetch(wire) == rig.records


async def test_a_topic_that_is_deleted_between_a_read_and_its_records(
    rig: Rig, storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is told what it would have been told later. An answer that has begun is sent to its end."""
    stuck = await rig.stuck()
    read = Lanes.read

    def deleted_before(lanes: Lanes, *given: Any) -> Any:
        assert storage.core is not None
        storage.core.logs.delete("single", 0)
        return read(lanes, *given)

    monkeypatch.setattr(Lanes, "read", deleted_before)
    wire = await rig.broker.connect()
    answer = await wire.call(1, 11, fetch_request("single", 0, wait_ms=500))
    assert answer.responses[0].partitions[0].error_code == 3
    assert rig.outcomes == {"sent": 1, "gone": 1}
    assert await rig.read_on(stuck) == rig.records
    assert len(rig.lanes) == 2


async def test_a_storage_that_does_not_promise_the_records(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked by value after a while, and no lane is asked for a while."""
    monkeypatch.setattr(lanes_module, "HEAD_MAX_S", 0.1)

    async def silent(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(SliceSender, "_send", silent)
    wire = await rig.broker.connect()
    assert await rig.fetch(wire)
    assert await rig.fetch(wire)
    assert (rig.outcomes, len(rig.lanes)) == ({"failed": 1, "busy": 1}, 0)


async def test_a_storage_that_stops_in_the_middle(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it for ever: the client's connection is closed."""
    monkeypatch.setattr(lanes_module, "SILENCE_MAX_S", 0.1)
    write_file = ServerCall.write_file

    async def stops(call: ServerCall, *given: Any) -> None:
        await write_file(call, *given)
        await asyncio.Event().wait()

    monkeypatch.setattr(ServerCall, "write_file", stops)
    wire = await rig.broker.connect()
    wire.send(1, 11, fetch_request("single", 0, wait_ms=500))
    received = await wire.closed()
    assert slice_sender.CHUNK_BYTES_MAX < len(received) < len(rig.records)
    assert len(rig.lanes) == 0


async def test_a_client_that_reads_slowly_is_not_taken_for_a_silent_storage(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_module, "SILENCE_MAX_S", 0.05)
    stuck = await rig.stuck()
    await asyncio.sleep(3 * lanes_module._CHECK_S)
    assert await rig.read_on(stuck) == rig.records


async def test_lanes_that_nobody_uses_are_closed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await rig.descriptors_at_rest()
    wire = await rig.broker.connect()
    await rig.fetch(wire)
    assert len(rig.lanes) == 1
    monkeypatch.setattr(lanes_module, "UNUSED_MAX_S", 0.0)
    await until(lambda: len(rig.lanes) == 0)
    await wire.close()
    await rig.descriptors_at_rest()
    await until(lambda: not Counter(descriptors()) - Counter(before))
    assert await rig.fetch(await rig.broker.connect()) == rig.records
