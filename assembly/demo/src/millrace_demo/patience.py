"""A limit for work that stands still. A busy machine may take any time, as long as the work moves."""

import time

#: Seconds without progress after which work counts as hung. Spark starts in 10 s on an idle machine.
STILL_SECONDS = 300.0


class Patience:
    """The time since the last progress of some work."""

    def __init__(self, seconds: float = STILL_SECONDS) -> None:
        self._seconds = seconds
        self._progress: object = None
        self._moved_at = time.monotonic()

    def is_over(self, progress: object) -> bool:
        """Return whether this is the same progress as that of all looks for the whole time."""
        if progress != self._progress:
            self._progress, self._moved_at = progress, time.monotonic()
        return time.monotonic() - self._moved_at > self._seconds
