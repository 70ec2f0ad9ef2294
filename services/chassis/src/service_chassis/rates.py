"""Token buckets, one for each key, in a bounded table: requests of a client, lines of a logger.

A bucket is one number, the time at which it will be full again (GCRA, as ATM's and nginx's limits). A full bucket is
the same as none, so the table drops the one that was not used for the longest time.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

#: A bucket holds the tokens of this many seconds, unless its server says otherwise.
BURST_S = 10.0
#: Keys in the table: more clients need more addresses than one attacker usually has, and take 1 MB.
KEYS_MAX = 4096


class Rates:
    """The buckets of one server, or of the log. Threads may share it: at worst a token is not counted."""

    def __init__(
        self, per_second: float, clock: Callable[[], float] = time.monotonic, *, burst_s: float = BURST_S
    ) -> None:
        self._interval_s = 1 / per_second
        # A rate below one token in `burst_s` still allows one.
        self._burst_s = max(burst_s, self._interval_s)
        self._clock = clock
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def wait_s(self, key: str) -> float:
        """Take a token. Return 0, or the seconds until there is one."""
        now = self._clock()
        full_at = max(self._full_at.pop(key, 0.0), now)
        wait_s = full_at + self._interval_s - now - self._burst_s
        # Sums of intervals are inexact: a nanosecond is no excess.
        is_allowed = wait_s <= 1e-9
        self._full_at[key] = full_at + self._interval_s if is_allowed else full_at
        if len(self._full_at) > KEYS_MAX:  # mutant: buckets-bounded
            self._full_at.popitem(last=False)
        return 0.0 if is_allowed else wait_s

    def due_s(self, key: str) -> float:
        """Return 0 if there is a token, or the seconds until there is one; take none."""
        now = self._clock()
        wait_s = max(self._full_at.get(key, 0.0), now) + self._interval_s - now - self._burst_s
        return 0.0 if wait_s <= 1e-9 else wait_s

    def charge(self, key: str, count: int) -> None:
        """Take tokens of a key that are counted late, also more than there are."""
        self._full_at[key] = max(self._full_at.get(key, 0.0), self._clock()) + count * self._interval_s
