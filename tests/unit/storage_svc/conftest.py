"""Simulated time for tests of storage, and waits by the real clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

#: Factor by which the event loop's clock is slower than a real one.
_SLOWNESS = 50
_STEP_S = 0.25


class PlayedTime:
    """A slow clock of the event loop. The speed of the machine hardly counts, and `go_on` advances the clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real_time = loop.time
        self._began = loop.time()
        self._passed = 0.0

    def now(self) -> float:
        return self._began + (self._real_time() - self._began) / _SLOWNESS + self._passed

    async def go_on(self, seconds: float) -> None:
        """Advance the clock in small steps, and run the callbacks that are due by then. Their work in threads may
        still be under way.
        """
        while seconds > _STEP_S:
            await self.stand_still(_STEP_S)
            seconds -= _STEP_S
        await self.stand_still(seconds)

    async def stand_still(self, seconds: float) -> None:
        """Advance the clock at once, as for a process that was stopped, and run the callbacks."""
        self._passed += seconds
        for _ in range(10):  # a timer may find that it is not due yet, and wait for the rest
            await asyncio.sleep(0)


@pytest.fixture
async def played() -> AsyncIterator[PlayedTime]:
    """For sessions and delays: they are seconds long, and pass at once."""
    loop = asyncio.get_running_loop()
    clock = PlayedTime(loop)
    loop.time = clock.now  # type: ignore[method-assign]
    yield clock
    del loop.time


async def until(condition: Callable[[], object]) -> None:
    """Wait for the condition by the real clock, with any clock of the event loop."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.to_thread(time.sleep, 0.01)
