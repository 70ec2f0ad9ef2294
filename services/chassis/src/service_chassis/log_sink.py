"""Standard error as the end of every log line: writing to it never raises and never waits.

A full disk, a pipe without a reader and a pipe that nobody empties all lose lines, and never harm the process.
"""

from __future__ import annotations

import os
import select
import sys
from typing import Final

#: Bytes that a pipe accepts at once when it is reported as writable: PIPE_BUF of Linux.
_PIECE: Final = 4096


class Sink:
    """The writer of finished lines. The process's log configuration owns it; any thread may use it."""

    def __init__(self) -> None:
        #: Lines lost since the last notice of lost lines.
        self.dropped = 0
        self._is_cut = False

    def write(self, line: str) -> bool:
        """Write one line, and return whether all of it was written. If not, it counts as dropped."""
        stream = sys.stderr
        if stream is None:  # a detached process may have closed it
            return True
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError):  # the stream has no file, in tests, or it was closed
            try:
                print(line, file=stream, flush=True)
            except (OSError, ValueError):
                self.dropped += 1
                return False
            return True
        data = ("\n" * self._is_cut + line + "\n").encode("utf-8", "backslashreplace")
        written = _write(descriptor, data)
        if written:
            self._is_cut = written < len(data)
        self.dropped += written < len(data)
        return written == len(data)


def _write(descriptor: int, data: bytes) -> int:
    """Write as much as the file accepts without a wait; return the number of bytes."""
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    written = 0
    try:
        while written < len(data):
            if not room.poll(0):
                break
            written += os.write(descriptor, data[written : written + _PIECE])
    except OSError:
        pass
    return written
