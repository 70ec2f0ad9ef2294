"""Appends on their way to a storage that is another process: how many bytes, and which connections wait for room."""

from __future__ import annotations

from typing import Final

from gateway_svc.memory import MemoryBudget

#: What is shorter than this costs others little.
LARGE_BYTES: Final = 64 * 1024
#: Small requests wait from so many times the limit on: they have room beside large ones, unless one alone takes that.
_SMALL_LIMITS: Final = 4


class AppendWindow(MemoryBudget):
    """Bytes that storage has not taken yet. Whoever finds no room waits and is called back, in the order they came."""

    __slots__ = ()

    def admits(self, size: int) -> bool:
        """Whether a request of that length may start. A small one may while there is room beyond the limit."""
        return self.used < self.limit or (size < LARGE_BYTES and self.used < _SMALL_LIMITS * self.limit)
