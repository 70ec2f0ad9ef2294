"""The watch over services that were ready: whether each still answers /healthz.

A service that hangs neither ends nor answers. A separate thread asks, because each question may take its whole
time-out. Only several failures in a row count, so that neither a busy nor a suspended machine looks like a hang.
"""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable

from service_chassis.probe import check

from millrace.child import Child

#: Seconds between two rounds of questions.
INTERVAL_S = 5.0
TIMEOUT_S = 5.0
#: Failures in a row after which a service hangs. Its event loop's own limit of 30 s comes before these.
FAILURES_MAX = 6


class Liveness:
    """The watch over children; `hangs` is called, on the watch's thread, with a process that hangs."""

    def __init__(self, children: list[Child], hangs: Callable[[Child, subprocess.Popen[bytes], str], None]) -> None:
        self._children = children
        self._hangs = hangs
        self._ended = threading.Event()
        self._failures: dict[subprocess.Popen[bytes], int] = {}
        self._thread = threading.Thread(target=self._watch, name="liveness", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """End the watch; it asks no more questions, but one may be under way."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self.ask_all()

    def ask_all(self) -> None:
        """Ask every service that is ready once."""
        failures = {}
        if not _can_connect():
            return
        for child in list(self._children):
            popen = child.popen
            if popen is None or child.ready_at is None:
                continue
            fault = check(child.process.http_address, "/healthz", TIMEOUT_S)
            if fault is None or child.popen is not popen:
                continue
            failures[popen] = self._failures.get(popen, 0) + 1
            if failures[popen] == FAILURES_MAX and not self._ended.is_set():  # mutant: hung-service-killed
                self._hangs(child, popen, fault)
        self._failures = failures


def _can_connect() -> bool:
    """Return whether this process has room for a connection: else a failure would say nothing about a service."""
    try:
        socket.socket().close()
    except OSError:
        return False
    return True
