"""A long request while it is received. Its records are later read from the same buffer.

    arrived     │ room                  │ not there yet
    └────────── buffer ────────────────┘              │
    └────────── size ─────────────────────────────────┘

The buffer grows with the bytes that arrive, not with the length that the client announced. The memory budget counts it
as long as it is held here.
"""

from __future__ import annotations

from typing import Final

from gateway_svc.memory_budget import MemoryBudget

#: First capacity; later four times the bytes that have arrived.
_FIRST_CAPACITY: Final = 8 * 1024
#: Most bytes of one read while the memory budget is spent.
FULL_READ_BYTES: Final = 1024
#: The source of new room. Nothing writes to it, so it needs no memory and no time to be cleared.
_ZEROS: Final = memoryview(bytes(1 << 20))


class LongRequest:
    """The buffer of one request; its owner owns it. `drop` must follow."""

    __slots__ = ("_budget", "_owner", "_taken", "buffer", "pause_due", "received", "size")

    def __init__(self, size: int, begin: memoryview, budget: MemoryBudget, owner: object) -> None:
        """Start with the bytes of the request that have arrived, fewer than `size`."""
        self.size = size
        self.received = len(begin)
        self.buffer = bytearray(min(size, max(_FIRST_CAPACITY, 4 * self.received)))
        self.buffer[: self.received] = begin
        #: Whether memory was short when room was needed: reading pauses when the room is filled.
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
        """Return where to receive more bytes: a little while memory is short, until reading is paused."""
        if self.received == len(self.buffer):
            self._grow()
        return memoryview(self.buffer)[self.received :]

    def _grow(self) -> None:
        wanted = min(self.size, 4 * len(self.buffer)) - len(self.buffer)
        if not self._budget.try_take(self._owner, wanted):
            wanted = min(wanted, FULL_READ_BYTES)
            self._budget.take(wanted)
            # After that read: an event loop that has asked for a buffer must not be paused.
            self.pause_due = True
        self._taken += wanted
        for begin in range(0, wanted, len(_ZEROS)):
            self.buffer += _ZEROS[: wanted - begin]

    def drop(self) -> None:
        """Give its memory back: the request is in service and counted there, or its client is gone."""
        self._budget.give(self._taken)
        self._taken = 0
        self._budget.end_overdraft(self._owner)
