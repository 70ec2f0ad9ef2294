"""Polling for more work, for a moment, before the event loop sleeps.

A processor with nothing to do halts, and waking it takes 50 µs or more on a virtual machine: longer than a single
request takes here. So when storage is in this process, the loop does not wait for its sockets after an answer. It polls
them until nothing has arrived for a while:

    answer sent ── polls, again and again ── request, answer ── polls … nothing for `window_us` ── sleeps

Polling uses processor time that other processes may need, so each poll yields to them. After a try without success,
twice as many occasions pass before the next try, up to PASSED_MAX; after a success, none. So sparse requests, such as
heartbeats, cost almost nothing more.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from typing import Final

#: Most occasions that pass between two tries.
PASSED_MAX: Final = 255

_clock: Final = time.perf_counter


class IdlePolling:
    """The polling of one event loop; the gateway owns it."""

    __slots__ = ("_found", "_loop", "_passed", "_polling", "_to_pass", "_until", "_window_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, window_us: int) -> None:
        """Poll for `window_us` microseconds after an answer; never if that is 0."""
        self._loop = loop
        self._window_s = window_us / 1e6
        self._polling = False
        #: Whether another answer was sent while it polled.
        self._found = False
        self._until = 0.0
        #: Occasions that pass after a try without success, and those that are left of them.
        self._passed = 0
        self._to_pass: float = 0 if window_us else math.inf

    @property
    def is_polling(self) -> bool:
        """Whether the loop polls just now."""
        return self._polling

    def expect_more(self) -> None:
        """Poll if it is worth while: an answer was sent, and its client is likely to send more."""
        if self._to_pass:
            self._to_pass -= 1
            return
        self._until = _clock() + self._window_s
        if self._polling:
            self._found = True
        else:
            self._polling = True
            self._found = False
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        """Call this again next turn: a loop that has a callback polls its sockets without waiting for them."""
        if _clock() < self._until:
            os.sched_yield()
            self._loop.call_soon(self._poll)
            return
        self._polling = False
        self._passed = 0 if self._found else min(2 * self._passed + 1, PASSED_MAX)
        self._to_pass = self._passed
