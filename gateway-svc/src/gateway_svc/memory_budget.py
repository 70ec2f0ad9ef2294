"""A budget for the bytes that a gateway holds for its clients: requests in part or in service, or answers not yet sent.

A connection takes bytes before it grows a request's buffer. When none are left it pauses; it is called back, first
come, first served, once bytes were returned. One connection at a time may take beyond the limit, so that requests
received in part can never block each other for good. So the sum is at most the limit plus one request.
"""

from __future__ import annotations

from collections.abc import Callable


class MemoryBudget:
    """A budget of a gateway, which owns it and uses it from its event loop only."""

    __slots__ = ("_overdrawer", "_waiting", "full", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        #: Whether no bytes are left.
        self.full = limit <= 0
        self._waiting: dict[object, Callable[[], None]] = {}
        self._overdrawer: object | None = None

    def try_take(self, owner: object, count: int) -> bool:
        """Take bytes for a request that is received; return whether there was room, or `owner` may go beyond."""
        if self.used + count > self.limit:
            if self._overdrawer is None:
                self._overdrawer = owner
            elif self._overdrawer is not owner:
                return False
        self.take(count)
        return True

    def take(self, count: int) -> None:
        """Count bytes that are held already."""
        self.used += count
        self.full = self.used >= self.limit

    def give(self, count: int) -> None:
        """Return bytes, and call back the owners that wait, as long as there is room."""
        self.used -= count
        self.full = self.used >= self.limit
        while self._waiting and not self.full:
            owner = next(iter(self._waiting))
            self._waiting.pop(owner)()

    def wait(self, owner: object, resume: Callable[[], None]) -> None:
        """Call `resume` once when there is room."""
        self._waiting[owner] = resume

    def end_overdraft(self, owner: object) -> None:
        """Let another owner go beyond the limit: the request of this one is complete or abandoned."""
        if self._overdrawer is owner:
            self._overdrawer = None
            if self._waiting:
                first = next(iter(self._waiting))
                self._waiting.pop(first)()

    def check_invariants(self) -> None:
        """Assert that no more bytes were returned than were held, and that no owner waits for nothing."""
        assert self.used >= 0
        assert self.full == (self.used >= self.limit)
        assert self._overdrawer not in self._waiting

    def forget(self, owner: object) -> None:
        """Call the owner back no more: it is gone."""
        self._waiting.pop(owner, None)
        self.end_overdraft(owner)
