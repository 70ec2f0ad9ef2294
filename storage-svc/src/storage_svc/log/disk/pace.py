"""How fast the cleaner and the scrub may go: neither takes the disk from those who wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from storage_svc.log.errors import Stopped

#: How long it may sleep without asking whether it is wanted any more.
_SLEEP_S: Final = 0.1


class Pace:
    """Keeps reading and writing below a rate by sleeping, and stops work that is not wanted any more."""

    def __init__(self, bytes_per_second: int, stopped: Callable[[], bool] = lambda: False) -> None:
        self._rate = bytes_per_second
        self._stopped = stopped
        self._begin = time.monotonic()
        self._bytes = 0

    def spend(self, size: int) -> None:
        """
        Raises:
            Stopped: somebody asked for it.
        """
        self._bytes += size
        while not self._stopped():
            ahead = self._bytes / self._rate - (time.monotonic() - self._begin) if self._rate else 0.0
            if ahead <= 0:
                return
            time.sleep(min(ahead, _SLEEP_S))
        raise Stopped
