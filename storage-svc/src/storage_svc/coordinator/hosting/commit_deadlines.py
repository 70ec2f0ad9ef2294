"""Offset commits that the disk leaves without an answer: their committers get 7 REQUEST_TIMED_OUT in time.

All commits wait equally long, so the oldest is the first that is late: one timer does for all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from protocol_lib.errors import ErrorCode


class _Waiting:
    __slots__ = ("deadline", "done")

    def __init__(self, done: Callable[[int], None], deadline: float) -> None:
        #: None once it is answered.
        self.done: Callable[[int], None] | None = done
        self.deadline = deadline

    def answer(self, code: int) -> None:
        """Answer the committer; only the first answer counts."""
        done, self.done = self.done, None
        if done is not None:
            done(code)


class CommitDeadlines:
    """The commits that wait for the disk. Owned by the hosted groups, on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        self._loop = loop
        self._timeout_s = timeout_ms / 1000
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, done: Callable[[int], None]) -> Callable[[int], None]:
        """Return a function to call instead of `done`, which is called once: with its code, or with 7 when late."""
        waiting = _Waiting(done, self._loop.time() + self._timeout_s)
        self._waiting.append(waiting)
        while self._waiting[0].done is None:
            self._waiting.popleft()
        if self._timer is None:
            self._timer = self._loop.call_at(waiting.deadline, self._due)
        return waiting.answer

    def _due(self) -> None:
        now = self._loop.time()
        self._timer = None
        while self._waiting and (self._waiting[0].done is None or self._waiting[0].deadline <= now):
            self._waiting.popleft().answer(ErrorCode.REQUEST_TIMED_OUT)  # mutant: commit-deadline-answered
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_at(self._waiting[0].deadline, self._due)
