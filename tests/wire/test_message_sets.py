"""Produce 0-2 and Fetch 0-3 as frames: converted, refused and skipped records, in this order."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from gateway_svc.fetching.conversions import Allowance
from gateway_svc.fetching.message_sets import (
    INLINE_BYTES_MAX,
    PRODUCED_BYTES_MAX,
    PRODUCED_RECORDS_MAX,
    SET_BYTES_MAX,
    batches_of,
    is_quick,
)
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.records.batch import read_batch_header
from protocol_lib.records.compression import Codec
from protocol_lib.records.legacy import Message, build_message_set, read_message_set, read_messages, write_message
from protocol_lib.records.record import Record, read_records
from storage_svc.log.partition.transaction_end import end_transaction

from tests.wire.conftest import Running, Wire, batch, produce, produce_request

TIME = 1_700_000_000_000


def message_set(*values: bytes, magic: int = 1, codec: Codec = Codec.NONE, **options: Any) -> bytes:
    records = [Record(offset, TIME + offset, b"k", value) for offset, value in enumerate(values)]
    return build_message_set(records, magic=magic, codec=codec, **options)


def fetch_request(offset: int, *, max_bytes: int = 1 << 20, wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=(FetchTopic(topic="single", partitions=(partition,)),))


async def fetched(wire: Wire, version: int, request: FetchRequest) -> tuple[int, list[tuple[int, bytes | None]]]:
    """Return (error code, (offset, value) of the records) of the one partition."""
    response = await wire.call(1, version, request)
    (partition,) = response.responses[0].partitions
    return partition.error_code, [(each.offset, each.value) for each in read_message_set(partition.records)]


async def produced(wire: Wire, version: int, records: bytes, **options: int) -> tuple[int, int]:
    response = await wire.call(0, version, produce_request("single", records, **options))
    (partition,) = response.responses[0].partition_responses
    return partition.error_code, partition.base_offset


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
async def test_the_log_holds_record_batches_only(broker: Running, magic: int, codec: Codec) -> None:
    wire = await broker.connect()
    values = [b"%d" % number for number in range(5)]
    assert await produced(wire, 2, message_set(*values, magic=magic, codec=codec), acks=-1) == (0, 0)
    assert await produced(wire, 0, message_set(b"more", magic=magic, codec=codec), acks=-1) == (0, 5)
    stored = broker.core.logs.logs["single", 0].read_batches(0, 1 << 20)
    header = read_batch_header(stored)
    assert (header.magic, header.codec, header.records_count, header.producer_id) == (2, codec, 5, -1)
    records = list(read_records(stored[: header.size]))
    times = [TIME + offset if magic else -1 for offset in range(5)]
    assert records == [Record(n, time, b"k", value) for n, (time, value) in enumerate(zip(times, values, strict=True))]
    for version in (0, 1, 2, 3):
        assert await fetched(wire, version, fetch_request(2)) == (
            0,
            [(n, values[n]) for n in range(0 if codec else 2, 5)] + [(5, b"more")],
        )


async def test_versions_and_formats_of_answers(broker: Running) -> None:
    wire = await broker.connect()
    await produce(wire, "single", batch(b"a", codec=Codec.GZIP), acks=-1)
    for version, magic in ((0, 0), (1, 0), (2, 1), (3, 1)):
        response = await wire.call(1, version, fetch_request(0))
        (wrapper,) = read_messages(response.responses[0].partitions[0].records)
        assert (wrapper.magic, wrapper.codec, wrapper.offset) == (magic, Codec.GZIP, 0)


REFUSED: dict[str, tuple[bytes, int]] = {
    "wrong crc": (flipped(message_set(b"a")), 2),
    "cut off": (message_set(b"a")[:-1], 2),
    "format 3": (message_set(b"a")[:16] + b"\3" + message_set(b"a")[17:], 2),
    "both formats": (message_set(b"a", magic=0) + message_set(b"b", magic=1), 87),
    "compressed beside others": (message_set(b"a") + message_set(b"b", codec=Codec.GZIP), 87),
    "wrapper without messages": (
        write_message(Message(0, 1, Codec.GZIP, TIME, None, zlib.compress(b"", wbits=31))),
        87,
    ),
    "log append time by the producer": (message_set(b"a", log_append_time=TIME), 32),
    "larger than max.message.bytes": (message_set(bytes(600_000), bytes(600_000)), 10),
    "larger than is converted": (message_set(*[bytes(1 << 20)] * 16), 10),
    "decompresses to more than is converted": (message_set(*[bytes(1 << 20)] * 16, codec=Codec.GZIP), 10),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refused(broker: Running, log_lines: Callable[[], list[Any]], case: str) -> None:
    records, code = REFUSED[case]
    wire = await broker.connect()
    assert await produced(wire, 1, records) == (code, -1)
    assert len(log_lines()) == 1
    assert broker.core.logs.logs["single", 0].log_end_offset == 0
    response = await wire.call(0, 1, produce_request("nowhere", records))
    assert response.responses[0].partition_responses[0].error_code == 3  # which comes first


async def test_an_empty_set_is_appended_in_vain(broker: Running) -> None:
    wire = await broker.connect()
    assert await produced(wire, 2, b"") == (0, -1)
    response = await wire.call(0, 2, produce_request("nowhere", b""))
    assert response.responses[0].partition_responses[0].error_code == 3


async def test_a_refused_set_with_acks_0_closes_the_connection(broker: Running) -> None:
    wire = await broker.connect()
    wire.send(0, 1, produce_request("single", message_set(b"a"), acks=0))
    assert await produced(wire, 1, message_set(b"b")) == (0, 1)
    wire.send(0, 1, produce_request("single", flipped(message_set(b"a")), acks=0))
    assert await wire.closed() == b""


async def test_pipelined_sets_keep_their_order_though_the_first_takes_longer(broker: Running) -> None:
    wire = await broker.connect()
    slow = message_set(*[os.urandom(20) for _ in range(20_000)], codec=Codec.GZIP)
    quick = message_set(b"quick")
    assert (is_quick([slow]), is_quick([quick])) == (False, True)
    wire.send(0, 2, produce_request("single", slow, acks=-1))
    wire.send(0, 2, produce_request("single", quick, acks=-1))
    wire.send(0, 7, produce_request("single", batch(b"new"), acks=-1))
    answers = [await wire.receive() for _ in range(3)]
    offsets = [each.responses[0].partition_responses[0].base_offset for _, each in answers]
    assert offsets == [0, 20_000, 20_001]


async def test_the_event_loop_goes_on_during_a_conversion(broker: Running) -> None:
    old, new = await broker.connect(), await broker.connect()
    old.send(0, 2, produce_request("single", message_set(*[os.urandom(20) for _ in range(20_000)]), acks=-1))
    await asyncio.sleep(0)
    assert await produce(new, "orders", batch(b"new"), acks=-1) == (0, 0)
    _, answer = await old.receive()
    assert answer.responses[0].partition_responses[0].base_offset == 0


async def test_every_version_of_fetch_reads_every_codec(broker: Running) -> None:
    """Kafka 4 sends zstd to clients that may not know it (Fetch 4 to 9), also of a topic whose own codec it is."""
    log = broker.core.logs.logs["single", 0]
    wire = await broker.connect()
    offset = 0
    for topic_codec, codec in product(("producer", "zstd"), Codec):
        log.configure(replace(log.config, compression_type=topic_codec))
        assert await produce(wire, "single", batch(b"a", b"b", codec=codec), acks=-1) == (0, offset)
        stored = Codec.ZSTD if topic_codec == "zstd" else codec
        for version in range(10):
            response = await wire.call(1, version, fetch_request(offset, max_bytes=1))
            (partition,) = response.responses[0].partitions
            records = bytes(partition.records)
            assert partition.error_code == 0
            if version < 4:
                found = list(read_message_set(records))
                shown = Codec.GZIP if stored is Codec.ZSTD else stored
                assert {each.codec for each in read_messages(records)} == {shown}
            else:
                found = list(read_records(records))
                assert read_batch_header(records).codec == stored
            assert [(each.offset, each.value) for each in found] == [(offset, b"a"), (offset + 1, b"b")]
        offset += 2


async def test_a_consumer_is_led_past_what_it_cannot_be_shown(broker: Running) -> None:
    """Transaction markers are no records: an old consumer would ask for the first one for ever."""
    wire = await broker.connect()
    log = broker.core.logs.logs["single", 0]
    for sequence in range(3):
        records = batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        assert log.append(records).error_code == 0
        assert end_transaction(log, 7, 0, commit=True, coordinator_epoch=0).error_code == 0
    await log.durable(6)
    assert await fetched(wire, 2, fetch_request(0)) == (0, [(0, b"0"), (2, b"1"), (4, b"2")])
    assert await fetched(wire, 2, fetch_request(1, max_bytes=1)) == (0, [(2, b"1")])
    wire.send(1, 2, fetch_request(5, wait_ms=10_000))
    await produce(await broker.connect(), "single", batch(b"last"), acks=-1)
    _, response = await wire.receive()
    assert [each.offset for each in read_message_set(response.responses[0].partitions[0].records)] == [6]
    assert await fetched(wire, 2, fetch_request(7, wait_ms=1)) == (0, [])


def test_what_is_converted_at_once() -> None:
    small = message_set(bytes(INLINE_BYTES_MAX // 2 - 50))
    assert is_quick([small, small])
    assert not is_quick([small, small, small])
    assert not is_quick([message_set(b"a", codec=Codec.GZIP)])


def test_a_record_batch_in_an_old_request_stays_as_it_is() -> None:
    new = batch(b"a")
    allowance = Allowance(PRODUCED_BYTES_MAX, PRODUCED_RECORDS_MAX)
    assert batches_of([new, message_set(b"a")], allowance, {})[0][0] is new
    assert batches_of([bytes(SET_BYTES_MAX + 1)], allowance, {})[1][0].error_code == 10
