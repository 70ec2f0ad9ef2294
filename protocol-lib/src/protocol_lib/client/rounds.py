"""Work in rounds, as the producer's sender and the consumer's fetcher do it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any


class Rounds:
    """Task that calls `begin_round` with the event loop's time until `stop`: when it is woken, and after the number
    of seconds that the last round returned (None: not by itself).

    An exception in a round or in a task next to them is a bug. It goes to `on_failure`, which must let no caller wait
    for work that is not done any more; there are no more rounds then."""

    def __init__(self, begin_round: Callable[[float], float | None], on_failure: Callable[[Exception], None]) -> None:
        self._begin_round = begin_round
        self._on_failure = on_failure
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._helpers: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._go_on())
        self._task.add_done_callback(self._note_end)

    def wake(self) -> None:
        self._wake.set()

    def help(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task next to the rounds, which `stop` cancels too."""
        task = asyncio.create_task(work)
        self._helpers.add(task)
        task.add_done_callback(self._note_end)

    async def stop(self) -> None:
        """Cancel all tasks."""
        tasks = [task for task in (self._task, *self._helpers) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._helpers.discard(task)
        if not task.cancelled() and isinstance(fault := task.exception(), Exception):
            if self._task is not None:
                self._task.cancel()
            self._on_failure(fault)

    async def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            wait_s = self._begin_round(loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
