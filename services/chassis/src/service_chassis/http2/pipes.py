"""Ways in which a lane's bytes go from its socket to another one: a pipe of the system, or memory in place of it.

Each holds bytes between `fill` and `drain`. A lane keeps its pipe for all of its calls.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final, Protocol

#: Bytes that a pipe of the system holds, if the system allows as many.
PIPE_BYTES: Final = 1 << 20
#: Bytes of the memory that takes its place.
BUFFER_BYTES: Final = 256 << 10


class Pipe(Protocol):
    """`held` bytes that have come out of one socket and are not in the other one. To be filled when it is empty only.

    Both methods raise BlockingIOError if the socket is not ready, and other kinds of OSError if it has failed.
    """

    held: int

    def fill(self, source: int, count: int) -> int:
        """Take at most `count` bytes out of a socket; return how many. 0: its peer has closed it."""
        ...

    def drain(self, to: int, count: int, *, more: bool) -> int:
        """Put at most `count` of the bytes into a socket; return how many. `more`: others follow soon."""
        ...

    def close(self) -> None:
        """Drop the bytes. Idempotent."""
        ...


class SystemPipe:
    """A pipe through which the system moves pages from socket to socket, without a copy (splice(2), Linux)."""

    __slots__ = ("_in", "_out", "held")

    def __init__(self) -> None:
        """Open the pipe. Raises OSError if there are no more descriptors."""
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a user's pipes are limited together
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.held = 0

    def fill(self, source: int, count: int) -> int:
        got = os.splice(source, self._in, count, flags=os.SPLICE_F_NONBLOCK)
        self.held = got
        return got

    def drain(self, to: int, count: int, *, more: bool) -> int:
        flags = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MORE if more else os.SPLICE_F_NONBLOCK
        sent = os.splice(self._out, to, count, flags=flags)
        self.held -= sent
        return sent

    def close(self) -> None:
        self.held = 0
        for descriptor in (self._in, self._out):
            if descriptor >= 0:
                os.close(descriptor)
        self._in = self._out = -1


class MemoryPipe:
    """Memory in place of a pipe: for systems and sockets without splice."""

    __slots__ = ("_at", "_view", "held")

    def __init__(self) -> None:
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._at = self.held = 0

    def fill(self, source: int, count: int) -> int:
        self._at = 0
        self.held = os.readv(source, (self._view[:count],))
        return self.held

    def drain(self, to: int, count: int, *, more: bool) -> int:  # noqa: ARG002
        sent = os.write(to, self._view[self._at : self._at + min(count, self.held)])
        self._at += sent
        self.held -= sent
        return sent

    def close(self) -> None:
        self.held = 0


def open_pipe() -> Pipe:
    """Return the best pipe of this system."""
    if hasattr(os, "splice"):
        with contextlib.suppress(OSError):
            return SystemPipe()
    return MemoryPipe()
