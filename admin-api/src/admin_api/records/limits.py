"""The work that one browse may cause, with filters of any kind."""

from __future__ import annotations

import asyncio
import time

from service_chassis.shared_turns import shared_turns

SCANNED_MAX = 100_000
BYTES_MAX = 64 * 1024 * 1024
TIME_MAX_S = 3.0
#: Bytes of the rows that wait for their place in the answer, and of the answer.
ROWS_BYTES_MAX = 4 * 1024 * 1024
#: Seconds of a step. An answer to another client takes ten turns of the event loop or more, each with a step.
_STEP_S = 0.001


class Work:
    """The work done so far."""

    def __init__(
        self, *, scanned_max: int = SCANNED_MAX, bytes_max: int = BYTES_MAX, time_max_s: float = TIME_MAX_S
    ) -> None:
        self.scanned = 0
        self.bytes = 0
        #: Bytes of rows that are kept.
        self.rows_bytes = 0
        self._scanned_max = scanned_max
        self._bytes_max = bytes_max
        self._time_max_s = time_max_s
        self._started = self._step = time.monotonic()
        self._turns = shared_turns(asyncio.get_running_loop())

    @property
    def is_done(self) -> bool:
        """Whether a limit is reached."""
        return (
            self.scanned >= self._scanned_max
            or self.bytes >= self._bytes_max
            or self.rows_bytes >= ROWS_BYTES_MAX
            or time.monotonic() - self._started >= self._time_max_s
        )

    @property
    def is_due(self) -> bool:
        """Whether this step was long."""
        return time.monotonic() - self._step >= _STEP_S

    async def pause(self) -> None:
        """Let others have the event loop, if this step was long. All such work shares the loop's turns."""
        if self.is_due:
            await self._turns.next()  # mutant: browse-in-turns
            self._step = time.monotonic()
