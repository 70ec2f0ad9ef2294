"""One budget for the bytes a gateway holds for its clients: requests being received or served, answers not yet sent.

A connection takes bytes before it grows a request's buffer. When nothing is left it pauses and is called back, first
come, first served, once bytes were given back. So that requests received in part can never block each other for good,
one connection at a time may take beyond the limit: the whole is bounded by the limit plus one request.
"""

from __future__ import annotations

from collections.abc import Callable


class MemoryBudget:
    """Owned by the gateway; used from its event loop only."""

    __slots__ = ("_overdrawer", "_waiting", "full", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        #: Whether nothing is left.
        self.full = limit <= 0
        self._waiting: dict[object, Callable[[], None]] = {}
        self._overdrawer: object | None = None

    def try_take(self, owner: object, count: int) -> bool:
        """Takes bytes for a request being received, if there is room or `owner` is the one who may go beyond."""
        if self.used + count > self.limit:
            if self._overdrawer is None:
                self._overdrawer = owner
            elif self._overdrawer is not owner:
                return False
        self.take(count)
        return True

    def take(self, count: int) -> None:
        """Counts bytes that are here already."""
        self.used += count
        self.full = self.used >= self.limit

    def give(self, count: int) -> None:
        """Returns bytes and calls back those who wait, as long as there is room."""
        self.used -= count
        self.full = self.used >= self.limit
        while self._waiting and not self.full:
            owner = next(iter(self._waiting))
            self._waiting.pop(owner)()

    def wait(self, owner: object, resume: Callable[[], None]) -> None:
        self._waiting[owner] = resume

    def end_overdraft(self, owner: object) -> None:
        """The request that went beyond the limit is complete or abandoned: another may."""
        if self._overdrawer is owner:
            self._overdrawer = None
            if self._waiting:
                first = next(iter(self._waiting))
                self._waiting.pop(first)()

    def check_invariants(self) -> None:
        """Assert that what was given back was taken before, and that all who wait have to."""
        assert self.used >= 0
        assert self.full == (self.used >= self.limit)
        assert self._overdrawer not in self._waiting

    def forget(self, owner: object) -> None:
        """The owner is gone."""
        self._waiting.pop(owner, None)
        self.end_overdraft(owner)
