"""Whether what a reader of a log was told still holds: a number for each log, which moves with whatever changes it.

Storage moves it, and only then says that anything happened; who was told something compares the number when it uses
that. In one process both look at the same object. A gateway in a process of its own, on the same machine and of the
same user, maps storage's memory:

    name = pid:descriptor:token      of a memory file (memfd) of storage
    file = token 16 bytes, PLACES x u64 in the machine's byte order

The token is random: a file of that name with this content is storage's memory, whatever process and descriptor numbers
mean where the gateway runs. A gateway that cannot open it does without.
"""

from __future__ import annotations

import mmap
import os
import secrets
from typing import Final

#: Logs beyond that share places: one's change is taken for the other's, too.
PLACES: Final = 4096
_TOKEN_BYTES: Final = 16
_FILE_BYTES: Final = _TOKEN_BYTES + 8 * PLACES


class Revisions:
    """Storage's numbers, or a view of them. Places are handed out in turn."""

    __slots__ = ("_descriptor", "_last", "_name", "_numbers")

    def __init__(self) -> None:
        self._numbers = memoryview(bytearray(8 * PLACES)).cast("Q")
        self._last = -1
        self._descriptor = -1
        self._name = ""

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
        if not self._name and hasattr(os, "memfd_create"):
            try:
                descriptor = os.memfd_create("millrace-revisions")
                os.ftruncate(descriptor, _FILE_BYTES)
                memory = mmap.mmap(descriptor, _FILE_BYTES)
            except OSError:
                return ""
            token = memory[:_TOKEN_BYTES] = secrets.token_bytes(_TOKEN_BYTES)
            numbers = memoryview(memory)[_TOKEN_BYTES:].cast("Q")
            numbers[:] = self._numbers
            self._numbers, self._descriptor = numbers, descriptor
            self._name = f"{os.getpid()}:{descriptor}:{token.hex()}"
        return self._name

    @classmethod
    def seen(cls, name: str) -> Revisions | None:
        """Another process's numbers, to be read only; None if they cannot be seen from here."""
        process, _, rest = name.partition(":")
        number, _, token = rest.partition(":")
        if not (process.isdecimal() and number.isdecimal() and len(token) == 2 * _TOKEN_BYTES):
            return None
        try:
            descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            if os.fstat(descriptor).st_size != _FILE_BYTES or os.pread(descriptor, 16, 0).hex() != token:
                return None
            memory = mmap.mmap(descriptor, _FILE_BYTES, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        finally:
            os.close(descriptor)
        found = cls()
        found._numbers = memoryview(memory)[_TOKEN_BYTES:].cast("Q")
        return found

    def close(self) -> None:
        """Others keep what they have mapped."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._name = -1, ""
