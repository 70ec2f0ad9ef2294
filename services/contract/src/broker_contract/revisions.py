"""Revisions: a number for each log, with which a reader checks that an earlier answer is still valid.

Storage raises a log's number whenever an answer about the log would change, before anything else shows the change. A
reader that keeps an answer keeps the number as well, and compares it when it uses the answer. In the combined broker
both use the same object. A gateway in a separate process, on the same machine and of the same user, maps storage's
memory (memory_files.py):

    content = SLOTS x u64 in the machine's byte order

A gateway that cannot see this memory does not read ahead.
"""

from __future__ import annotations

from typing import Final

from broker_contract.memory_files import CONTENT_AT, MemoryFile, see

#: Number of slots. More logs share slots: a change of one then invalidates answers about the other, too.
SLOTS: Final = 4096
_BYTES: Final = 8 * SLOTS


class Revisions:
    """Storage's numbers, or a view of them. Logs get their slots in turn."""

    __slots__ = ("_file", "_last", "_numbers")

    def __init__(self) -> None:
        self._numbers = memoryview(bytearray(_BYTES)).cast("Q")
        self._last = -1
        self._file: MemoryFile | None = None

    def __getitem__(self, slot: int) -> int:
        return self._numbers[slot]

    def __len__(self) -> int:
        return SLOTS

    def new_slot(self) -> int:
        """Return the slot of one more log."""
        self._last = (self._last + 1) % SLOTS
        return self._last

    def move(self, slot: int) -> None:
        """Raise the number in this slot: answers with the number before are not valid any more."""
        self._numbers[slot] += 1

    def share(self) -> str:
        """Put the numbers where other processes see them, and return the name; empty where the system has no such
        memory."""
        if self._file is None:
            file = MemoryFile.create("millrace-revisions", _BYTES)
            if file is None:
                return ""
            numbers = memoryview(file.memory)[CONTENT_AT:].cast("Q")
            numbers[:] = self._numbers
            self._numbers, self._file = numbers, file
        return self._file.name

    @classmethod
    def seen(cls, name: str) -> Revisions | None:
        """Map another process's numbers, read-only; return None if this process cannot see them."""
        content = see(name, _BYTES)
        if content is None or len(content) != _BYTES:
            return None
        found = cls()
        found._numbers = content.cast("Q")
        return found

    def close(self) -> None:
        """Remove the name. Processes that have mapped the numbers keep them."""
        if self._file is not None:
            self._file.close()
            self._file = None
