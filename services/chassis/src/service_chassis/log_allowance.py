"""How much each logger may write: a client that makes a service write lines must not fill its disk.

An allowance is counted in lines of up to 1 KiB; a longer line, such as a traceback, costs more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

#: Lines at once.
BURST: Final = 1000
#: Lines per second in the long run.
LINES_PER_SECOND: Final = 100
_LINE_BYTES: Final = 1024
#: Pairs of logger and level with a private allowance; others share one.
_ALLOWANCES_MAX: Final = 1000


class Allowance:
    """The lines that one logger may still write at one level."""

    __slots__ = ("_clock", "_left", "_left_out", "_refilled_at")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._refilled_at = clock()
        self._left_out = 0

    def spend(self) -> bool:
        """Return whether one more line is allowed; otherwise count it as left out."""
        now = self._clock()
        self._left = min(BURST, self._left + (now - self._refilled_at) * LINES_PER_SECOND)
        self._refilled_at = now
        if self._left < 1:
            self._left_out += 1
            return False
        self._left -= 1
        return True

    def charge(self, size: int) -> None:
        """Reduce the allowance for a line of `size` characters that is longer than usual."""
        self._left -= size // _LINE_BYTES

    def left_out(self) -> int:
        """Return the number of lines left out since the last call."""
        count, self._left_out = self._left_out, 0
        return count


class Allowances:
    """The allowances of a process, by logger and level. Its log configuration owns them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_logger: dict[tuple[str, str], Allowance] = {}
        self._shared = Allowance(clock)

    def of(self, name: str, level: str) -> Allowance:
        """Return the allowance of a logger at a level."""
        found = self._by_logger.get((name, level))
        if found is None:
            if len(self._by_logger) >= _ALLOWANCES_MAX:
                return self._shared
            found = self._by_logger[name, level] = Allowance(self._clock)
        return found
