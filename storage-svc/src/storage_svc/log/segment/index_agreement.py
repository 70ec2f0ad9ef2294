"""The comparison of a segment's index files, which are not synced and may be another's, with its log.

Only batches near the last entries are read, so this costs little for any timestamps. An entry before the last one
is compared with the batch it leads to when it is followed.
"""

from __future__ import annotations

from storage_svc.log.batch.header import WALK_CHUNK, headers
from storage_svc.log.disk.files import Files
from storage_svc.log.segment.offset_index import OffsetIndex
from storage_svc.log.segment.time_index import TimeIndex


def ends_agree(
    files: Files, descriptor: int, size: int, offset_index: OffsetIndex, time_index: TimeIndex, index_interval: int
) -> bool:
    """Return whether the last entries of both indexes are true and no later entry is missing.

    `descriptor` is that of the open `.log` file, of which `size` bytes are whole batches.
    """
    entry, timed = offset_index.last, time_index.last
    indexed_to, largest = entry[1] if entry else 0, timed[0] if timed else -1
    if not 0 <= indexed_to <= size:
        return False
    entry_true, end = entry is None, indexed_to
    for position, header in headers(files, descriptor, indexed_to, size):
        if position - indexed_to > index_interval or header.max_timestamp > largest:
            return False
        if entry and position == indexed_to:
            entry_true = header.last_offset == entry[0]
        end = position + header.size
    if not entry_true or end != size:
        return False
    if timed is None:
        return True
    start = offset_index.lookup(timed[1])
    return _is_true(timed, files, descriptor, start[1] if start else 0, size, index_interval)


def _is_true(timed: tuple[int, int], files: Files, descriptor: int, start: int, size: int, index_interval: int) -> bool:
    """Return whether a batch at or after `start` ends at the offset of this time index entry and has its timestamp."""
    if start < 0:
        return False
    for position, header in headers(files, descriptor, start, size, WALK_CHUNK):
        if header.last_offset >= timed[1]:
            return (header.max_timestamp, header.last_offset) == timed
        if position - start > index_interval:
            break
    return False
