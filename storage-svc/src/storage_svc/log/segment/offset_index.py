"""The offset index of a segment (`.index`): a sparse map from offset to position in the `.log` file.

    entry = relative offset i32, position i32      big-endian, 8 bytes, both strictly increasing

The offset is the *last* offset of a batch (less the segment's base offset), the position that batch's first byte. E.g.
base 100, batches 100-109 at 0, 110-119 at 4200, 120-129 at 9000: the entries (19, 4200) (29, 9000). Offset 115 looks up
(9, none) -> position 0 and is found by walking batches from there.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from storage_svc.log.disk.files import Files
from storage_svc.log.segment.index_file import IndexFile

ENTRY: Final = Struct(">ii")
_OFFSET: Final = 0
_POSITION: Final = 1


class OffsetIndex:
    """The offset index of one segment, owned by that segment, which opens and closes the file."""

    __slots__ = ("_base", "entries_max", "file")

    def __init__(self, files: Files, path: str, base_offset: int, bytes_max: int) -> None:
        self.file = IndexFile(files, path, ENTRY)
        self._base = base_offset
        self.entries_max = bytes_max // ENTRY.size

    @property
    def last(self) -> tuple[int, int] | None:
        """(offset, position) of the last entry."""
        last = self.file.last
        return None if last is None else (self._base + last[_OFFSET], last[_POSITION])

    def append(self, offset: int, position: int) -> None:
        """Add an entry: the batch that ends with this offset begins at this position."""
        self.file.append(offset - self._base, position)

    def lookup(self, offset: int) -> tuple[int, int] | None:
        """Return (offset, position) of the greatest entry at or below the offset; None before the first one."""
        file, base = self.file, self._base
        last = file.last
        if last is not None and last[_OFFSET] <= offset - base:
            return base + last[_OFFSET], last[_POSITION]
        return self._entry(file.count_up_to(offset - base, _OFFSET))

    def lookup_position(self, position: int) -> tuple[int, int] | None:
        """Return (offset, position) of the greatest entry at or below the position; None before the first one."""
        return self._entry(self.file.count_up_to(position, _POSITION))

    def _entry(self, count: int) -> tuple[int, int] | None:
        """Return the last one of that many entries."""
        if count == 0:
            return None
        offset, position = self.file.at(count - 1)
        return self._base + offset, position
