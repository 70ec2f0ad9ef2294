"""Small pools of threads, one for each purpose.

Work that hangs, such as a sync on a dead disk or the wait for a helper process, holds threads of one purpose only.
The default executor of the event loop has a few threads for everybody; nothing that may wait for a disk or for another
process uses it while clients are served (tests/unit/storage_svc/test_threads.py has the list of exceptions).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class Threads:
    """The threads of one purpose. They begin with the first work, and end when nobody refers to this object."""

    def __init__(self, purpose: str, count: int) -> None:
        """Allow `count` works at a time; more wait in order."""
        self._pool = ThreadPoolExecutor(count, f"millrace-{purpose}")

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Begin the work in a thread, and return its result as a future of the running event loop."""
        return self.run_for(asyncio.get_running_loop(), work, *args, **kwargs)

    def finish(self) -> None:
        """Wait until all work is done, and accept no more."""
        self._pool.shutdown(wait=True)

    def run_for(
        self, loop: asyncio.AbstractEventLoop, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Do as `run` does; the loop need not run yet."""
        return asyncio.wrap_future(self._pool.submit(work, *args, **kwargs), loop=loop)
