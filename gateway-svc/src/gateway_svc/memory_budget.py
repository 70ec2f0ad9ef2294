"""A budget for bytes that a gateway holds: answers not yet sent, or appends on their way to storage.

Owners that find it full wait. They are called back in the order of their arrival once bytes were returned.
"""

from __future__ import annotations

from collections.abc import Callable

from service_chassis import logs

_log = logs.get(__name__)


class MemoryBudget:
    """A budget of a gateway, which owns it and uses it from its event loop only."""

    __slots__ = ("_waiting", "full", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        #: Whether no bytes are left.
        self.full = limit <= 0
        self._waiting: dict[object, Callable[[], None]] = {}

    def take(self, count: int) -> None:
        """Count bytes that are held already."""
        self.used += count
        self.full = self.used >= self.limit

    def give(self, count: int) -> None:
        """Return bytes, and call back the owners that wait, as long as there is room."""
        self.used -= count
        self.full = self.used >= self.limit
        while self._waiting and not self.full:
            resume = self._waiting.pop(next(iter(self._waiting)))
            try:
                resume()
            except Exception:  # of one owner, while others wait
                _log.exception("not resumed")

    def wait(self, owner: object, resume: Callable[[], None]) -> None:
        """Call `resume` once when there is room."""
        self._waiting[owner] = resume

    def forget(self, owner: object) -> None:
        """Remove an owner that waits: it is gone."""
        self._waiting.pop(owner, None)

    def check_invariants(self) -> None:
        """Assert that no more bytes were returned than were held."""
        assert self.used >= 0
        assert self.full == (self.used >= self.limit)
