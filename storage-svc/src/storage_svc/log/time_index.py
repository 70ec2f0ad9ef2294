"""The time index of a segment (`.timeindex`): a sparse map from timestamp to offset.

    entry = timestamp i64, relative offset i32     big-endian, 12 bytes, timestamps strictly increasing

It says: up to and including that offset, no record is younger than that timestamp. The offset is the *last* offset of
the batch that holds the largest timestamp so far. The last entry is written when the segment is closed, so it names the
segment's largest timestamp; a slot is kept for it. Files and padding as in offset_index.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from struct import Struct
from typing import Final

from storage_svc.log.files import Files

_ENTRY: Final = Struct(">qi")
ENTRY_SIZE: Final = _ENTRY.size


class TimeIndex:
    """Owned by its segment. `load` before the first look-up of an index that has a file."""

    __slots__ = ("_base", "_descriptor", "_files", "_offsets", "_timestamps", "_written", "entries_max", "path")

    def __init__(self, files: Files, path: str, base_offset: int, bytes_max: int) -> None:
        self._files = files
        self.path = path
        self._base = base_offset
        self.entries_max = bytes_max // ENTRY_SIZE
        self._timestamps = array("q")
        self._offsets = array("i")
        self._written = 0
        self._descriptor = -1

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def full(self) -> bool:
        return len(self._timestamps) >= self.entries_max - 1

    @property
    def last(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry."""
        return (self._timestamps[-1], self._base + self._offsets[-1]) if self._timestamps else None

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if it says more than the last one; the file has it after `persist`."""
        timestamps = self._timestamps
        if timestamp > (timestamps[-1] if timestamps else -1):
            timestamps.append(timestamp)
            self._offsets.append(offset - self._base)

    def lookup(self, timestamp: int) -> int:
        """An offset at or below that of the first record with this timestamp or a later one."""
        found = bisect_left(self._timestamps, timestamp) - 1
        return self._base if found < 0 else self._base + self._offsets[found]

    def load(self, end_offset: int) -> bool:
        """Read the file; whether its entries are in order and inside a segment that ends before `end_offset`."""
        data = self._files.read_file(self.path)
        if data is None or len(data) % ENTRY_SIZE:
            return False
        entries = list(_ENTRY.iter_unpack(data))
        while entries and entries[-1] == (0, 0):
            entries.pop()
        self._timestamps = array("q", [timestamp for timestamp, _ in entries])
        self._offsets = array("i", [offset for _, offset in entries])
        self._written = len(entries)
        timestamps, offsets = self._timestamps, self._offsets
        return (
            all(low < high for low, high in pairwise(timestamps))
            and all(low < high for low, high in pairwise(offsets))
            and (not entries or (timestamps[0] >= 0 and offsets[0] >= 0 and self._base + offsets[-1] < end_offset))
        )

    def reset(self) -> None:
        """Forget every entry, to rebuild them from the log."""
        self._timestamps = array("q")
        self._offsets = array("i")
        self._written = 0
        self._close_file()
        self._files.unlink(self.path)

    def truncate(self, offset: int) -> None:
        """Forget the entries at or above an offset."""
        kept = bisect_right(self._offsets, offset - self._base - 1)
        del self._timestamps[kept:], self._offsets[kept:]
        self._written = min(self._written, kept)

    def persist(self) -> None:
        """Write the entries the file does not have yet.

        Raises:
            StorageFailure: they stay in memory, and `persist` may be called again.
        """
        if self._descriptor < 0:
            self._descriptor = self._files.open(self.path, create=True)
        start, end = self._written, len(self._timestamps)
        if start == end:
            return
        data = b"".join(map(_ENTRY.pack, self._timestamps[start:], self._offsets[start:]))
        self._files.append(self._descriptor, [data], start * ENTRY_SIZE, len(data))
        self._written = end

    def finish(self) -> None:
        """Write what is missing, cut the file to its entries and close it."""
        self.persist()
        self._files.truncate(self._descriptor, len(self._timestamps) * ENTRY_SIZE)
        self._close_file()

    def release(self) -> None:
        """Forget the entries in memory: the file has them all, `load` brings them back."""
        self._close_file()
        self._timestamps = array("q")
        self._offsets = array("i")
        self._written = 0

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1
