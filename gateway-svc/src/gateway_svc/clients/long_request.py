"""A long request while it is received. Its records are later read from the same buffer.

    arrived     │ room                  │ not allocated
    └────────── buffer ────────────────┘              │
    └────────── size ─────────────────────────────────┘

The buffer grows with the bytes that arrive, not with the length that the client announced. `RequestMemory` counts it
as long as it is held here.
"""

from __future__ import annotations

from typing import Final

from gateway_svc.request_memory import RequestMemory, Share

#: The least capacity; later four times the bytes that have arrived.
_FIRST_CAPACITY: Final = 8 * 1024
_FACTOR: Final = 4
#: The same while memory is scarce, and for new connections, but at most STEP_BYTES more than have arrived.
_SCARCE_FACTOR: Final = 2
STEP_BYTES: Final = 1 << 20
#: The source of new room. Nothing writes to it, so it needs no memory and no time to be cleared.
_ZEROS: Final = memoryview(bytes(1 << 20))


class LongRequest:
    """The buffer of one request, owned by its FrameReader. `drop` must follow."""

    __slots__ = ("_counted", "_memory", "_owner", "_share", "buffer", "received", "size")

    def __init__(self, size: int, begin: memoryview, memory: RequestMemory, share: Share, owner: object) -> None:
        """Start with the bytes of the request that have arrived, fewer than `size`."""
        self.size = size
        self.received = len(begin)
        self._memory = memory
        self._share = share
        self._owner = owner
        self._counted = self.received
        memory.begin(share, self._counted)
        self.buffer = bytearray(begin)
        self.grow()

    @property
    def memory_held(self) -> int:
        """The bytes counted in the memory: the buffer's length after the next `room`."""
        return self._counted

    @property
    def whole(self) -> bool:
        return self.received == self.size

    @property
    def is_full(self) -> bool:
        """Whether there is no room although the request is not whole."""
        return self.received == self._counted < self.size

    @property
    def share(self) -> Share:
        return self._share

    def room(self) -> memoryview:
        """Return where to receive more bytes. The buffer grows only here: at other times the event loop uses it."""
        missing = self._counted - len(self.buffer)
        if missing:
            try:
                self._extend(missing)
            except BufferError:  # a stall watch or a debugger that reads stacks may hold the event loop's view
                self.buffer = self.buffer[: self.received]
                self._extend(self._counted - self.received)
        return memoryview(self.buffer)[self.received :]

    def _extend(self, missing: int) -> None:
        for begin in range(0, missing, len(_ZEROS)):
            self.buffer += _ZEROS[: missing - begin]

    @property
    def wanted(self) -> int:
        """The bytes that a full buffer is to grow by."""
        have = self._counted
        if self._memory.scarce or self._share.is_strict:
            room = min(have * _SCARCE_FACTOR, have + STEP_BYTES)
        else:
            room = have * _FACTOR
        return min(self.size, max(_FIRST_CAPACITY, room)) - have

    def grow(self) -> bool:
        """Make room if memory allows it; return whether there is some."""
        wanted = self.wanted
        if not self._memory.try_grow(self._owner, self._share, self._counted, wanted):
            return False
        self._counted += wanted
        return True

    def granted(self, count: int) -> None:
        """Make room: memory has granted the bytes."""
        self._memory.resize(self._share, self._counted, self._counted + count)
        self._counted += count

    def drop(self) -> None:
        """Give the memory back: the request is counted as in service now, or its client is gone."""
        counted, self._counted = self._counted, 0
        self._memory.end(self._owner, self._share, counted)
