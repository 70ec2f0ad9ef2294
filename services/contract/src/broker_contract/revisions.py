"""Whether what a reader of a log was told still holds: a number for each log, which moves with whatever changes it.

Storage moves it, and only then says that anything happened; who was told something compares the number when it uses
that. In one process both look at the same object. A gateway in a process of its own, on the same machine and of the
same user, maps storage's memory (memory_files.py):

    content = PLACES x u64 in the machine's byte order

A gateway that cannot see it does without.
"""

from __future__ import annotations

from typing import Final

from broker_contract.memory_files import CONTENT_AT, MemoryFile, see

#: Logs beyond that share places: one's change is taken for the other's, too.
PLACES: Final = 4096
_BYTES: Final = 8 * PLACES


class Revisions:
    """Storage's numbers, or a view of them. Places are handed out in turn."""

    __slots__ = ("_file", "_last", "_numbers")

    def __init__(self) -> None:
        self._numbers = memoryview(bytearray(_BYTES)).cast("Q")
        self._last = -1
        self._file: MemoryFile | None = None

    def __getitem__(self, place: int) -> int:
        return self._numbers[place]

    def __len__(self) -> int:
        return PLACES

    def place(self) -> int:
        """A place for one more log."""
        self._last = (self._last + 1) % PLACES
        return self._last

    def move(self, place: int) -> None:
        """Nothing that was told with this place's number holds any more."""
        self._numbers[place] += 1

    def share(self) -> str:
        """From now on others can see the numbers under the name that is returned; empty where the system has no such
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
        """Another process's numbers, to be read only; None if they cannot be seen from here."""
        content = see(name, _BYTES)
        if content is None or len(content) != _BYTES:
            return None
        found = cls()
        found._numbers = content.cast("Q")
        return found

    def close(self) -> None:
        """Others keep what they have mapped."""
        if self._file is not None:
            self._file.close()
            self._file = None
