"""The pace of the cleaner and the scrub: neither deprives waiting clients of the disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from storage_svc.log.errors import Stopped

#: The longest sleep without a check whether the work is still wanted.
_SLEEP_S: Final = 0.1


class Pace:
    """A limit on the rate of reading and writing, kept by sleeping, and a way to stop work that is not wanted
    any more.
    """

    def __init__(self, bytes_per_second: int, stopped: Callable[[], bool] = lambda: False) -> None:
        self._rate = bytes_per_second
        self._stopped = stopped
        self._begin = time.monotonic()
        self._bytes = 0

    def spend(self, size: int) -> None:
        """Count bytes that were read or written, and sleep if that was too fast.

        Raises:
            Stopped: the broker stops the work.
        """
        self._bytes += size
        while not self._stopped():
            ahead = self._bytes / self._rate - (time.monotonic() - self._begin) if self._rate else 0.0
            if ahead <= 0:
                return
            time.sleep(min(ahead, _SLEEP_S))
        raise Stopped
