"""Work in a thread next to an event loop, in slices: both share Python's interpreter lock.

A thread that computes gives the lock back only every 5 ms, and each time the event loop must wait for it. So such a
thread works for SLICE_S and then sleeps for PAUSE_S, in which the event loop goes on.
"""

from __future__ import annotations

import time
from typing import Final

#: Seconds of work between two pauses, and of a pause: more than a thread needs to wake up.
SLICE_S: Final = 0.0005
PAUSE_S: Final = 0.0002


class Abandoned(Exception):  # noqa: N818 (it is no error)
    """Nobody waits for the work any more."""


class TimeSlices:
    """The slices of one piece of work. The thread calls `turn` often, the event loop sets `is_abandoned`."""

    __slots__ = ("is_abandoned", "slice_end")

    def __init__(self) -> None:
        self.is_abandoned = False
        #: The reading of `time.perf_counter` at which the next pause begins; infinite on the event loop.
        self.slice_end = float("inf")

    def begin(self) -> None:
        """Note that the work is done in a thread."""
        self.slice_end = 0.0

    def check(self) -> None:
        """Raise Abandoned if nobody waits for the outcome."""
        if self.is_abandoned:
            raise Abandoned

    def turn(self) -> None:
        """Pause when it is time.

        Raises:
            Abandoned: nobody waits for the outcome.
        """
        if time.perf_counter() >= self.slice_end:
            self.pause()

    def pause(self) -> None:
        """Let the event loop go on.

        Raises:
            Abandoned: nobody waits for the outcome.
        """
        self.check()
        time.sleep(PAUSE_S)
        self.slice_end = time.perf_counter() + SLICE_S
