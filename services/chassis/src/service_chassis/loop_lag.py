"""The lag of an event loop as a metric: how much later than asked a timer runs.

    millrace_event_loop_lag_seconds    a histogram of one observation every OBSERVE_S

A callback that blocks for longer than OBSERVE_S is always observed; a shorter one in proportion to its length. Each
observation costs a wake-up of the loop, some ten microseconds. `stall_watch.py` names the code that blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from service_chassis import shared_wakes
from service_chassis.histogram import Buckets
from service_chassis.metrics import Registry

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: Seconds between two observations.
OBSERVE_S: Final = 1.0
#: Upper bounds in seconds. uvloop's timers have a resolution of a millisecond, so smaller ones would show that.
_BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class _Lag:
    def __init__(self) -> None:
        self.seconds = Buckets(_BUCKETS)

    def collect(self) -> Iterator[Metric]:
        yield self.seconds.family(
            "millrace_event_loop_lag_seconds",
            "Lateness of a timer of the event loop: the time for which a client waits before its request is looked at.",
        )


def observe(registry: Registry, every_s: float = OBSERVE_S) -> Callable[[], None]:
    """Register the histogram and observe the running event loop's lag; return the function that ends that."""
    loop = asyncio.get_running_loop()
    lag = _Lag()
    registry.register(lag)
    handle: asyncio.TimerHandle

    def due(planned: float) -> None:
        nonlocal handle
        now = loop.time()
        lag.seconds.observe(max(0.0, now - planned))
        planned = shared_wakes.next_at(loop, every_s)
        handle = loop.call_at(planned, due, planned)

    planned = shared_wakes.next_at(loop, every_s)
    handle = loop.call_at(planned, due, planned)
    return lambda: handle.cancel()
