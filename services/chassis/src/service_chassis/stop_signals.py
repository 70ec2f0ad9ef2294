"""The signals that ask a process to stop, counted.

    SIGTERM, SIGINT, SIGHUP    the first of them asks for an orderly stop
    SIGTERM, SIGINT            within a second of the last one they count once: shells, runners and systemd double them
                               the second one is noted, the third kills
    SIGHUP                     never kills: a terminal that closes sends several at once

A signal that the process ignored from its start stays ignored, as `nohup` and background jobs of a shell expect.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from enum import Enum

#: The count of signals at which the process no longer waits.
KILLING_COUNT = 3
#: Seconds in which two signals count as one.
GAP_S = 1.0


class StopRequest(Enum):
    """The meaning of one more signal."""

    NOTHING = "nothing"
    STOP = "stop"
    AGAIN = "again"
    KILL = "kill"


class StopSignals:
    """The count of one process. Safe in a signal handler of the main thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0
        self._counted_at = 0.0

    def received(self, number: int) -> StopRequest:
        """Count a signal and return its meaning."""
        now = self._clock()
        if self._count and (number == signal.SIGHUP or now - self._counted_at < GAP_S):  # mutant: signals-counted-once
            return StopRequest.NOTHING
        self._count += 1
        self._counted_at = now
        if self._count == 1:
            return StopRequest.STOP
        return StopRequest.AGAIN if self._count < KILLING_COUNT else StopRequest.KILL


def handled() -> list[signal.Signals]:
    """Return the signals that shall stop this process: those of the three that it does not ignore."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
