"""Service processes on one machine: start, watch, restart with back-off, stop in order.

    supervisor = Supervisor([storage, gateway, admin])     # start order; stopped in reverse
    thread A: supervisor.run(on_ready=...)                  # blocks until stopped; raises ServiceFailedError
    thread B: supervisor.stop()                             # or a signal handler of thread A

- All processes start at once and wait for each other. One with `after` waits until that address listens, 2 s at most,
  so that the services of the clients have the processors first.
- A process is ready when its /readyz answers 200.
- A process that ends before all were ready once, or with status 78 (another try cannot help), is set up wrongly. It
  ends the whole.
- Any other death is logged, and the process is restarted after 0.1 s. The wait doubles, up to 5 s, with each death that
  follows less than 2 s of readiness. After 2 s of readiness the next death counts as a first one.
- Stopping is SIGTERM per kind of service, last started first, and SIGKILL at the deadline.

The module imports little, because the supervisor is a separate process for as long as the broker runs.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from service_chassis.probe import check, listens

__all__ = ["ServiceFailedError", "ServiceProcess", "Supervisor"]

RESTART_DELAY_FIRST_S = 0.1
RESTART_DELAY_MAX_S = 5.0
#: Seconds of readiness after which a service has recovered: clients were served in that time.
STABLE_AFTER_S = 2.0
#: The same number as service_chassis.lifecycle.START_ERROR_STATUS, which is not imported for its weight.
_START_ERROR_STATUS = 78
#: Readiness is asked often while it is about to come, seldom when it takes long (a log is being recovered).
_POLL_S = 0.01
_POLL_SELDOM_S = 0.2
_POLL_OFTEN_FOR_S = 2.0
_PROBE_TIMEOUT_S = 2.0
#: A data folder that takes long to recover keeps nobody else from starting.
_HELD_BACK_MAX_S = 2.0


class ServiceFailedError(Exception):
    """The failure of a service to start, or to start again; its log has the reason."""


@dataclass(frozen=True)
class ServiceProcess:
    """A process to start: a name of `millrace.service.MAINS`, its settings, and the address of its /readyz."""

    service: str
    settings: Mapping[str, str]
    http_address: str
    #: Number that distinguishes processes of one kind in the log.
    number: int = 1
    #: The command line, `millrace.service` if empty. Its standard input closes when the supervisor ends.
    command: Sequence[str] = ()
    #: The HTTP address of a process that is to serve before this one is started, if any.
    after: str = ""


@dataclass(eq=False)
class _Child:
    """The state of one service; owned by the thread in `Supervisor.run`."""

    process: ServiceProcess
    popen: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    ready_at: float | None = None
    starts: int = 0
    delay_s: float = RESTART_DELAY_FIRST_S
    restart_at: float | None = None

    @property
    def label(self) -> str:
        return self.process.service if self.process.number == 1 else f"{self.process.service} {self.process.number}"


@dataclass(frozen=True)
class _Ended:
    child: _Child
    popen: subprocess.Popen[bytes]
    status: int


class _StopAsked:
    """A request to stop, in the queue. The first asks for an orderly stop, a second one kills the remaining
    processes.
    """


@dataclass
class Supervisor:
    """The processes of one broker, until a stop. `run` owns all state; `stop` and `pids` may be called from any
    thread.
    """

    processes: Sequence[ServiceProcess]
    stop_deadline_s: float = 30.0
    #: Labels of the services that did not stop by themselves.
    killed: list[str] = field(default_factory=list, init=False)
    _events: queue.SimpleQueue[_Ended | _StopAsked] = field(default_factory=queue.SimpleQueue, init=False)
    _children: list[_Child] = field(default_factory=list, init=False)
    #: The stop was asked for a second time.
    _impatient: bool = field(default=False, init=False)

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Start everything, call `on_ready` when all are ready, return when stopped. Raises ServiceFailedError."""
        read_end, write_end = os.pipe()
        self._children[:] = [_Child(process) for process in self.processes]
        try:
            for child in self._children:
                if child.process.after:
                    child.started_at = time.monotonic()
                else:
                    self._start(child, read_end)
            self._watch(read_end, on_ready)
        finally:
            self._stop_all()
            os.close(write_end)
            os.close(read_end)

    def stop(self) -> None:
        """Request an orderly stop; a second call kills the remaining processes. Safe in a signal handler."""
        self._events.put(_StopAsked())

    def pids(self) -> dict[str, int]:
        """Return the running processes by label."""
        return {child.label: child.popen.pid for child in self._children if child.popen is not None}

    def _watch(self, read_end: int, on_ready: Callable[[], None]) -> None:
        all_were_ready = False
        while True:
            event = self._next_event()
            if isinstance(event, _StopAsked):
                return
            if isinstance(event, _Ended):
                self._ended(event, all_were_ready)
            now = time.monotonic()
            for child in self._children:
                if (child.restart_at is not None and now >= child.restart_at) or self._held_back_enough(child, now):
                    self._start(child, read_end)
                if child.popen is not None and child.ready_at is None:
                    self._probe(child)
            if not all_were_ready and all(child.ready_at is not None for child in self._children):
                all_were_ready = True
                on_ready()

    @staticmethod
    def _held_back_enough(child: _Child, now: float) -> bool:
        return child.starts == 0 and (
            now - child.started_at >= _HELD_BACK_MAX_S or listens(child.process.after, timeout_s=_PROBE_TIMEOUT_S)
        )

    def _next_event(self) -> _Ended | _StopAsked | None:
        now = time.monotonic()
        waits = [child.restart_at - now for child in self._children if child.restart_at is not None]
        for child in self._children:
            if child.popen is not None and child.ready_at is None:
                waits.append(_POLL_S if now - child.started_at < _POLL_OFTEN_FOR_S else _POLL_SELDOM_S)
        timeout = max(0.0, min(waits)) if waits else None
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def _start(self, child: _Child, read_end: int) -> None:
        popen = subprocess.Popen(
            child.process.command or [sys.executable, "-m", "millrace.service", child.process.service],
            env={**os.environ, **child.process.settings},
            stdin=read_end,
            # A terminal's Ctrl-C reaches the launcher alone, which then stops the services in order.
            process_group=0,
        )
        child.popen, child.started_at, child.restart_at, child.ready_at = popen, time.monotonic(), None, None
        child.starts += 1
        threading.Thread(target=self._wait, args=(child, popen), name=f"wait-{child.label}", daemon=True).start()

    def _wait(self, child: _Child, popen: subprocess.Popen[bytes]) -> None:
        self._events.put(_Ended(child, popen, popen.wait()))

    def _probe(self, child: _Child) -> None:
        if check(child.process.http_address, timeout_s=_PROBE_TIMEOUT_S) is not None:
            return
        child.ready_at = time.monotonic()
        if child.starts > 1 and child.popen is not None:
            seconds = round(child.ready_at - child.started_at, 3)
            _log("warning", "service is back", process=child.label, pid=child.popen.pid, ready_after_s=seconds)

    def _ended(self, event: _Ended, all_were_ready: bool) -> None:
        child = event.child
        if child.popen is not event.popen:
            return
        now = time.monotonic()
        up_s = now - child.started_at
        stable = child.ready_at is not None and now - child.ready_at >= STABLE_AFTER_S
        child.popen, child.ready_at = None, None
        how = f"signal {signal.Signals(-event.status).name}" if event.status < 0 else f"status {event.status}"
        if event.status == _START_ERROR_STATUS or not all_were_ready:
            raise ServiceFailedError(f"{child.label} could not start ({how}); its log line says why")
        if stable:
            child.delay_s = RESTART_DELAY_FIRST_S
        _log(
            "error", "service ended", process=child.label, pid=event.popen.pid, how=how,
            up_s=round(up_s, 3), restart_in_s=child.delay_s,
        )  # fmt: skip
        child.restart_at = now + child.delay_s
        child.delay_s = min(child.delay_s * 2, RESTART_DELAY_MAX_S)

    def _stop_all(self) -> None:
        """Stop all kinds in turn. Each has the whole deadline, so that a gateway that hangs does not cost storage its
        clean end.
        """
        self._impatient = False
        for kind in dict.fromkeys(process.service for process in reversed(self.processes)):
            running = [child for child in self._children if child.popen is not None and child.process.service == kind]
            for child in running:
                if child.popen is not None:
                    child.popen.terminate()
            self._await_end(running, time.monotonic() + self.stop_deadline_s)
            late = [(child, child.popen) for child in running if child.popen is not None]
            for _, popen in late:
                popen.kill()
            self._await_end(running, None)
            for child, popen in late:
                if popen.returncode == -signal.SIGKILL:  # it may have ended before the kill, unnoticed
                    _log("error", "service did not stop in time, killed", process=child.label)
                    self.killed.append(child.label)

    def _await_end(self, running: list[_Child], deadline: float | None) -> None:
        """Wait until all of them ended, the deadline passes, or a second stop is requested."""
        while any(child.popen is not None for child in running):
            timeout = None
            if deadline is not None:
                timeout = 0.0 if self._impatient else max(0.0, deadline - time.monotonic())
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                return
            if isinstance(event, _StopAsked):
                self._impatient = True
            elif event.child.popen is event.popen:
                event.child.popen = None


def _log(level: str, event: str, **fields: object) -> None:
    """Write a log line of the supervisor. Imports the logger now, because most supervisors never log."""
    from service_chassis import logs
    from service_chassis.settings import ServiceSettings, load

    settings = load(ServiceSettings)
    logs.configure("millrace", settings.log_level, settings.log_format)
    logger = logs.get(__name__)
    (logger.error if level == "error" else logger.warning)(event, **fields)
