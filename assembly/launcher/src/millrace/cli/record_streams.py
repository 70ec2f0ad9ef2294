"""Standard input into a topic, and a topic onto standard output, by protocol_lib's clients."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from protocol_lib.client import Consumer, Producer, RecordMetadata, TopicPartition

from millrace.cli.errors import CliError
from millrace.cli.kafka import settings, started
from millrace.cli.record_format import NewRecord, ShownRecord, from_json, from_line

_READ_BYTES = 1 << 16
#: Longest line of standard input, above the largest record that a broker takes by default.
LINE_BYTES_MAX = 64 << 20
_BLOCK_MS = 10_000
_POLL_MS = 200


@dataclass(frozen=True)
class Production:
    """The topic of the lines, and how a line becomes a record."""

    topic: str
    key_delimiter: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    codec: str
    as_json: bool

    def record(self, line: bytes, number: int) -> NewRecord:
        return from_json(line, number) if self.as_json else from_line(line, self.key_delimiter)


@dataclass(frozen=True)
class Consumption:
    """The part of a topic to read."""

    topic: str
    #: "beginning", "end", "N", "-N" or "@TIME".
    offset: str
    partitions: tuple[int, ...]
    group: str | None
    to_end: bool
    count: int | None


async def produce_lines(address: str | None, given: Production) -> None:
    """Send each line of standard input. Raises CliError or KafkaError for the first record that is refused."""
    producer = Producer(settings(address), compression=given.codec, block_ms=_BLOCK_MS)
    await started(producer.start(), address)
    failures: list[BaseException] = []

    def done(sent: asyncio.Future[RecordMetadata]) -> None:
        if not sent.cancelled() and (error := sent.exception()) is not None:
            failures.append(error)

    try:
        number = 0
        async for line in _lines():
            number += 1
            record = given.record(line, number)
            sent = await producer.send(
                given.topic,
                record.value,
                key=record.key,
                partition=given.partition,
                headers=(*record.headers, *given.headers),
            )
            sent.add_done_callback(done)
            if failures:
                break
        await producer.flush()
    finally:
        await producer.close()
    if failures:
        raise failures[0]


async def _lines() -> AsyncIterator[bytes]:
    """Yield the lines of standard input without their ends, as they arrive."""
    rest = b""
    while part := await _part():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LINE_BYTES_MAX:
            raise CliError(f"a line of standard input is longer than {LINE_BYTES_MAX} bytes")
    if rest:
        yield rest


async def _part() -> bytes:
    """Return the next bytes of standard input. Ctrl-C ends the wait, which a thread would not notice."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(0, ready.set)
    except OSError:  # a file is always ready
        return os.read(0, _READ_BYTES)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(0)
    return os.read(0, _READ_BYTES)


async def consume_records(address: str | None, given: Consumption, shown: Callable[[ShownRecord], bytes]) -> None:
    """Write the records until the end that was chosen, or for ever."""
    reset = "earliest" if given.offset == "beginning" else "latest"
    consumer = Consumer(settings(address), group_id=given.group, auto_offset_reset=reset)
    await started(consumer.start(), address)
    try:
        if given.group is not None:
            await consumer.subscribe([given.topic])
            ends: dict[TopicPartition, int] = {}
        else:
            ends = await _assign(consumer, address, given)
        await _write(consumer, given, ends, shown)
    except OSError:
        # mutant: unwritten-not-committed
        await consumer.close(commit=False)  # records of the last poll are not written
        raise
    finally:
        await consumer.close()


async def _assign(consumer: Consumer, address: str | None, given: Consumption) -> dict[TopicPartition, int]:
    """Assign the partitions at their first offsets; return where each of them ends now."""
    from protocol_lib.client import Admin

    from millrace.cli.kafka import topic_partitions

    async with Admin(settings(address)) as admin:
        asked = await topic_partitions(admin, given.topic, list(given.partitions))
    await consumer.assign(asked)
    ends = await consumer.end_offsets(asked)
    begins = await consumer.beginning_offsets(asked)
    times = {}
    if given.offset.startswith("@"):
        times = await consumer.offsets_for_times(dict.fromkeys(asked, int(given.offset[1:])))
    for each in asked:
        first, end = begins[each], ends[each]
        if given.offset in ("beginning", "end"):
            start = first if given.offset == "beginning" else end
        elif given.offset.startswith("@"):
            found = times.get(each)
            start = end if found is None or found.offset < 0 else found.offset
        else:
            number = int(given.offset)
            start = max(first, end + number) if given.offset.startswith("-") else min(max(number, first), end)
        consumer.seek(each, start)
    return ends


async def _write(
    consumer: Consumer, given: Consumption, ends: dict[TopicPartition, int], shown: Callable[[ShownRecord], bytes]
) -> None:
    output, left = sys.stdout.buffer, given.count
    while True:
        if given.to_end and await _at_end(consumer, given, ends):
            return
        records = await consumer.poll(_POLL_MS, records_max=min(left or 500, 500))
        for record in records:
            if given.group is None and given.to_end and record.offset >= ends[_of(record)]:
                continue  # it came after the start
            output.write(shown(record))
        output.flush()
        if left is not None:
            left -= len(records)
            if left <= 0:
                return


async def _at_end(consumer: Consumer, given: Consumption, ends: dict[TopicPartition, int]) -> bool:
    if given.group is not None:
        assigned = consumer.assignment()
        if not assigned:
            return False
        ends = await consumer.end_offsets(assigned)
    return all([await consumer.position(each) >= end for each, end in ends.items()])


def _of(record: ShownRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
