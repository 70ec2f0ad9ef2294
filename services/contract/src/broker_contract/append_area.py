"""Memory in which a gateway lays the record batches of appends, for a storage on the same machine to write them from.

The area is a memory file (memory_files.py) of SLOTS x SLOT_BYTES that the gateway names when it opens its stream;
storage states in its initial metadata whether it sees it. From then on frames may hold appends whose batches lie in
the area (append_items.py, kind 6), each frame's in one slot. A slot is free again when the frame's receipt has come:
storage refers to nothing in it any more. An area ends with its stream, and a new stream has a new area, because storage
may still read the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker_contract.data import Buffer
from broker_contract.memory_files import CONTENT_AT, MemoryFile, see

#: Room for a frame of appends, and for a batch of the usual largest size after them.
SLOT_BYTES: Final = 2 << 20
SLOTS: Final = 8


class AppendArea:
    """The gateway's side of the area. It reuses the slot that was freed last: that memory is likeliest in a cache."""

    __slots__ = ("_file", "_free", "_memory")

    def __init__(self, file: MemoryFile) -> None:
        self._file = file
        self._memory = file.memory
        self._free = [slot * SLOT_BYTES for slot in reversed(range(SLOTS))]

    @classmethod
    def create(cls) -> AppendArea | None:
        """Make an area; return None where the system has no such memory."""
        file = MemoryFile.create("millrace-appends", SLOTS * SLOT_BYTES)
        return None if file is None else cls(file)

    @property
    def name(self) -> str:
        return self._file.name

    def take_slot(self) -> int:
        """Reserve a slot until `give_back`, and return the position of its first byte; -1 if none is free."""
        return self._free.pop() if self._free else -1

    def give_back(self, slot: int) -> None:
        """Free a slot that `take_slot` reserved."""
        self._free.append(slot)

    def lay(self, position: int, batches: Sequence[Buffer]) -> None:
        """Copy batches back to back to `position`, which lies in a slot with room for them."""
        memory = self._memory
        begin = CONTENT_AT + position
        for batch in batches:
            end = begin + len(batch)
            memory[begin:end] = batch
            begin = end

    def close(self) -> None:
        """End the area: no batches can be laid any more. Storage keeps the memory that it has mapped."""
        self._file.close()


def see_area(name: str) -> memoryview | None:
    """Map a gateway's area, read-only; return None if this process cannot see it."""
    return see(name, SLOTS * SLOT_BYTES)
