"""One wake-up of an event loop for timers of several parts, which a loop at rest would take one after the other.

A wake-up of an idle process costs it a tenth of a millisecond and more, however little there is to do. Timers that need
no certain moment are therefore due at whole multiples of their interval, by the loop's clock.
"""

from __future__ import annotations

import asyncio
import math

#: Share of the interval by which a timer may have fired early.
_EARLY = 1e-3


def next_at(loop: asyncio.AbstractEventLoop, every_s: float) -> float:
    """Return the next multiple of an interval, by the loop's clock."""
    return (math.floor(loop.time() / every_s + _EARLY) + 1) * every_s
