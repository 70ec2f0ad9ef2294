"""Small pools of threads, one for each purpose.

Work that hangs, such as a sync on a dead disk or the wait for a helper process, holds threads of one purpose only.
The default executor of the event loop has a few threads for all; no work that may wait for a disk or for another
process uses it while clients are served (tests/unit/storage_svc/test_threads.py has the list of exceptions).
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

#: Every object of the process, with the lock of this set: a process may have several loops, each with its storage.
_all: Final[weakref.WeakSet[Threads]] = weakref.WeakSet()
_all_lock: Final = threading.Lock()


class Threads:
    """The threads of one purpose. They begin with the first work. Idle ones wait for more until `end_idle`."""

    def __init__(self, purpose: str, count: int) -> None:
        """Allow `count` works at a time; more wait in order."""
        self._purpose = purpose
        self._count = count
        self._pool: ThreadPoolExecutor | None = None
        self._loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
        with _all_lock:
            _all.add(self)

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Begin the work in a thread, and return its result as a future of the running event loop."""
        return self.run_for(asyncio.get_running_loop(), work, *args, **kwargs)

    def run_for(
        self, loop: asyncio.AbstractEventLoop, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Do as `run` does; the loop need not run yet."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, f"millrace-{self._purpose}")
        self._loop = weakref.ref(loop)
        return asyncio.wrap_future(self._pool.submit(work, *args, **kwargs), loop=loop)

    def end(self, *, wait: bool = False) -> None:
        """Let each thread end as soon as it has no work; `wait` until then. Later work begins new ones."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait)
            self._pool = None

    def works_for(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether the last work was for this loop."""
        return self._loop is not None and self._loop() is loop


def end_idle(loop: asyncio.AbstractEventLoop) -> None:
    """Let the threads end that have worked for a loop, whose thread calls this. A stopped storage leaves none."""
    with _all_lock:
        found = list(_all)
    for each in found:
        if each.works_for(loop):
            each.end()
