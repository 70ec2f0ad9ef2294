"""Looks for more work for a moment before the event loop sleeps.

A processor that has nothing to do halts, and waking it takes 50 µs and more on a virtual machine: longer than all that
a lone request costs here. So where storage is in this process, and nobody else needs the processor next, the loop does
not wait for its sockets after an answer but asks them, until nothing has come for a while:

    answer sent ── asks, again and again ── request, answer ── asks … nothing for `window_us` ── sleeps

Asking takes processor time from others, so it yields to them each time, and it has to prove its worth: each time that
it finds nothing, twice as many occasions are let pass (up to PASSED_MAX) before the next try; when it finds something,
none. What is spread out in time, such as heartbeats or a record now and then, costs as good as nothing more.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from typing import Final

#: Most occasions that are let pass between two tries.
PASSED_MAX: Final = 255

_clock: Final = time.perf_counter


class IdlePolling:
    """Owned by the gateway's Services."""

    __slots__ = ("_asking", "_found", "_loop", "_passed", "_to_pass", "_until", "_window_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, window_us: int) -> None:
        """Never asks if `window_us` is 0."""
        self._loop = loop
        self._window_s = window_us / 1e6
        self._asking = False
        #: Whether more came while it was asking.
        self._found = False
        self._until = 0.0
        #: Occasions that are let pass after a try in vain, and those that are left of them.
        self._passed = 0
        self._to_pass: float = 0 if window_us else math.inf

    @property
    def asking(self) -> bool:
        """Whether the loop looks for more just now."""
        return self._asking

    def expect_more(self) -> None:
        """What was sent just now is likely to be followed by something from outside."""
        if self._to_pass:
            self._to_pass -= 1
            return
        self._until = _clock() + self._window_s
        if self._asking:
            self._found = True
        else:
            self._asking = True
            self._found = False
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        """A loop that has something to call looks at its sockets without waiting for them."""
        if _clock() < self._until:
            os.sched_yield()
            self._loop.call_soon(self._ask)
            return
        self._asking = False
        self._passed = 0 if self._found else min(2 * self._passed + 1, PASSED_MAX)
        self._to_pass = self._passed
