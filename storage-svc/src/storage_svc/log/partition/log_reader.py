"""The places of batches to read: the parts of segments that hold the batches from an offset on.

A span begins at the batch that *contains* the offset and ends at the end of a batch, so no useless byte is sent.
Readers get whole batches below the high watermark, or below the last stable offset if they ask for committed records.
Coordinators read their own topics up to the log end offset.
"""

from __future__ import annotations

from typing import NamedTuple

from storage_svc.log.batch.header import headers
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.state import LogState
from storage_svc.log.segment.positions import boundary
from storage_svc.log.segment.segment import Segment


class Span(NamedTuple):
    """`length` bytes of whole batches at `position` of a segment."""

    segment: Segment
    position: int
    length: int


def find_spans(
    state: LogState, offset: int, max_bytes: int, last: Segment, last_position: int, *, min_one: bool
) -> list[Span]:
    """Return at most `max_bytes` of batches from the offset on, up to a position of the segment `last`.

    With `min_one` the first batch is returned even if it is larger than that.

    Raises:
        StorageFailure: the disk did not answer.
    """
    found: list[Span] = []
    segments = state.segments
    for index in range(segments.index_of(offset), len(segments)):
        segment = segments[index]
        if segment.base_offset > last.base_offset:
            break
        limit = last_position if segment is last else segment.size
        position = 0 if found else state.read_positions.find(offset, segment)
        end = -1 if position is None else _end(state, segment, position, position + max_bytes, limit)
        if position is None or (end == position and min_one and not found):
            located = segment.locate(offset)
            if located is None:  # offsets at the end of this segment were compacted away
                continue
            position, header = located
            first_end = position + header.size
            if position + max_bytes < min(limit, first_end):
                end = first_end if min_one else position
            else:
                end = _end(state, segment, first_end, position + max_bytes, limit)
        if end <= position:
            break
        found.append(Span(segment, position, end - position))
        max_bytes -= end - position
        if segment is last or end < segment.size or max_bytes <= 0:
            break
    return found


def awaited_bytes(
    state: LogState, offset: int, max_bytes: int, spans: list[Span], readable_end: tuple[int, Segment, int]
) -> int | None:
    """Return the bytes from the offset on that count towards a read's `min_bytes`: at most `max_bytes` of them.

    Part of a batch counts (Kafka's DelayedFetch). None stands for any number of bytes: the records lie in a segment
    before that of `readable_end`.

    Args:
        spans: the result of `find_spans` for the read.
        readable_end: the offset after the last readable record, and its place.

    Raises:
        StorageFailure: the disk did not answer.
    """
    end_offset, last, last_position = readable_end
    if offset >= end_offset:
        return 0
    found = spans or find_spans(state, offset, 0, last, last_position, min_one=True)
    if not found:
        return 0
    segment, position, _ = found[0]
    return min(last_position - position, max_bytes) if segment is last else None  # mutant: wait-within-limit


def next_offset(state: LogState, spans: list[Span]) -> int | None:
    """Return the offset of the batch after the spans; None where no readable one follows.

    Raises:
        StorageFailure: the disk did not answer.
    """
    segment, position, length = spans[-1]
    last = state.readable.segment
    end = position + length
    if end < (state.readable.position if segment is last else segment.size):
        segment.open()
        following = next(headers(state.files, segment.descriptor, end, segment.size, 64), None)
        return None if following is None else following[1].base_offset
    segments = state.segments
    index = segments.index_of(segment.base_offset) + 1
    return segments.bases[index] if segment is not last and index < len(segments) else None


def find_batches(state: LogState, offset: int, max_bytes: int) -> bytes:
    """Return whole batches from the offset on, at least one, up to the log end offset; empty there.

    Raises:
        StorageFailure: the disk did not answer.
    """
    if state.withheld:
        raise StorageFailure(str(state.offline))
    if offset >= state.log_end_offset:
        return b""
    active = state.segments.active
    found = find_spans(state, offset, max_bytes, active, active.size, min_one=True)
    return b"".join(segment.read(position, length) for segment, position, length in found)


def _end(state: LogState, segment: Segment, start: int, end: int, limit: int) -> int:
    """Return the end of the last batch that ends at or before `end` and `limit`; a batch begins or ends at `start`."""
    if end >= limit:
        segment.used = True
        return limit
    segment.load()
    end, next_offset = boundary(segment, start, end)
    if next_offset is not None:
        state.read_positions.note(next_offset, segment, end)
    return end
