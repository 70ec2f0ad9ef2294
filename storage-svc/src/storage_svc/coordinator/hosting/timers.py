"""Deadlines by key on the event loop. Most are pushed back long before they are due, as by every heartbeat. So pushing
back only stores the new deadline. The loop's handle finds it when it fires, and waits again.

Handles fire on a grid of GRID_S, at the last of its points before the deadline, and from there at the deadline itself:
sessions that go on share their wake-ups, and one that ends is not late.

After a standstill of the event loop no deadline is over before GRACE_S have passed: the loop reads its sockets first.
So a process that was stopped, or had no CPU, expels no member whose heartbeats wait in a socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

GRID_S: Final = 0.25
#: Seconds between two checks of the loop's delay, the delay that is a standstill, and the grace after a standstill.
WATCH_S: Final = 0.5
STANDSTILL_S: Final = 0.5
GRACE_S: Final = 2.0


class Deadline:
    """One that runs, until it is cancelled or has fired. Owned by its Timers."""

    __slots__ = ("at", "fires_at", "handle", "runs")

    def __init__(self, at: float) -> None:
        #: The deadline, by the event loop's clock.
        self.at = at
        #: The time at which its handle fires; uvloop's handles do not tell it.
        self.fires_at: float
        self.handle: asyncio.Handle
        self.runs = True


class Timers(Generic[KeyT]):
    """Owner: the coordinator; `fired` is called on the loop, once per `set` that was neither cancelled nor repeated."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fired: Callable[[KeyT], None]) -> None:
        self._loop = loop
        self._fired = fired
        self._running: dict[KeyT, Deadline] = {}
        #: The time of the next check of the loop's delay; its handle while deadlines run.
        self._watched_at = 0.0
        self._watch: asyncio.Handle | None = None
        #: The end of the time in which no deadline is over.
        self._grace_until = 0.0

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, key: object) -> bool:
        return key in self._running

    def set(self, key: KeyT, delay_ms: int) -> None:
        known = self._running.get(key)
        if known is not None:
            if self.push_back(known, delay_ms):
                return
            self.cancel(key)
        at = self._loop.time() + delay_ms / 1000
        self._running[key] = deadline = Deadline(at)
        if self._watch is None:
            self._start_watch()
        self._schedule(deadline, key)

    def running(self, key: KeyT) -> Deadline | None:
        """Return the deadline, for `push_back`."""
        return self._running.get(key)

    def push_back(self, deadline: Deadline, delay_ms: int) -> bool:
        """Push a deadline back, as `set` of its key would. False, and nothing has changed, if it does not run any more
        or would be sooner than its handle."""
        at = self._loop.time() + delay_ms / 1000
        if not deadline.runs or at < deadline.fires_at:
            return False
        deadline.at = at
        return True

    def extend(self, deadline: Deadline, delay_ms: int) -> None:
        """Push a deadline that would be over before `delay_ms` have passed back to that time."""
        if self._loop.time() + delay_ms / 1000 > deadline.at:
            self.push_back(deadline, delay_ms)

    def cancel(self, key: KeyT) -> None:
        deadline = self._running.pop(key, None)
        if deadline is not None:
            deadline.runs = False
            deadline.handle.cancel()

    def close(self) -> None:
        for key in list(self._running):
            self.cancel(key)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _start_watch(self) -> None:
        self._watched_at = self._loop.time() + WATCH_S
        self._watch = self._loop.call_at(self._watched_at, self._on_watch)

    def _on_watch(self) -> None:
        self._note_standstill()
        if self._running:
            self._start_watch()
        else:
            self._watch = None

    def _note_standstill(self) -> None:
        """Begin a time of grace if the loop is late. The first handle that fires after a standstill finds that out."""
        now = self._loop.time()
        if self._watch is not None and now - self._watched_at > STANDSTILL_S:
            self._watched_at = now
            self._grace_until = now + GRACE_S

    def _schedule(self, deadline: Deadline, key: KeyT) -> None:
        on_grid = deadline.at - deadline.at % GRID_S
        deadline.fires_at = on_grid if on_grid > self._loop.time() else deadline.at
        deadline.handle = self._loop.call_at(deadline.fires_at, self._due, key)

    def _due(self, key: KeyT) -> None:
        deadline = self._running[key]
        if deadline.at > deadline.fires_at:
            self._schedule(deadline, key)
            return
        self._note_standstill()
        if self._loop.time() < self._grace_until:
            deadline.at = self._grace_until
            self._schedule(deadline, key)
            return
        del self._running[key]
        deadline.runs = False
        self._fired(key)
