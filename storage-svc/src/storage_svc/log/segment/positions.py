"""Positions in a segment that its indexes lead to, not to a record: near a position, an offset or a time.

An entry that is followed is compared with the batch it leads to, as `Segment.locate` does; indexes that do not agree
are rebuilt.
"""

from __future__ import annotations

from storage_svc.log.segment.segment import Segment


def boundary(segment: Segment, start: int, limit: int) -> tuple[int, int | None]:
    """Return the end of the last whole batch at or before `limit`, and an offset in the next batch if one is known.

    The end is at least `start`, where a batch begins.
    """
    segment.load()
    entry = segment.offset_index.lookup_position(limit)
    unchecked = entry is not None and entry[1] > start
    end = entry[1] if entry and unchecked else start
    next_offset = None
    for position, header in segment.walk(end):
        if unchecked and entry and header.last_offset != entry[0]:
            break
        unchecked = False
        next_position = position + header.size
        if next_position > limit:
            next_offset = header.base_offset if next_offset is None else next_offset
            break
        end, next_offset = next_position, header.last_offset + 1
    if not unchecked:
        return end, next_offset
    segment.rebuild_damaged()
    return boundary(segment, start, limit)


def position_before(segment: Segment, offset: int) -> int:
    """Return the position of a batch that ends at or before the offset, not far from it; 0 when none is known."""
    segment.load()
    entry = segment.offset_index.lookup(offset)
    found = entry and segment.locate(entry[0])
    return found[0] if found else 0


def position_of_timestamp(segment: Segment, timestamp: int) -> int:
    """Return the position of a batch with only older records before it, near the first record of this time or a later
    one.
    """
    segment.load()
    entry = segment.time_index.lookup(timestamp)
    if entry is None:
        return 0
    found = segment.locate(entry[1])
    if found is not None and (found[1].max_timestamp, found[1].last_offset) == entry:
        return found[0]
    segment.rebuild_damaged()
    return position_of_timestamp(segment, timestamp)
