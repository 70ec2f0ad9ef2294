"""A request longer than SMALL_REQUEST_BYTES while it is received: a buffer of its own, from which its records are read.

    arrived     │ room                  │ not there yet
    └────────── buffer ────────────────┘              │
    └────────── size ─────────────────────────────────┘

The buffer grows with the bytes that arrive, not with the length announced, and is counted in the memory budget as long
as it is held here.
"""

from __future__ import annotations

from typing import Final

from gateway_svc.memory_budget import MemoryBudget

#: First capacity; then four times what has arrived.
_FIRST_CAPACITY: Final = 8 * 1024
#: How much is read at once while the memory budget is spent.
FULL_READ_BYTES: Final = 1024
#: What room is made of: never written, so that it takes no memory, nor time to be cleared.
_ZEROS: Final = memoryview(bytes(1 << 20))


class LongRequest:
    """Owned by its connection, `owner`. `drop` must follow."""

    __slots__ = ("_budget", "_owner", "_taken", "buffer", "pause_due", "received", "size")

    def __init__(self, size: int, begin: memoryview, budget: MemoryBudget, owner: object) -> None:
        """`begin`: what has arrived of it, less than all."""
        self.size = size
        self.received = len(begin)
        self.buffer = bytearray(min(size, max(_FIRST_CAPACITY, 4 * self.received)))
        self.buffer[: self.received] = begin
        #: Whether memory was short when room was asked for: reading pauses when what there is has been filled.
        self.pause_due = False
        self._budget = budget
        self._owner = owner
        self._taken = len(self.buffer)
        budget.take(self._taken)

    @property
    def memory_held(self) -> int:
        """Bytes of the budget that it holds."""
        return self._taken

    @property
    def whole(self) -> bool:
        return self.received == self.size

    def room(self) -> memoryview:
        """Where to receive more. Without memory to take, a little must do until reading is paused."""
        if self.received == len(self.buffer):
            self._grow()
        return memoryview(self.buffer)[self.received :]

    def _grow(self) -> None:
        wanted = min(self.size, 4 * len(self.buffer)) - len(self.buffer)
        if not self._budget.try_take(self._owner, wanted):
            wanted = min(wanted, FULL_READ_BYTES)
            self._budget.take(wanted)
            # Once that has been read: an event loop that has asked for a buffer must not be told to pause.
            self.pause_due = True
        self._taken += wanted
        for begin in range(0, wanted, len(_ZEROS)):
            self.buffer += _ZEROS[: wanted - begin]

    def drop(self) -> None:
        """It is being served, and counted as such, or its client is gone."""
        self._budget.give(self._taken)
        self._taken = 0
        self._budget.end_overdraft(self._owner)
