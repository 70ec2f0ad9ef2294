"""How fast each client may ask: a token bucket for each, in a bounded table.

A bucket is one number, the time at which it will be full again (GCRA, as ATM's and nginx's limits). A full bucket is
the same as none, so the table drops the one that was not used for the longest time.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["BURST_S", "CLIENTS_MAX", "Rates"]

#: A bucket holds the requests of this many seconds.
BURST_S = 10.0
#: Clients in the table: more need more addresses than one attacker usually has, and take 1 MB.
CLIENTS_MAX = 4096


class Rates:
    """The buckets of one server. The event loop owns it."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = 1 / per_second
        # A rate below one request in BURST_S still allows one.
        self._burst_s = max(BURST_S, self._interval_s)
        self._clock = clock
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_s(self, client: str) -> float:
        """Count a request of this client. Return 0, or the seconds until the next one is allowed."""
        now = self._clock()
        full_at = max(self._full_at.get(client, 0.0), now) + self._interval_s
        excess_s = full_at - now - self._burst_s
        # Sums of intervals are inexact: a nanosecond is no excess.
        if excess_s > 1e-9:
            self._full_at.move_to_end(client)
            return excess_s
        self._full_at[client] = full_at
        self._full_at.move_to_end(client)
        if len(self._full_at) > CLIENTS_MAX:  # mutant: buckets-bounded
            self._full_at.popitem(last=False)
        return 0.0
