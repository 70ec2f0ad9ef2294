"""Finding bytes to read: which parts of which segments hold the batches from an offset on.

A span begins at the batch that *contains* the offset and ends at a batch's end, so that no byte is sent in vain.
Readers get whole batches below the high watermark only, or below the last stable offset if they ask for committed
records; coordinators load their own topics up to the log end offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage_svc.log.errors import StorageFailure
from storage_svc.log.segment import Segment

if TYPE_CHECKING:
    from storage_svc.log.partition_log import PartitionLog


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
        if found:
            position, first_end = 0, 0
        else:
            located = segment.locate(offset)
            if located is None:  # offsets at the end of this segment were compacted away
                continue
            position, header = located
            first_end = position + header.size
        limit = last_position if segment is last else segment.size
        end = position + max_bytes
        if end >= limit:
            end = limit
        elif first_end > end:
            end = first_end if min_one else position
        else:
            segment.load()
            end = segment.boundary(first_end, end)
        if end <= position:
            break
        found.append(Span(segment, position, end - position))
        max_bytes -= end - position
        if segment is last or end < segment.size or max_bytes <= 0:
            break
    return found
