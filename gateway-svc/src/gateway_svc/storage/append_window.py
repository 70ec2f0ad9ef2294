"""The append window: bytes of appends on their way to a separate storage, and connections that wait for room.

Two large batches in flight keep storage busiest, but a small request then waits for both. While small requests arrive,
only one large batch is allowed in flight.
"""

from __future__ import annotations

from typing import Final

from gateway_svc.memory_budget import MemoryBudget

#: Length of a large request or frame: shorter ones cost others little.
LARGE_BYTES: Final = 64 * 1024
#: Bytes in flight from which on connections wait, while small requests arrive as well.
NARROW_BYTES: Final = 512 * 1024
#: The same after WIDE_AFTER large frames without a small request among them.
WIDE_BYTES: Final = 1024 * 1024
WIDE_AFTER: Final = 64
#: Small requests wait only from this multiple of the limit on, so that large ones do not delay them.
_SMALL_LIMITS: Final = 4


class AppendWindow(MemoryBudget):
    """Bytes of appends in flight. Connections that find no room wait, and are called back in the order they came."""

    __slots__ = ("_large_frames",)

    def __init__(self) -> None:
        super().__init__(NARROW_BYTES)
        self._large_frames = 0

    def admits(self, size: int) -> bool:
        """Return whether a request of `size` bytes may start. A small one may while there is room beyond the limit."""
        return self.used < self.limit or (size < LARGE_BYTES and self.used < _SMALL_LIMITS * self.limit)

    def check_invariants(self) -> None:
        """Assert as a budget does, and that only large frames without a small one widen the window."""
        super().check_invariants()
        assert (self.limit == WIDE_BYTES) == (self._large_frames >= WIDE_AFTER)

    def begin(self, size: int) -> None:
        """Count a request of `size` bytes that has started."""
        if size < LARGE_BYTES:
            self._large_frames = 0
            self.limit = NARROW_BYTES
        self.take(size)

    def end(self, size: int) -> None:
        """Give back the `size` bytes of a frame of appends that storage has received."""
        if size >= LARGE_BYTES:
            self._large_frames += 1
            if self._large_frames == WIDE_AFTER:
                self.limit = WIDE_BYTES
        self.give(size)
