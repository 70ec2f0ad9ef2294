"""Turns of an event loop that all long requests share: together they take TURN_S of each turn, in order of arrival.

A long request works in steps of less than a millisecond. If each long request took a step in each turn, a turn would
last as long as there are such requests, and all others would wait. So the steps of all of them stand in one queue. A
request has one step in the queue at a time, and adds the next one at its end: no request waits for all of another.

    turn 1: [A1] [B1]    turn 2: [C1] [A2]    turn 3: [B2] [C2]    between turns the loop serves all short requests

Strangers, clients whose user is not known yet, have a separate queue with one step in each turn. However many begin
handshakes and logins, others wait for one of them at a time.

First steps have a second queue. While STEPS_MAX others wait, only one of STARTS_EVERY steps is a first one:
requests in progress end before others take memory.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

#: Seconds of a turn after which no further step begins: less than most short requests take from end to end.
TURN_S: Final = 0.0005

#: Steps of requests in progress that may wait while further requests begin.
STEPS_MAX: Final = 4
#: Steps of a long queue among which one is the first of a request: short requests may become long ones without end.
STARTS_EVERY: Final = 16

_Turns = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, "SharedTurns"]
_of_loops: Final[_Turns] = weakref.WeakKeyDictionary()
_of_strangers: Final[_Turns] = weakref.WeakKeyDictionary()


class SharedTurns:
    """The queue of one event loop, which alone uses it. `shared_turns` finds it."""

    __slots__ = ("_begun", "_is_due", "_is_open", "_loop", "_since_start", "_starts", "_steps", "_turn_s", "_watch")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        watch: Callable[[], float] = time.perf_counter,
        turn_s: float | None = None,
    ) -> None:
        """Wait for steps. `turn_s`: seconds of a turn after which no further step begins; TURN_S if None."""
        self._loop = weakref.ref(loop)
        self._turn_s = turn_s
        self._watch = watch
        self._steps: deque[Callable[[], None] | asyncio.Future[None]] = deque()
        self._starts: deque[Callable[[], None] | asyncio.Future[None]] = deque()
        #: Steps since the last first step of a request.
        self._since_start = 0
        #: Whether this turn has no time left for a step that is not in the queue.
        self._begun = False
        #: Whether the step that runs now may begin a request.
        self._is_open = False
        self._is_due = False

    def __len__(self) -> int:
        """Return the number of steps that wait."""
        return len(self._steps) + len(self._starts)

    def soon(self, step: Callable[[], None]) -> None:
        """Run a step in a later turn. An error that it raises goes to the loop's exception handler."""
        self._steps.append(step)
        self._await_turn()

    def start_soon(self, step: Callable[[], None]) -> None:
        """Run the first step of a request in a later turn, which `admits` it then."""
        self._starts.append(step)
        self._await_turn()

    def admits(self) -> bool:
        """Return whether a long request may begin at once, and count its first step to this turn.

        It may if no step waits and none began in this turn, or if a step of the queue asks.
        """
        if self._is_open:
            self._is_open = False
            return True
        if self._begun or self._starts or self._steps:
            return False
        self._begun = True
        self._await_turn()
        return True

    async def first(self) -> None:
        """Wait until a long request may begin; do not wait if it may at once."""
        if not self.admits():
            await self._in_queue(self._starts)

    async def next(self) -> None:
        """Wait for the request's next turn, a later one in any case."""
        if self.admits():
            await asyncio.sleep(0)
        else:
            await self._in_queue(self._steps)

    async def _in_queue(self, queue: deque[Callable[[], None] | asyncio.Future[None]]) -> None:
        waiter = asyncio.get_running_loop().create_future()
        queue.append(waiter)
        self._await_turn()
        await waiter

    def _await_turn(self) -> None:
        if not self._is_due:
            loop = self._loop()
            if loop is not None:
                self._is_due = True
                loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = self._begun = False
        if not self._steps and not self._starts:
            return
        self._begun = True
        self._await_turn()
        end = self._watch() + (TURN_S if self._turn_s is None else self._turn_s)
        while self._steps or self._starts:
            step = self._next_step()
            if isinstance(step, asyncio.Future):
                if step.done():  # its task was cancelled
                    continue
                step.set_result(None)  # the task goes on in the next turn, for an unknown time
                return
            self._is_open = True
            try:
                step()
            except Exception as error:
                self._failed(error)
            finally:
                self._is_open = False
            if self._watch() >= end:  # mutant: shared-turn-ends
                return

    def _next_step(self) -> Callable[[], None] | asyncio.Future[None]:
        steps, starts = self._steps, self._starts
        if starts and (len(steps) < STEPS_MAX or self._since_start >= STARTS_EVERY):
            self._since_start = 0
            return starts.popleft()
        self._since_start += 1
        return steps.popleft()

    def _failed(self, error: Exception) -> None:
        loop = self._loop()
        if loop is not None:
            loop.call_exception_handler({"message": "a step of a long request failed", "exception": error})


def shared_turns(loop: asyncio.AbstractEventLoop) -> SharedTurns:
    """Return the turns of an event loop's long requests."""
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = SharedTurns(loop)
    return found


def stranger_turns(loop: asyncio.AbstractEventLoop) -> SharedTurns:
    """Return the turns of an event loop's clients whose users are not known: one step in each."""
    found = _of_strangers.get(loop)
    if found is None:
        found = _of_strangers[loop] = SharedTurns(loop, turn_s=0.0)
    return found
