"""Long work on an event loop, in steps: between two steps the loop serves others.

A step lasts less than a millisecond: a hundred partitions to read, or five hundred names to list. Each place with long
work states how many of its elements are a step. The steps of all long work wait in one queue, and share half a
millisecond of each turn of the loop (shared_turns.py).

    Steps        work without a task: a generator that yields after each step
    TaskSteps    work of a task, which counts its elements
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Self

from service_chassis.shared_turns import shared_turns


class Steps:
    """Long work without a task. Each step is taken in a later turn; the first one, too.

    The generator may return a function that gives up what the work has begun.
    """

    __slots__ = ("__weakref__", "_begun", "_failed", "_steps", "_turns")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, steps: Iterator[object], failed: Callable[[Exception], object]
    ) -> None:
        """Begin; `failed` is called with the error of a step, which is the last one then."""
        self._turns = shared_turns(loop)
        self._steps: Iterator[object] | None = steps
        self._failed = failed
        self._begun: Callable[[], None] | None = None
        self._turns.soon(self._step)

    @classmethod
    def of_one(
        cls, loop: asyncio.AbstractEventLoop, work: Callable[[], object], failed: Callable[[Exception], object]
    ) -> Self:
        """Do work of one step in a later turn."""
        return cls(loop, (step() for step in (work,)), failed)

    def give_up(self) -> None:
        """Take no further step, and give up what the work has begun."""
        self._steps = None
        if self._begun is not None:
            self._begun()

    def finish(self) -> None:
        """Take all steps that are left, now."""
        while self._take():
            pass

    def _step(self) -> None:
        if self._take():
            self._turns.soon(self._step)

    def _take(self) -> bool:
        """Take one step; return whether another may be left."""
        if self._steps is None:
            return False
        try:
            next(self._steps)
        except StopIteration as end:
            self._steps, self._begun = None, end.value
        except Exception as error:
            self._steps = None
            self._failed(error)
        return self._steps is not None


class TaskSteps:
    """The steps of a task, which takes its next turn after a number of elements."""

    __slots__ = ("_done", "_size", "_turns")

    def __init__(self, size: int) -> None:
        """Let `size` elements be a step."""
        self._turns = shared_turns(asyncio.get_running_loop())
        self._size = size
        self._done = 0

    async def begin(self) -> None:
        """Wait until long work may begin; do not wait if it may at once."""
        await self._turns.first()

    async def count(self, elements: int = 1) -> None:
        """Count elements that are done, and wait for the next turn when they are a step."""
        self._done += elements
        if self._done >= self._size:
            self._done = 0
            await self._turns.next()
