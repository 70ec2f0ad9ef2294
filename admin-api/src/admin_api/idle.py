"""Connections that wait for their next user, for a while. An event loop owns them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Idle(Generic[T]):
    """The last `count_max` of them, the oldest first. One that nobody took for `idle_s` is closed."""

    def __init__(self, close: Callable[[T], None], *, count_max: int, idle_s: float) -> None:
        self._close = close
        self._count_max = count_max
        self._idle_s = idle_s
        #: Each with the event loop's time at which it is closed.
        self._waiting: deque[tuple[T, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, thing: T) -> None:
        loop = asyncio.get_running_loop()
        self._waiting.append((thing, loop.time() + self._idle_s))
        if len(self._waiting) > self._count_max:
            self._close(self._waiting.popleft()[0])
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._expire)

    def take(self) -> T | None:
        """Return the one that was used last."""
        return self._waiting.pop()[0] if self._waiting else None

    def close(self) -> None:
        """Close all."""
        while self._waiting:
            self._close(self._waiting.popleft()[0])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiting and self._waiting[0][1] <= loop.time():
            self._close(self._waiting.popleft()[0])
        if self._waiting:
            self._timer = loop.call_at(self._waiting[0][1], self._expire)
