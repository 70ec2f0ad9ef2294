"""Memory of one process that others of the same user, on the same machine, map under a name.

    name = pid:descriptor:token      of a memory file (memfd)
    file = token 16 bytes, zeros up to CONTENT_AT, then the content

The token is random: a file of that name with this token is that memory, even if the other process runs where process
and descriptor numbers mean something else. The size is sealed, because a process that maps a file which shrinks is
killed by a signal (SIGBUS); a file without these seals is not mapped.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import stat
from typing import Final

#: Zero where there is no such memory.
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if hasattr(os, "memfd_create") else 0
#: Position of the content: the start of a page.
CONTENT_AT: Final = 4096
_TOKEN_BYTES: Final = 16


class MemoryFile:
    """A memory file of this process."""

    __slots__ = ("_descriptor", "memory", "name")

    def __init__(self, memory: mmap.mmap, descriptor: int, name: str) -> None:
        #: The whole file; only the content may be written.
        self.memory = memory
        self._descriptor = descriptor
        self.name = name

    @classmethod
    def create(cls, purpose: str, content_bytes: int) -> MemoryFile | None:
        """Make a memory file; return None where the system has none. /proc/PID/maps shows `purpose`."""
        if not _SEALS:
            return None
        size = CONTENT_AT + content_bytes
        try:
            descriptor = os.memfd_create(purpose, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError:
            return None
        try:
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            memory = mmap.mmap(descriptor, size)
        except OSError:
            os.close(descriptor)
            return None
        token = memory[:_TOKEN_BYTES] = secrets.token_bytes(_TOKEN_BYTES)
        return cls(memory, descriptor, f"{os.getpid()}:{descriptor}:{token.hex()}")

    def close(self) -> None:
        """Remove the name. Processes that have mapped the memory keep it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def see(name: str, content_bytes_max: int) -> memoryview | None:
    """Map the content of another process's memory file, read-only; return None if this process cannot see it."""
    process, _, rest = name.partition(":")
    number, _, token = rest.partition(":")
    if not _SEALS or not (process.isdecimal() and number.isdecimal() and len(token) == 2 * _TOKEN_BYTES):
        return None
    try:
        descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not CONTENT_AT < status.st_size <= CONTENT_AT + content_bytes_max:
            return None
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:  # mutant: memory-sealed
            return None
        if os.pread(descriptor, _TOKEN_BYTES, 0).hex() != token:
            return None
        memory = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return memoryview(memory)[CONTENT_AT:]
