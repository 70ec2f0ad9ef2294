"""One fetch: the request, and the records of its answer, without control records and aborted ones.

Only code that has a client of the gateway imports this module: aiokafka and protocol_lib take memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from aiokafka.protocol.fetch import FetchRequest
from protocol_lib.errors import DecodeError
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.header import BatchHeader, read_batch_header
from protocol_lib.records.record import Record, read_records

from admin_api.kafka_clients import KafkaClient

__all__ = ["Batch", "Fetched", "fetch"]

#: Bytes that a record batch may decompress to. A few kilobytes can claim to be gigabytes.
DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
#: Batches of more bytes are decompressed in a thread, a few at once: it may take longer than a turn of the loop.
_THREAD_BYTES = 32 * 1024
_threads = ThreadPoolExecutor(2, thread_name_prefix="decompress")


@dataclass(frozen=True, slots=True)
class Batch:
    """One record batch of an answer."""

    header: BatchHeader
    data: memoryview
    #: Whether consumers see its records: not those of a control batch or an aborted transaction.
    is_visible: bool

    async def records(self) -> Iterator[Record]:
        """Return the records. Raises DecodeError here or at a malformed record."""
        if not self.header.codec or len(self.data) <= _THREAD_BYTES:
            return read_records(self.data, limit=DECOMPRESSED_BYTES_MAX)
        read = partial(read_records, self.data, limit=DECOMPRESSED_BYTES_MAX)
        return await asyncio.get_running_loop().run_in_executor(_threads, read)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer about one partition."""

    partition: int
    #: Kafka's error code; 0 is success.
    error_code: int
    high_watermark: int
    #: (producer id, first offset) of the aborted transactions; empty at read_uncommitted.
    aborted: Sequence[tuple[int, int]]
    data: bytes

    def batches(self) -> Iterator[Batch]:
        """Yield the whole batches. Raises DecodeError at a malformed header."""
        view = memoryview(self.data)
        upcoming = deque(sorted(self.aborted, key=lambda each: each[1]))
        aborting: set[int] = set()
        position = 0
        while position < len(view):
            header = read_batch_header(view[position:])
            data = view[position : position + header.size]
            if len(data) < header.size:
                return  # the size limit of the answer cut it off
            while upcoming and upcoming[0][1] <= header.last_offset:
                aborting.add(upcoming.popleft()[0])
            if header.is_control and _is_abort(data):
                aborting.discard(header.producer_id)
            hidden = header.is_control or (header.is_transactional and header.producer_id in aborting)
            yield Batch(header, data, not hidden)
            position += header.size


async def fetch(
    client: KafkaClient,
    topic: str,
    positions: Sequence[tuple[int, int]],
    *,
    bytes_max: int,
    read_committed: bool,
    max_wait_ms: int = 0,
) -> AsyncIterator[Fetched]:
    """Fetch from each (partition, offset), and yield the answers in turn; each is held no longer than its turn.

    `bytes_max` bounds all records together, but for the first batch, which comes whole.

    Raises:
        ApiError: the gateway does not answer.
        AnswerTooLargeError: the first batch exceeds ANSWER_BYTES_MAX.
    """
    share = max(bytes_max // len(positions), 1)
    request = FetchRequest(
        max_wait_ms,
        1,
        bytes_max,
        int(read_committed),
        [(topic, [(partition, offset, share) for partition, offset in positions])],
    )
    answer = await client.send(request, repeatable=True)
    rows = [row for _, partitions in answer.topics or () for row in partitions]
    del answer
    rows.reverse()
    while rows:
        # partition, error code, high watermark, last stable offset, log start offset, aborted, replica, records
        row = rows.pop()
        fetched = Fetched(row[0], row[1], row[2], row[5] or (), row[-1] or b"")
        del row
        yield fetched


def _is_abort(batch: memoryview) -> bool:
    try:
        for record in read_records(batch, limit=DECOMPRESSED_BYTES_MAX):
            marker = read_marker(record)
            return marker is not None and marker.type is ControlType.ABORT
    except DecodeError:
        return False
    return False
