"""The memory of a burst of load, returned to the system once the service is idle.

Objects that refer to each other wait for Python's collector, which looks at old objects seldom. Transports of asyncio
refer to themselves: ten thousand closed ones are 10 MB. The C library keeps freed memory for the next request, which is
10 to 40 MB after some gigabytes of records.

Finding and returning memory takes milliseconds, and so do the page faults of the next request. It is therefore done
under two conditions: the process has worked many times as long since the last time, and it was idle for seconds.
"""

from __future__ import annotations

import asyncio
import gc
import time

from service_chassis import shared_wakes

__all__ = ["give_back_when_idle"]

#: Seconds between two looks at the service.
LOOK_S = 2.0
#: Share of a core, used since the last look, below which the service is idle.
_IDLE_SHARE = 0.05
#: Processor time after which there may be something to give back.
_WORKED_S = 0.25
#: Factor by which the work since the last time must exceed the time that the last search took.
_WORTH = 50


def give_back_when_idle(look_s: float = LOOK_S) -> None:
    """Return memory whenever the service is idle, as long as the running event loop lives."""
    loop = asyncio.get_running_loop()
    given_back_at = took_s = 0.0

    def look(seen: float) -> None:
        nonlocal given_back_at, took_s
        now = time.process_time()
        if now - seen < _IDLE_SHARE * look_s and now - given_back_at > max(_WORKED_S, _WORTH * took_s):
            gc.collect()
            _trim()
            given_back_at = time.process_time()
            took_s = given_back_at - now
            now = given_back_at
        loop.call_at(shared_wakes.next_at(loop, look_s), look, now)

    loop.call_at(shared_wakes.next_at(loop, look_s), look, time.process_time())


def _trim() -> None:
    """Return free memory to the system; do nothing where the C library has no malloc_trim."""
    import ctypes  # here: most processes end before they need it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
