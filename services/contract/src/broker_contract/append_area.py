"""Memory in which a gateway lays the record batches of appends, for a storage on the same machine to write them from.

The area is a memory file (memory_files.py) of SLOTS x SLOT_BYTES that the gateway names when it opens its stream;
storage says in its initial metadata whether it sees it. From then on frames may hold appends whose batches lie in the
area (append_items.py, kinds 11 and 12), each frame's in one slot. A slot is free again when storage has taken its
frame: then nothing there refers to it. An area ends with its stream, whose storage may still be at work on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker_contract.data import Buffer
from broker_contract.memory_files import CONTENT_AT, MemoryFile, see

#: A frame of appends, or a batch of the usual largest size behind one of them.
SLOT_BYTES: Final = 2 << 20
SLOTS: Final = 8


class AppendArea:
    """The gateway's. The slot that was freed last is used first: its memory is the likeliest to be in a cache."""

    __slots__ = ("_file", "_free", "_memory")

    def __init__(self, file: MemoryFile) -> None:
        self._file = file
        self._memory = file.memory
        self._free = [slot * SLOT_BYTES for slot in reversed(range(SLOTS))]

    @classmethod
    def create(cls) -> AppendArea | None:
        """None where the system has no such memory."""
        file = MemoryFile.create("millrace-appends", SLOTS * SLOT_BYTES)
        return None if file is None else cls(file)

    @property
    def name(self) -> str:
        return self._file.name

    def take_slot(self) -> int:
        """Where a slot begins that is the caller's until it is given back; -1 if none is free."""
        return self._free.pop() if self._free else -1

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def lay(self, place: int, batches: Sequence[Buffer]) -> None:
        """Batches back to back, from a place within a slot that has room for them."""
        memory = self._memory
        begin = CONTENT_AT + place
        for batch in batches:
            end = begin + len(batch)
            memory[begin:end] = batch
            begin = end

    def close(self) -> None:
        """Nothing may be laid into it any more; what storage has mapped stays there."""
        self._file.close()


def see_area(name: str) -> memoryview | None:
    """Storage's view of a gateway's area; None if it cannot be seen from here."""
    return see(name, SLOTS * SLOT_BYTES)
