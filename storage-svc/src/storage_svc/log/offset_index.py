"""The offset index of a segment (`.index`): a sparse map from offset to position in the `.log` file.

    entry = relative offset i32, position i32      big-endian, 8 bytes, both strictly increasing

The offset is the *last* offset of a batch (less the segment's base offset), the position that batch's first byte.
E.g. base 100, batches 100-109 at 0, 110-119 at 4200, 120-129 at 9000: the entries (19, 4200) (29, 9000); offset 115
looks up (9, none) -> position 0 and is found by walking batches from there.

Entries live in two arrays while the segment is in use and are written to the file in groups. The file is neither mapped
nor preallocated: a store into a mapped hole kills the process when the disk is full. Kafka's own files end in zeros
after a crash; reading drops them.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Final

from storage_svc.log.files import Files

ENTRY_SIZE: Final = 8


class OffsetIndex:
    """Owned by its segment. `load` before the first look-up of an index that has a file."""

    __slots__ = ("_base", "_descriptor", "_files", "_offsets", "_positions", "_written", "entries_max", "path")

    def __init__(self, files: Files, path: str, base_offset: int, bytes_max: int) -> None:
        self._files = files
        self.path = path
        self._base = base_offset
        self.entries_max = bytes_max // ENTRY_SIZE
        self._offsets = array("i")
        self._positions = array("i")
        self._written = 0
        self._descriptor = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        return len(self._offsets) >= self.entries_max

    @property
    def last(self) -> tuple[int, int] | None:
        """(offset, position) of the last entry."""
        return (self._base + self._offsets[-1], self._positions[-1]) if self._offsets else None

    def append(self, offset: int, position: int) -> None:
        """Add an entry; the file has it after `persist`."""
        self._offsets.append(offset - self._base)
        self._positions.append(position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the greatest entry at or below the offset; (base offset, 0) before the first one."""
        found = bisect_right(self._offsets, offset - self._base) - 1
        return (self._base, 0) if found < 0 else (self._base + self._offsets[found], self._positions[found])

    def boundary(self, position: int) -> int:
        """The greatest position at or below the given one where a batch is known to start."""
        found = bisect_right(self._positions, position) - 1
        return 0 if found < 0 else self._positions[found]

    def load(self, end_position: int) -> bool:
        """Read the file; whether its entries are in order and inside a segment of `end_position` bytes."""
        data = self._files.read_file(self.path)
        if data is None or len(data) % ENTRY_SIZE:
            return False
        both = array("i", data)
        if sys.byteorder == "little":
            both.byteswap()
        self._offsets, self._positions = both[::2], both[1::2]
        self._drop_padding()
        self._written = len(self._offsets)
        return self._in_order(end_position)

    def _drop_padding(self) -> None:
        """Kafka preallocates this file: behind the last entry there may be zeros."""
        if self._offsets and self._positions[-1] == 0:
            # Positions rise from above 0 up to the padding.
            used = len(self._positions)
            while used and self._positions[used - 1] == 0:
                used -= 1
            del self._offsets[used:], self._positions[used:]

    def _in_order(self, end_position: int) -> bool:
        offsets, positions = self._offsets, self._positions
        return (
            all(low < high for low, high in pairwise(offsets))
            and all(low < high for low, high in pairwise(positions))
            and (not offsets or (offsets[0] >= 0 and positions[0] > 0 and positions[-1] < end_position))
        )

    def reset(self) -> None:
        """Forget every entry, to rebuild them from the log."""
        self._offsets = array("i")
        self._positions = array("i")
        self._written = 0
        self._close_file()
        self._files.unlink(self.path)

    def truncate(self, offset: int) -> None:
        """Forget the entries at or above an offset."""
        kept = bisect_left(self._offsets, offset - self._base)
        del self._offsets[kept:], self._positions[kept:]
        self._written = min(self._written, kept)

    def persist(self) -> None:
        """Write the entries the file does not have yet.

        Raises:
            StorageFailure: they stay in memory, and `persist` may be called again.
        """
        if self._descriptor < 0:
            self._descriptor = self._files.open(self.path, create=True)
        start, end = self._written, len(self._offsets)
        if start == end:
            return
        both = array("i", bytes(ENTRY_SIZE * (end - start)))
        both[::2], both[1::2] = self._offsets[start:], self._positions[start:]
        if sys.byteorder == "little":
            both.byteswap()
        data = both.tobytes()
        self._files.append(self._descriptor, [data], start * ENTRY_SIZE, len(data))
        self._written = end

    def finish(self) -> None:
        """Write what is missing, cut the file to its entries and close it."""
        self.persist()
        self._files.truncate(self._descriptor, len(self._offsets) * ENTRY_SIZE)
        self._close_file()

    def release(self) -> None:
        """Forget the entries in memory: the file has them all, `load` brings them back."""
        self._close_file()
        self._offsets = array("i")
        self._positions = array("i")
        self._written = 0

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1
