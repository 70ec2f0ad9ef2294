"""SIGTERM, SIGINT and SIGHUP: while the JVM starts they end the process at once, later they set `stop`.

A second signal gives the work up. It ends the JVM, and so each wait for an answer. A third one ends the process.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: A signal that follows sooner is still the first one: `timeout` sends two, systemd may send SIGHUP after SIGTERM.
SECOND_SECONDS = 1.0


class Stopped(BaseException):
    """A signal that came before the run could be stopped in order."""


class Signals:
    """The signals that stop a run. One that was ignored at the start (`nohup`) stays ignored."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.received = 0
        self.gave_up = False  # whether a signal ended the work where it was
        self.end_work: Callable[[], None] = lambda: None  # ends what the main thread waits for
        self._graceful = False
        self._first = 0.0
        self._numbers = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]

    def install(self) -> None:
        for number in self._numbers:
            signal.signal(number, self._handle)

    @contextmanager
    def graceful(self) -> Iterator[None]:
        """Have the first signal only set `stop`."""
        self._graceful = True
        try:
            yield
        finally:
            self._graceful = False

    def give_up(self) -> None:
        """End the work where it is. Any thread may call it."""
        self.gave_up = True
        self.end_work()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        second = self.stop.is_set()
        if second and now - self._first < SECOND_SECONDS:
            return
        self.received = number
        if second:  # mutant: second-signal-ends
            for each in self._numbers:
                signal.signal(each, signal.SIG_DFL)
            self.give_up()
            raise Stopped
        self._first = now
        self.stop.set()
        if not self._graceful:
            self.gave_up = True
            raise Stopped
