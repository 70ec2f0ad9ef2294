"""Whether a segment's index files, which are not synced and may be another's, agree with its log.

Only batches near the last entries are looked at, so this costs little whatever the timestamps are; an entry further in
is compared with the batch it leads to when it is followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage_svc.log.batch.header import headers
from storage_svc.log.disk.files import Files

if TYPE_CHECKING:
    from storage_svc.log.segment.segment import Segment

#: A look-up walks less than index.interval.bytes (4096) of small batches: one read of this size sees them all.
WALK_CHUNK: Final = 4 << 10


def ends_agree(segment: Segment, files: Files, index_interval: int) -> bool:
    """Whether the last entries of both indexes are true and nothing is missing behind them; of an open segment."""
    entry, timed = segment.offset_index.last, segment.time_index.last
    indexed_to, largest = entry[1] if entry else 0, timed[0] if timed else -1
    if not 0 <= indexed_to <= segment.size:
        return False
    entry_true, end = entry is None, indexed_to
    for position, header in headers(files, segment.descriptor, indexed_to, segment.size):
        if position - indexed_to > index_interval or header.max_timestamp > largest:
            return False
        if entry and position == indexed_to:
            entry_true = header.last_offset == entry[0]
        end = position + header.size
    if not entry_true or end != segment.size:
        return False
    return timed is None or _is_true(timed, segment, files, index_interval)


def _is_true(timed: tuple[int, int], segment: Segment, files: Files, index_interval: int) -> bool:
    """Whether a batch ends at the offset of this entry of the time index and has its timestamp."""
    entry = segment.offset_index.lookup(timed[1])
    start = entry[1] if entry else 0
    if start < 0:
        return False
    for position, header in headers(files, segment.descriptor, start, segment.size, WALK_CHUNK):
        if header.last_offset >= timed[1]:
            return (header.max_timestamp, header.last_offset) == timed
        if position - start > index_interval:
            break
    return False
