"""Offsets by timestamp, as Kafka's ListOffsets asks for them.

The event loop's thread chooses a segment by its largest timestamp, and a position by the time index. From there another
thread walks the batches of that segment (`Search`), which may be a million of one timestamp on a disk that is slow, and
opens the batch that holds the record. The segment stays open until then, even if its log is deleted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol_lib.errors import DecodeError
from protocol_lib.records.header import MAGIC
from protocol_lib.records.record import walker_of
from service_chassis.time_slices import TimeSlices

from storage_svc.log.batch.header import Header, headers, intact, records_of
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.segment.positions import position_of_timestamp
from storage_svc.log.segment.segment import Segment

_LATEST: Final = -1
_EARLIEST: Final = -2
#: Records, or headers, between two looks at the clock.
_STEPS: Final = 1000


class FoundRecord(NamedTuple):
    """The result of a search."""

    timestamp: int
    offset: int
    leader_epoch: int


class Search(TimeSlices):
    """A walk over the batches of one segment, from a position on. `end` must follow, once `run` is over."""

    __slots__ = (
        "_descriptor",
        "_end",
        "_files",
        "_high_watermark",
        "_offset_min",
        "_position",
        "_segment",
        "timestamp",
    )

    def __init__(self, log: PartitionLog, segment: Segment, position: int, timestamp: int, offset_min: int) -> None:
        """Look for a record at or after an offset with this timestamp or a later one.

        Raises:
            StorageFailure: the segment cannot be opened.
        """
        super().__init__()
        segment.open()
        segment.pin()  # mutant: look-up-pins-segment
        self._files = log.files
        self._segment = segment
        self._descriptor = segment.descriptor
        self._position = position
        self._end = segment.size
        self._high_watermark = log.high_watermark
        self._offset_min = offset_min
        self.timestamp = timestamp

    def run(self) -> FoundRecord | None:
        """Return the first such record below the high watermark, in any thread; None without one.

        Raises:
            StorageFailure: the disk did not answer.
            DecodeError: the batch is damaged.
            Abandoned: the caller has given the search up.
        """
        self.check()
        for position, header in headers(self._files, self._descriptor, self._position, self._end):
            if header.base_offset >= self._high_watermark:
                return None
            if header.max_timestamp >= self.timestamp and header.last_offset >= self._offset_min:
                batch = self._files.read(self._descriptor, header.size, position)
                # Its young records may have been deleted, or its header may count some that are not there.
                record = self._record_in(batch, header)
                if record is not None:
                    return record
            self.turn()
        return None

    def _record_in(self, batch: bytes, header: Header) -> FoundRecord | None:
        if not intact(memoryview(batch)):  # mutant: look-up-checks-batch
            raise DecodeError("the batch does not match its CRC")
        if header.magic != MAGIC:
            for record in records_of(batch):
                if record.timestamp >= self.timestamp and record.offset >= self._offset_min:
                    return FoundRecord(record.timestamp, record.offset, header.leader_epoch)
                self.turn()
            return None
        # Records before the log start may be as young. They are passed one by one, and are less than the batch has.
        faults_max = 1 if header.base_offset >= self._offset_min else header.records_count
        walker = walker_of(batch, latest=self.timestamp - 1, faults_max=faults_max)
        is_left, seen = True, 0
        while is_left:
            is_left = walker.check(_STEPS)
            for _, timestamp, offset in walker.mistimed[seen:]:
                if offset >= self._offset_min:  # mutant: look-up-after-log-start
                    return FoundRecord(timestamp, offset, header.leader_epoch)
            seen = len(walker.mistimed)
            self.turn()
        return None

    def end(self) -> None:
        """Give the segment back, on the event loop's thread."""
        self._segment.unpin()


def search_timestamp(log: PartitionLog, segment: Segment, timestamp: int, offset_min: int) -> Search | None:
    """Return the search for a timestamp in a segment; None if no record there is as young.

    Raises:
        StorageFailure: the disk did not answer.
    """
    if segment.largest_timestamp()[0] < timestamp:
        return None
    return Search(log, segment, position_of_timestamp(segment, timestamp), timestamp, offset_min)


def largest_readable(log: PartitionLog, segment: Segment) -> tuple[int, int]:
    """Return the largest timestamp in the readable part of a segment, and the last offset of its batch; -1 without one.

    Raises:
        StorageFailure: the disk did not answer.
    """
    largest, offset = segment.largest_timestamp()
    if largest < 0 or offset < log.high_watermark:  # mutant: timestamp-readable
        return largest, offset
    return log.readable.largest if segment is log.readable.segment else (-1, -1)


def search_largest(log: PartitionLog, segment: Segment, timestamp: int, offset: int) -> Search | None:
    """Return the search for the largest timestamp, of the batch that ends at an offset of the segment.

    Raises:
        StorageFailure: the disk did not answer.
    """
    located = segment.locate(offset)
    return None if located is None else Search(log, segment, located[0], timestamp, log.log_start_offset)


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
