"""Offsets by timestamp, as Kafka's ListOffsets asks for them.

The time index and batch headers find the batch. Only that batch is opened to find the record, which the caller may do
in another thread (`first_record`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol_lib.errors import DecodeError

from storage_svc.log.batch.header import headers, intact, records_of
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.segment.positions import position_of_timestamp
from storage_svc.log.segment.segment import Segment

_LATEST: Final = -1
_EARLIEST: Final = -2


class FoundBatch(NamedTuple):
    """A batch that holds the wanted record: one at or after `offset_min` with a timestamp >= `timestamp`."""

    batch: bytes
    timestamp: int
    offset_min: int
    #: The offset after its last record.
    next_offset: int
    #: -1 in the formats that have none.
    leader_epoch: int


class FoundRecord(NamedTuple):
    """The record that was looked for."""

    timestamp: int
    offset: int
    leader_epoch: int


def find_timestamp(log: PartitionLog, timestamp: int, offset_min: int) -> FoundBatch | None:
    """Return the first readable batch that has a record of this timestamp or a later one and ends at or after an
    offset.

    Raises:
        StorageFailure: the disk did not answer.
    """
    for segment in log.segments.starting_with(offset_min):
        if segment.base_offset >= log.high_watermark:
            break
        if segment.largest_timestamp()[0] < timestamp:
            continue
        found = _first_batch(log, segment, timestamp, offset_min)
        if found is not None:
            return found
    return None


def find_largest(log: PartitionLog) -> FoundBatch | None:
    """Return the readable batch with the largest timestamp; None without timestamps."""
    best: tuple[int, Segment] | None = None
    for segment in log.segments.starting_with(log.log_start_offset):
        if segment.base_offset >= log.high_watermark:
            break
        largest = _largest_readable(log, segment)
        if largest >= 0 and (best is None or largest > best[0]):
            best = largest, segment
    if best is None:
        return None
    timestamp, segment = best
    return _first_batch(log, segment, timestamp, log.log_start_offset)


def _largest_readable(log: PartitionLog, segment: Segment) -> int:
    """Return the largest timestamp in the readable part of a segment."""
    largest, offset = segment.largest_timestamp()
    if offset < log.high_watermark or largest < 0:
        return largest
    entries = headers(log.files, segment.descriptor, 0, log.readable.position)
    return max((header.max_timestamp for _, header in entries), default=-1)


def _first_batch(log: PartitionLog, segment: Segment, timestamp: int, offset_min: int) -> FoundBatch | None:
    start = position_of_timestamp(segment, timestamp)
    for position, header in headers(log.files, segment.descriptor, start, segment.size):
        if header.base_offset >= log.high_watermark:
            return None
        if header.max_timestamp >= timestamp and header.last_offset >= offset_min:
            batch = segment.read(position, header.size)
            return FoundBatch(batch, timestamp, offset_min, header.last_offset + 1, header.leader_epoch)
    return None


def segment_starts(log: PartitionLog, timestamp: int, count_max: int, now_ms: int) -> list[int]:
    """Return starts of segments, newest first, of which the newest was last written at or before a timestamp.

    ListOffsets version 0 asks for it: -1 begins with the log's end, -2 gives the log's start alone. Starts that are not
    readable yet are left out; the high watermark stands for them (Kafka's legacyFetchOffsetsBefore).

    Raises:
        StorageFailure: the disk did not answer.
    """
    written = [
        (max(segment.base_offset, log.log_start_offset), log.files.modified_ms(segment.path))
        for segment in log.segments
    ]
    if log.segments.active.size:
        written.append((log.log_end_offset, now_ms))
    if timestamp == _EARLIEST:
        del written[1:]
    elif timestamp != _LATEST:
        while written and written[-1][1] > timestamp:
            del written[-1]
    starts = [offset for offset, _ in reversed(written)][:count_max]
    readable = [offset for offset in starts if offset <= log.high_watermark]
    return starts if len(readable) == len(starts) else [log.high_watermark, *readable]


def first_record(found: FoundBatch) -> FoundRecord | None:
    """Return the wanted record in its batch; None if the header promised one that is not there.

    Raises:
        DecodeError: the batch is damaged.
    """
    if not intact(memoryview(found.batch)):
        raise DecodeError("the batch does not match its CRC")
    for record in records_of(found.batch):
        if record.timestamp >= found.timestamp and record.offset >= found.offset_min:
            return FoundRecord(record.timestamp, record.offset, found.leader_epoch)
    return None
