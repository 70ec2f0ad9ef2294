"""Memory that a burst of load has left behind goes back to the system once the service is idle.

Objects that refer to each other, as asyncio's transports do to themselves (ten thousand closed ones are 10 MB), wait
for Python's collector, which looks at old objects seldom. And glibc keeps what was freed for the next request: after
some gigabytes of records 10 to 40 MB that nobody uses. Finding and giving back both takes milliseconds, and so do the
page faults of who comes next: it is done in a pause only, when the process has worked since the last time, many times
as long as that took, and in the last seconds has not.
"""

from __future__ import annotations

import asyncio
import gc
import time

__all__ = ["give_back_when_idle"]

#: How often the service is looked at.
LOOK_S = 2.0
#: Idle is who used less than this share of a core since the last look.
_IDLE_SHARE = 0.05
#: Processor time after which there may be something to give back.
_WORKED_S = 0.25
#: And at least so many times what it took to find it the last time: thousands of connections make that long.
_WORTH = 50


def give_back_when_idle(look_s: float = LOOK_S) -> None:
    """From now on, as long as the running event loop does."""
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
        loop.call_later(look_s, look, now)

    loop.call_later(look_s, look, time.process_time())


def _trim() -> None:
    """Nothing where the C library has no malloc_trim."""
    import ctypes  # here: most processes end before they need it

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
