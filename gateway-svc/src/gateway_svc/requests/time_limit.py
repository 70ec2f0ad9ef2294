"""The time that a request gives to a change of topics or records: `timeout_ms` of CreateTopics and the like."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

#: Seconds beyond the request's own time, for an answer of storage that is on its way.
GRACE_S: Final = 0.5

T = TypeVar("T")


class TimeLimit:
    """The time limit of one request, from now on."""

    def __init__(self, timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + max(timeout_ms, 0) / 1000 + GRACE_S

    async def within(self, work: Callable[[], Coroutine[Any, Any, T]], otherwise: Callable[[], T]) -> T:
        """Return the result of `work`, or that of `otherwise` when the time is over first.

        Work that has begun by then continues, as in Kafka: a client that is answered REQUEST_TIMED_OUT does not know
        its outcome. Other work does not begin.
        """
        left_s = self._until - self._loop.time()
        if left_s <= 0:
            return otherwise()
        task = self._loop.create_task(work())
        try:
            await asyncio.wait({task}, timeout=left_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            return task.result()
        _ABANDONED.add(task)
        task.add_done_callback(_abandoned)
        return otherwise()


#: Work whose requests are answered: the event loop keeps no reference to it.
_ABANDONED: Final[set[asyncio.Task[Any]]] = set()


def _abandoned(task: asyncio.Task[Any]) -> None:
    _ABANDONED.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not report it
