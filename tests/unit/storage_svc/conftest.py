"""Time that tests of storage play, and what they wait for by the real clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

#: So many times slower than a real clock.
_SLOWNESS = 50


class PlayedTime:
    """The event loop's clock goes slowly, so that what the machine takes hardly counts, and on when it is told to."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real_time = loop.time
        self._began = loop.time()
        self._passed = 0.0

    def now(self) -> float:
        return self._began + (self._real_time() - self._began) / _SLOWNESS + self._passed

    async def go_on(self, seconds: float) -> None:
        """What is due by then has been called; what that leads to in threads may be under way."""
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
    """By the real clock, whatever the event loop's is."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.to_thread(time.sleep, 0.01)
