"""The time index of a segment (`.timeindex`): a sparse map from timestamp to offset.

    entry = timestamp i64, relative offset i32     big-endian, 12 bytes, timestamps strictly increasing

It says: up to and including that offset, no record is younger than that timestamp. The offset is the *last* offset of
the batch that holds the largest timestamp so far. The last entry is written when the segment is closed, so it names the
segment's largest timestamp; a slot is kept for it.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from storage_svc.log.disk.files import Files
from storage_svc.log.segment.index_file import IndexFile

ENTRY: Final = Struct(">qi")
_TIMESTAMP: Final = 0
_OFFSET: Final = 1


class TimeIndex:
    """The time index of one segment, owned by that segment, which opens and closes the file."""

    __slots__ = ("_base", "entries_max", "file")

    def __init__(self, files: Files, path: str, base_offset: int, bytes_max: int) -> None:
        self.file = IndexFile(files, path, ENTRY)
        self._base = base_offset
        #: One place is kept for the last entry.
        self.entries_max = bytes_max // ENTRY.size - 1

    @property
    def last(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry."""
        last = self.file.last
        return None if last is None else (last[_TIMESTAMP], self._base + last[_OFFSET])

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if it says more than the last one."""
        file = self.file
        if timestamp > (-1 if file.last is None else file.last[_TIMESTAMP]):
            file.append(timestamp, offset - self._base)

    def lookup(self, timestamp: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the greatest entry below the timestamp; None without one.

        Up to that offset every record is older.
        """
        return self._entry(self.file.count_up_to(timestamp - 1, _TIMESTAMP))

    def _entry(self, count: int) -> tuple[int, int] | None:
        """Return the last one of that many entries."""
        if count == 0:
            return None
        timestamp, offset = self.file.at(count - 1)
        return timestamp, self._base + offset
