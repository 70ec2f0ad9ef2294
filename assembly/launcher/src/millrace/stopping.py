"""The signals that stop `millrace up`, received by one thread.

All threads block them, and that thread waits for them. A handler in the main thread could come between its last check
for signals and its wait for the next event: the signal would then be without effect until the event.
"""

from __future__ import annotations

import os
import signal
import threading

from service_chassis.stop_signals import StopRequest, StopSignals, handled

from millrace.processes import Supervisor

__all__ = ["Stopping"]


class Stopping:
    """The requests to stop, from its construction to the end of the process. Make it before any other thread."""

    def __init__(self) -> None:
        self._numbers = handled()
        self._signals = StopSignals()
        self._supervisor: Supervisor | None = None
        self._changing = threading.Lock()
        #: Whether a stop was requested.
        self.asked = False
        signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)  # mutant: signals-to-main-thread
        if self._numbers:
            threading.Thread(target=self._wait, name="signals", daemon=True).start()

    def stops(self, supervisor: Supervisor) -> None:
        """Pass requests on to a supervisor from now on, and one that came before too."""
        with self._changing:
            self._supervisor = supervisor
            if self.asked:
                supervisor.stop()

    def _wait(self) -> None:
        while True:
            request = self._signals.received(signal.sigwait(self._numbers))
            with self._changing:
                self.asked = True
                if self._supervisor is None:
                    if request is StopRequest.KILL:
                        os._exit(1)
                elif request is StopRequest.KILL:
                    self._supervisor.kill()
                elif request is not StopRequest.NOTHING:
                    self._supervisor.stop()
