"""The cost of old clients and of reads by value: before any check, for clients that are gone, and in memory."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from gateway_svc.fetching import message_sets, shown_answers
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.records.compression import Codec
from protocol_lib.records.legacy import Message, build_message_set, write_message
from protocol_lib.records.record import Record
from storage_svc.log.segment.segment import Segment

from tests.wire.conftest import Running, StartBroker, batch, produce, produce_request, until
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

MIB = 1 << 20


def many(count: int) -> bytes:
    """Return a wrapper of empty messages, not quick enough to be converted on the event loop."""
    return build_message_set((Record(n, -1, None, None) for n in range(count)), magic=0, codec=Codec.GZIP)


def waiting(offset: int, size: int = 60 * MIB, wait_ms: int = 2**31 - 1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
    topics = (FetchTopic(topic="single", partitions=(partition,)),)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=2**31 - 1, max_bytes=size, topics=topics)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the sets whose conversion began."""
    sizes: list[int] = []
    up_convert = message_sets.up_convert
    monkeypatch.setattr(
        message_sets, "up_convert", lambda given, **options: sizes.append(len(given)) or up_convert(given, **options)
    )
    return sizes


async def test_sets_that_nobody_may_append_are_not_converted(broker: Running, opened: list[int]) -> None:
    wire, small = await broker.connect(), many(3)
    too_large = write_message(Message(0, 1, Codec.GZIP, -1, None, bytes(2 * MIB)))
    for topic, partition, records, code in (
        ("nowhere", 0, small, 3),
        ("single", 1, small, 3),
        ("single", -1, small, 3),
        ("single", 0, too_large, 10),
    ):
        response = await wire.call(0, 2, produce_request(topic, records, partition=partition))
        assert response.responses[0].partition_responses[0].error_code == code
    assert opened == []
    response = await wire.call(0, 2, produce_request("single", small))
    assert response.responses[0].partition_responses[0].base_offset == 0
    assert opened == [len(small)]


async def test_conversions_end_with_their_client(
    broker: Running, opened: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first of them begins, and none appends."""
    converted, may_convert = message_sets.up_convert, threading.Event()
    monkeypatch.setattr(
        message_sets, "up_convert", lambda given, **options: may_convert.wait(30) and converted(given, **options)
    )
    wires = [await broker.connect() for _ in range(5)]
    for wire in wires:
        wire.send(0, 2, produce_request("single", many(200_000)))
    await until(lambda: broker.gateway.conversion_count == 5)
    for wire in wires:
        await wire.close()
    await until(lambda: broker.gateway.metrics.connections == 0)
    may_convert.set()
    await until(lambda: broker.gateway.conversion_count == 0)
    assert len(opened) == 1
    assert broker.core.logs.logs["single", 0].log_end_offset == 0


async def test_a_stop_does_not_wait_for_conversions(start_broker: StartBroker, opened: list[int]) -> None:
    broker = await start_broker()
    wire = await broker.connect()
    wire.send(0, 2, produce_request("single", many(200_000)))
    await until(lambda: bool(opened))
    await broker.gateway.stop()
    await until(lambda: broker.gateway.conversion_count == 0)
    assert broker.core.logs.logs["single", 0].log_end_offset == 0


@pytest.mark.parametrize("version", [2, 11])
async def test_parked_reads_by_value_hold_no_records(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Sixty fetches of 5 MB that wait for more: nothing is read and nothing counted until they are answered."""
    broker = await start_broker(gateway_data_dir="")
    wire = await broker.connect()
    for _ in range(5):
        await produce(wire, "single", batch(bytes(MIB - 1000)), acks=-1)
    read: list[int] = []
    of_segment = Segment.read
    monkeypatch.setattr(Segment, "read", lambda segment, *a: read.append(a[1]) or of_segment(segment, *a))
    wires = [await broker.connect() for _ in range(60)]
    for number, each in enumerate(wires):  # not equal, or they would share one read
        each.send(1, version, waiting(0, 60 * MIB + number))
    await until(lambda: broker.core.data.parked_read_count == 60)
    assert read == []
    assert broker.gateway.memory_held < 60 * 200
    for each in wires:
        await each.close()
    await until(lambda: broker.core.data.parked_read_count == 0)
    assert (read, broker.gateway.memory_held) == ([], 0)


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["combined", "separate"])
async def test_parked_reads_by_value_take_no_memory(start_broker: StartBroker, tmp_path: Path, layout: str) -> None:
    """The process holds both services and all clients: the reads would take 420 MB."""
    async with AsyncExitStack() as stack:
        if layout == "combined":
            broker = await start_broker(gateway_data_dir="")
        else:
            remote = RemoteStorage(tmp_path)
            await remote.start()
            stack.push_async_callback(remote.stop)
            broker = await stack.enter_async_context(gateway_of(remote, "one"))
        wire = await broker.connect()
        for _ in range(7):
            await produce(wire, "single", batch(bytes(MIB - 1000)), acks=-1)
        wires = [await broker.connect() for _ in range(60)]
        before = resident_kib()
        for number, each in enumerate(wires):
            each.send(1, 2 if number % 2 else 11, waiting(0, 60 * MIB + number))
        await until(lambda: broker.core.data.parked_read_count == 60)
        assert resident_kib() - before < 16 * 1024
        for each in wires:
            await each.close()
        await until(lambda: broker.core.data.parked_read_count == 0)
        assert resident_kib() - before < 16 * 1024


@pytest.mark.parametrize("version", [2, 11])
async def test_answers_by_value_stay_within_the_memory_for_answers(start_broker: StartBroker, version: int) -> None:
    """Forty clients that do not read: storage reads no more than there is room for."""
    limit = 16 * MIB
    broker = await start_broker(gateway_data_dir="", gateway_memory_bytes=limit)
    wire = await broker.connect()
    for _ in range(5):
        await produce(wire, "single", batch(bytes(MIB - 1000)), acks=-1)
    wires = [await broker.connect() for _ in range(40)]
    held: list[int] = []
    for each in wires:
        each.writer.transport.pause_reading()
        each.send(1, version, waiting(0, wait_ms=100))
    for _ in range(300):
        await asyncio.sleep(0.01)
        held.append(broker.gateway.memory_held)
    assert MIB < max(held) <= limit + MIB  # one batch is sent whole
    for each in wires:
        each.writer.transport.abort()
    await until(lambda: broker.gateway.memory_held == 0)


async def test_answers_of_old_clients_have_one_memory_together(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty fetches of 5 MB, due at once, of clients that do not read; others wait for those, and are served then."""
    monkeypatch.setattr(shown_answers, "SHOWN_BYTES_MAX", 16 * MIB)
    monkeypatch.setattr(shown_answers, "ROOM_MIN", 6 * MIB)
    broker = await start_broker(gateway_data_dir="")
    wire = await broker.connect()
    for _ in range(5):
        await produce(wire, "single", batch(bytes(MIB - 1000)), acks=-1)
    wires = [await broker.connect() for _ in range(60)]
    for number, each in enumerate(wires):
        each.writer.transport.pause_reading()
        each.send(1, 2, waiting(0, 60 * MIB + number, wait_ms=100))
    held = []
    for _ in range(150):
        await asyncio.sleep(0.01)
        held.append(broker.gateway.memory_held)
    assert 2 * MIB < max(held) <= 17 * MIB
    for each in wires:
        each.writer.transport.abort()
    await until(lambda: broker.gateway.memory_held == 0)
    response = await wire.call(1, 2, waiting(0, wait_ms=100))
    assert len(response.responses[0].partitions[0].records) > 4 * MIB


@pytest.mark.parametrize("version", [2, 11])
async def test_a_fetch_without_waiting_is_read_by_value(start_broker: StartBroker, version: int) -> None:
    broker = await start_broker(gateway_data_dir="")
    wire = await broker.connect()
    await produce(wire, "single", batch(bytes(MIB - 1000)), acks=-1)
    for wait_ms in (0, 10):
        response = await wire.call(1, version, waiting(0, wait_ms=wait_ms))
        (partition,) = response.responses[0].partitions
        assert (partition.error_code, len(partition.records) > MIB - 1000) == (0, True)
    empty = await wire.call(1, version, waiting(1, wait_ms=0))
    assert len(empty.responses[0].partitions[0].records) == 0
    await until(lambda: broker.gateway.memory_held == 0)
