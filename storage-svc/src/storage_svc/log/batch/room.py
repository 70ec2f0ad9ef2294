"""The records that the event loop checks itself in one of its turns; others go to a thread (slow_appends.py)."""

from __future__ import annotations

import time
from typing import Final

from protocol_lib.records.walker import FORM

_IS_COMPILED: Final = FORM == "compiled"

#: Records, and headers of records, of one batch: some milliseconds of either form of the walker.
STEPS: Final = 150_000 if _IS_COMPILED else 3_000
#: The same between two readings of the clock, in a thread.
STEPS_A_SLICE: Final = 10_000 if _IS_COMPILED else 250
#: Bytes that the records of one batch may become when they are decompressed.
BATCH_BYTES: Final = 128 << 10
#: The same for a batch that is compressed again, which takes ten times as long.
RECOMPRESSED_BATCH_BYTES: Final = 8 << 10
#: A batch of at most so many, without compression, has always room: a thousand of them take some milliseconds.
QUICK_STEPS: Final = 256 if _IS_COMPILED else 4
#: Seconds of all batches of a turn, but for those and the last of the others.
_TURN_S: Final = 0.008


class Room:
    """The rest of a turn's time for checks. The data service renews it at the start of each step."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = _TURN_S

    def renew(self) -> None:
        """Begin a turn."""
        self.seconds = _TURN_S

    def note(self, started: float) -> None:
        """Count the time since this reading of `time.perf_counter`."""
        self.seconds -= time.perf_counter() - started  # mutant: turn-has-room
