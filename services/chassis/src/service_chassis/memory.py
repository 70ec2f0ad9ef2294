"""Freed memory: kept for the next message while a service works, and returned to the system once it is idle.

By default glibc returns freed memory by the megabyte to the kernel at once. Every page of the next message is then
cleared and mapped again, which takes a tenth to a fifth of the time of the message. `keep_freed_memory` keeps a bounded
number of bytes for it.

Small pieces of freed memory stay with the C library: 10 to 40 MB after some gigabytes of records. Objects that refer to
each other wait for Python's collector, which looks at old objects seldom: ten thousand closed transports are 10 MB.
To find and return this memory takes milliseconds, and so do the page faults of the next request. So
`give_back_when_idle` waits until the process is idle, and has worked many times as long since the last time.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any, Final

from service_chassis import shared_wakes

#: Most free memory that is kept at the end of the heap; larger allocations are mapped separately.
KEPT_BYTES: Final = 16 * 1024 * 1024
#: <malloc.h>: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
#: Seconds between two looks at the service.
LOOK_S = 2.0
#: Share of a core, used since the last look, below which the service is idle.
_IDLE_SHARE = 0.05
#: Processor time after which there may be something to give back.
_WORKED_S = 0.25
#: Factor by which the work since the last time must exceed the time that the last search took.
_WORTH = 50


def keep_freed_memory() -> bool:
    """Keep freed memory for the next message; return False where the C library has no mallopt (musl).

    `lifecycle` calls it once, when a service begins. All threads then share one heap, because separate heaps would
    each keep as much.
    """
    mallopt = _of_the_c_library("mallopt")
    if mallopt is None:
        return False
    wanted = ((_TRIM_THRESHOLD, KEPT_BYTES), (_MMAP_THRESHOLD, KEPT_BYTES), (_ARENA_MAX, 1))
    return all(mallopt(parameter, value) for parameter, value in wanted)


def give_back_when_idle(look_s: float = LOOK_S) -> None:
    """Return memory whenever the service is idle, as long as the running event loop lives."""
    loop = asyncio.get_running_loop()
    given_back_at = took_s = 0.0

    def look(seen: float) -> None:
        nonlocal given_back_at, took_s
        now = time.process_time()
        if now - seen < _IDLE_SHARE * look_s and now - given_back_at > max(_WORKED_S, _WORTH * took_s):
            gc.collect()
            trim = _of_the_c_library("malloc_trim")
            if trim is not None:
                trim(0)
            given_back_at = time.process_time()
            took_s = given_back_at - now
            now = given_back_at
        loop.call_at(shared_wakes.next_at(loop, look_s), look, now)

    loop.call_at(shared_wakes.next_at(loop, look_s), look, time.process_time())


def _of_the_c_library(name: str) -> Any:
    """Return a function of the C library, None if it has none of this name."""
    import ctypes  # here: most processes end before they need it

    return getattr(ctypes.CDLL(None), name, None)
