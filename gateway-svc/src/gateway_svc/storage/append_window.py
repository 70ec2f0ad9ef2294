"""Appends on their way to a storage that is another process: how many bytes, and which connections wait for room.

Storage is kept busiest when one batch of a megabyte is there while another is written. Whoever comes with a small
request then waits for both, and some wait for each: beside small requests there is one at a time.
"""

from __future__ import annotations

from typing import Final

from gateway_svc.memory_budget import MemoryBudget

#: What is shorter than this costs others little.
LARGE_BYTES: Final = 64 * 1024
#: While small requests come as well, connections wait with theirs while storage has not taken as many bytes.
NARROW_BYTES: Final = 512 * 1024
#: The same after so many large frames without a small request among them.
WIDE_BYTES: Final = 1024 * 1024
WIDE_AFTER: Final = 64
#: Small requests wait from so many times the limit on: they have room beside large ones, unless one alone takes that.
_SMALL_LIMITS: Final = 4


class AppendWindow(MemoryBudget):
    """Bytes that storage has not taken yet. Whoever finds no room waits and is called back, in the order they came."""

    __slots__ = ("_large_frames",)

    def __init__(self) -> None:
        super().__init__(NARROW_BYTES)
        self._large_frames = 0

    def admits(self, size: int) -> bool:
        """Whether a request of that length may start. A small one may while there is room beyond the limit."""
        return self.used < self.limit or (size < LARGE_BYTES and self.used < _SMALL_LIMITS * self.limit)

    def begin(self, size: int) -> None:
        """A request of so many bytes has started."""
        if size < LARGE_BYTES:
            self._large_frames = 0
            self.limit = NARROW_BYTES
        self.take(size)

    def end(self, size: int) -> None:
        """Storage has taken a frame with so many bytes of requests."""
        if size >= LARGE_BYTES:
            self._large_frames += 1
            if self._large_frames == WIDE_AFTER:
                self.limit = WIDE_BYTES
        self.give(size)
