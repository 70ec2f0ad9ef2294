"""SIGTERM, SIGINT and SIGHUP: while the JVM starts they end the process at once, later they set `stop`."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(BaseException):
    """A signal that came before the run could be stopped in order."""


class Signals:
    """The signals that stop a run. One that was ignored at the start (`nohup`) stays ignored."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.received = 0
        self.gave_up = False  # whether a signal ended the work where it was
        self._graceful = False
        self._numbers = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]

    def install(self) -> None:
        for number in self._numbers:
            signal.signal(number, self._handle)

    @contextmanager
    def graceful(self) -> Iterator[None]:
        """Have signals only set `stop`."""
        self._graceful = True
        try:
            yield
        finally:
            self._graceful = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        self.stop.set()
        if not self._graceful:
            self.gave_up = True
            raise Stopped
