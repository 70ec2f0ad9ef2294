"""Finding bytes to read: which parts of which segments hold the batches from an offset on.

A span begins at the batch that *contains* the offset and ends at a batch's end, so that no byte is sent in vain.
Readers get whole batches below the high watermark only, or below the last stable offset if they ask for committed
records; coordinators load their own topics up to the log end offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from storage_svc.log.batch.header import headers
from storage_svc.log.errors import StorageFailure
from storage_svc.log.segment.positions import boundary
from storage_svc.log.segment.segment import Segment

if TYPE_CHECKING:
    from storage_svc.log.partition.partition_log import PartitionLog


#: Tailing readers are few batches behind each other.
_PLACES_MAX: Final = 32


class Places:
    """Where batches begin that somebody will ask for next: behind what became readable last, and behind what was read
    last. So those who follow a log are answered without a look at its index. Owned by its PartitionLog."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Segment, int]] = {}

    def note(self, offset: int, segment: Segment, position: int) -> None:
        """The batch with this offset, once there is one, begins there."""
        known = self._known
        known[offset] = segment, position
        if len(known) > _PLACES_MAX:
            del known[next(iter(known))]

    def find(self, offset: int, segment: Segment) -> int | None:
        """Its position, if it is known and in this segment, which may have been rolled or replaced meanwhile."""
        place = self._known.get(offset)
        return place[1] if place is not None and place[0] is segment and place[1] < segment.size else None


class Span(NamedTuple):
    """`length` bytes of whole batches at `position` of a segment."""

    segment: Segment
    position: int
    length: int


def find_spans(log: PartitionLog, offset: int, max_bytes: int, *, min_one: bool, committed: bool = False) -> list[Span]:
    """As `PartitionLog.spans`.

    Raises:
        StorageFailure: the disk did not answer.
    """
    if offset >= log.high_watermark:
        return []
    if not committed:
        return _spans(log, offset, max_bytes, min_one, log.readable.segment, log.readable.position)
    stable_offset, segment, position = log.transactions.stable_end()
    return [] if offset >= stable_offset else _spans(log, offset, max_bytes, min_one, segment, position)


def offset_behind(log: PartitionLog, spans: list[Span]) -> int | None:
    """The offset of the batch that follows what was found; None where nothing readable does.

    Raises:
        StorageFailure: the disk did not answer.
    """
    segment, position, length = spans[-1]
    last = log.readable.segment
    end = position + length
    if end < (log.readable.position if segment is last else segment.size):
        segment.open()
        following = next(headers(log.files, segment.descriptor, end, segment.size, 64), None)
        return None if following is None else following[1].base_offset
    segments = log.segments
    index = segments.index_of(segment.base_offset) + 1
    return segments.bases[index] if segment is not last and index < len(segments) else None


def find_batches(log: PartitionLog, offset: int, max_bytes: int) -> bytes:
    """Whole batches from the offset on, at least one, up to the log end offset; empty there.

    Raises:
        StorageFailure: the disk did not answer.
    """
    if log.withheld:
        raise StorageFailure(str(log.offline))
    if offset >= log.log_end_offset:
        return b""
    found = _spans(log, offset, max_bytes, True, log.segments.active, log.segments.active.size)
    return b"".join(segment.read(position, length) for segment, position, length in found)


def _spans(
    log: PartitionLog, offset: int, max_bytes: int, min_one: bool, last: Segment, last_position: int
) -> list[Span]:
    found: list[Span] = []
    segments = log.segments
    for index in range(segments.index_of(offset), len(segments)):
        segment = segments[index]
        if segment.base_offset > last.base_offset:
            break
        limit = last_position if segment is last else segment.size
        position = 0 if found else log.places.find(offset, segment)
        end = -1 if position is None else _end(log, segment, position, position + max_bytes, limit)
        if position is None or (end == position and min_one and not found):
            located = segment.locate(offset)
            if located is None:  # offsets at the end of this segment were compacted away
                continue
            position, header = located
            first_end = position + header.size
            if position + max_bytes < min(limit, first_end):
                end = first_end if min_one else position
            else:
                end = _end(log, segment, first_end, position + max_bytes, limit)
        if end <= position:
            break
        found.append(Span(segment, position, end - position))
        max_bytes -= end - position
        if segment is last or end < segment.size or max_bytes <= 0:
            break
    return found


def _end(log: PartitionLog, segment: Segment, start: int, end: int, limit: int) -> int:
    """Where the last batch ends that ends at or before `end` and `limit`; one begins or ends at `start`."""
    if end >= limit:
        segment.used = True
        return limit
    segment.load()
    end, next_offset = boundary(segment, start, end)
    if next_offset is not None:
        log.places.note(next_offset, segment, end)
    return end
