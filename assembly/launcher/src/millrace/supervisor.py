"""Service processes on one machine: start, watch, restart with back-off, stop in order.

    supervisor = Supervisor([storage, gateway, admin])     # start order; stopped in reverse
    thread A: supervisor.run(on_ready=...)                  # blocks until stopped; raises ServiceFailedError
    thread B: supervisor.stop()                             # or a signal handler of thread A

- Processes start at once and wait for each other. One with `clients` starts last: when the others are ready, so that
  they have the processors, but 2 s later at most. The supervisor listens for its clients until it is ready (child).
- A process is ready when its /readyz answers 200.
- The broker is ready when every process is, except for the last, which has started.
- A process is set up wrongly that ends before it was ready, before the broker was, or with status 78 (another try
  cannot help). It ends the whole. So does the last one, if it is not ready 60 s after the others and its start: its
  clients do not wait longer.
- Any other death is logged, and the process is restarted after 0.1 s. The wait doubles, up to 5 s, with each death that
  follows less than 2 s of readiness. After 2 s of readiness the next death counts as a first one.
- A process that no longer answers /healthz (liveness) is killed, and restarted in the same way.
- Stopping asks each kind of service, last started first. SIGKILL follows at the deadline, or when `kill` is called.

The module imports little, because the supervisor is a separate process for as long as the broker runs.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from service_chassis.probe import check

from millrace.child import RESTART_DELAY_FIRST_S, Child, ServiceProcess, how_it_ended
from millrace.liveness import Liveness

RESTART_DELAY_MAX_S = 5.0
#: Seconds of readiness after which a service has recovered: clients were served in that time.
STABLE_AFTER_S = 2.0
#: Seconds that a service has after its own deadline to cut off its tasks and to end (lifecycle).
CUT_GRACE_S = 4.0
#: Longest wait, in seconds, for the end of a service that was killed.
KILL_WAIT_S = 30.0
#: The default of MILLRACE_STOP_DEADLINE_S.
DEADLINE_DEFAULT_S = 25.0
#: The same number as service_chassis.lifecycle.START_ERROR_STATUS, which is not imported for its weight.
_START_ERROR_STATUS = 78
#: Readiness is asked often while it is about to come, seldom when it takes long (a log is being recovered).
_POLL_S = 0.01
_POLL_SELDOM_S = 0.2
_POLL_OFTEN_FOR_S = 2.0
_PROBE_TIMEOUT_S = 2.0
#: A data folder that takes long to recover keeps nobody else from starting.
_HELD_BACK_MAX_S = 2.0
#: Longest start of the process that starts last, in seconds, while the others are ready: many times the usual one.
_LAST_START_MAX_S = 60.0


class ServiceFailedError(Exception):
    """The failure of a service to start, or to start again; the message or the log has the reason."""


@dataclass(frozen=True)
class _Ended:
    child: Child
    popen: subprocess.Popen[bytes]
    status: int


@dataclass(frozen=True)
class _Hangs:
    child: Child
    popen: subprocess.Popen[bytes]
    fault: str


@dataclass(frozen=True)
class _StopAsked:
    """A request to stop, in the queue."""

    kill: bool = False


_Event = _Ended | _Hangs | _StopAsked


@dataclass
class Supervisor:
    """The processes of one broker, until a stop. `run` owns all state; `stop`, `kill` and `pids` may be called from
    any thread.
    """

    processes: Sequence[ServiceProcess]
    #: Longest orderly stop of each kind of service, in seconds; MILLRACE_STOP_DEADLINE_S.
    stop_deadline_s: float = DEADLINE_DEFAULT_S
    #: Descriptors that the services inherit.
    descriptors: Sequence[int] = ()
    #: Labels of the services that did not stop by themselves.
    killed: list[str] = field(default_factory=list, init=False)
    _events: queue.SimpleQueue[_Event] = field(default_factory=queue.SimpleQueue, init=False)
    _children: list[Child] = field(default_factory=list, init=False)
    #: Whether the broker was ready once.
    _was_ready: bool = field(default=False, init=False)
    #: `kill` was called.
    _impatient: bool = field(default=False, init=False)

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Start all, call `on_ready` when the broker is ready, return when stopped. Raises ServiceFailedError."""
        self._children[:] = [Child(process) for process in self.processes]
        liveness = Liveness(self._children, lambda *hanging: self._events.put(_Hangs(*hanging)))
        try:
            for child in self._children:
                if child.process.clients is not None:
                    child.started_at = time.monotonic()
                else:
                    self._start(child)
            liveness.start()
            self._watch(on_ready)
        finally:
            liveness.end()
            self._stop_all()
            for child in self._children:
                child.close_pipe()

    def stop(self) -> None:
        """Request an orderly stop. Safe in a signal handler."""
        self._events.put(_StopAsked())

    def kill(self) -> None:
        """Request a stop that kills the remaining processes. Safe in a signal handler."""
        self._events.put(_StopAsked(kill=True))

    def pids(self) -> dict[str, int]:
        """Return the running processes by label."""
        return {child.label: child.popen.pid for child in self._children if child.popen is not None}

    def stop_pipes(self) -> list[int]:
        """Return the descriptors that keep the services running while a process holds them."""
        return [child.stop_pipe for child in self._children if child.stop_pipe is not None]

    def _watch(self, on_ready: Callable[[], None]) -> None:
        while True:
            event = self._next_event()
            if isinstance(event, _StopAsked):
                self._impatient = event.kill
                return
            if isinstance(event, _Ended):
                self._ended(event)
            elif isinstance(event, _Hangs) and event.child.popen is event.popen:
                _log("error", "service hangs, killed", process=event.child.label, reason=event.fault)
                event.popen.kill()
            now = time.monotonic()
            for child in self._children:
                if child.restart_at is not None and now >= child.restart_at:
                    self._start(child)
                if child.popen is not None and child.ready_at is None:
                    self._probe(child)
            others_are_ready = all(each.ready_at is not None for each in self._children if each.process.clients is None)
            for child in self._children:
                if child.starts == 0 and (others_are_ready or now - child.started_at >= _HELD_BACK_MAX_S):
                    self._start(child)
            if others_are_ready:
                self._refuse_late_ones()
            if others_are_ready and not self._was_ready:
                self._was_ready = True
                on_ready()

    def _refuse_late_ones(self) -> None:
        """Raise ServiceFailedError if a process for which clients wait is not ready, long after the others were."""
        ready_at = max((each.ready_at or 0.0 for each in self._children if each.process.clients is None), default=0.0)
        for child in self._children:
            since = max(child.started_at, ready_at)
            # mutant: late-start-ends
            if child.has_waiting_room and time.monotonic() - since > _LAST_START_MAX_S:
                raise ServiceFailedError(f"{child.label} was not ready within {_LAST_START_MAX_S:g} s")

    def _next_event(self) -> _Event | None:
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

    def _start(self, child: Child) -> None:
        try:
            popen = child.start(self.descriptors)
            waiting = threading.Thread(target=self._wait, args=(child, popen), name=f"wait-{child.label}", daemon=True)
            try:
                waiting.start()
            except RuntimeError:  # no room for a thread
                popen.kill()
                popen.wait()
                child.popen = None
                raise
        except (OSError, RuntimeError) as error:
            if child.starts == 1:
                raise ServiceFailedError(f"{child.label} could not start: {error}") from error
            self._restart_later(child, "service not started", reason=str(error))

    def _wait(self, child: Child, popen: subprocess.Popen[bytes]) -> None:
        self._events.put(_Ended(child, popen, popen.wait()))

    def _probe(self, child: Child) -> None:
        if check(child.process.http_address, timeout_s=_PROBE_TIMEOUT_S) is not None:
            return
        child.note_ready()
        if child.starts > 1 and child.popen is not None and child.ready_at is not None:
            seconds = round(child.ready_at - child.started_at, 3)
            _log("warning", "service is back", process=child.label, pid=child.popen.pid, ready_after_s=seconds)

    def _ended(self, event: _Ended) -> None:
        child = event.child
        if child.popen is not event.popen:
            return
        now = time.monotonic()
        up_s = now - child.started_at
        stable = child.ready_at is not None and now - child.ready_at >= STABLE_AFTER_S
        child.popen, child.ready_at = None, None
        how = how_it_ended(event.status)
        if event.status == _START_ERROR_STATUS or not self._was_ready or not child.was_ready:
            reason = child.start_fault() or f"{child.label} could not start ({how}); its log line says why"
            raise ServiceFailedError(reason)
        if stable:
            child.delay_s = RESTART_DELAY_FIRST_S
        self._restart_later(child, "service ended", pid=event.popen.pid, how=how, up_s=round(up_s, 3))

    @staticmethod
    def _restart_later(child: Child, event: str, **fields: object) -> None:
        _log("error", event, process=child.label, **fields, restart_in_s=child.delay_s)
        child.restart_at = time.monotonic() + child.delay_s
        child.delay_s = min(child.delay_s * 2, RESTART_DELAY_MAX_S)

    def _stop_all(self) -> None:
        """Stop all kinds in turn. Each has the whole deadline, so that a gateway that hangs does not cost storage its
        clean end. Clients that wait are disconnected with the process that they wait for.
        """
        for child in self._children:
            child.close_waiting_room()
        for kind in dict.fromkeys(process.service for process in reversed(self.processes)):
            running = [child for child in self._children if child.popen is not None and child.process.service == kind]
            for child in running:
                child.ask_to_stop()
            allowed_s = self.stop_deadline_s + CUT_GRACE_S
            self._await_end(running, time.monotonic() + allowed_s)
            reason = "killed, asked three times" if self._impatient else f"killed, did not stop within {allowed_s:g} s"
            late = [(child, child.popen) for child in running if child.popen is not None]
            for _, popen in late:
                popen.kill()
            self._await_end(running, time.monotonic() + KILL_WAIT_S, killed=True)
            for child, popen in late:
                if child.popen is not None:  # a call of the kernel that hangs, for example on a dead disk
                    reason = "killed, but it has not ended"
                elif popen.returncode != -signal.SIGKILL:  # it ended before the kill, unnoticed
                    continue
                _log("error", reason, process=child.label)
                self.killed.append(child.label)

    def _await_end(self, running: list[Child], deadline: float, *, killed: bool = False) -> None:
        """Wait until all of them ended or the deadline passes; until a kill is requested, if they are not killed."""
        while any(child.popen is not None for child in running):
            timeout = 0.0 if self._impatient and not killed else max(0.0, deadline - time.monotonic())
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                return
            if isinstance(event, _StopAsked):
                if not event.kill and not self._impatient:
                    _log("warning", "still stopping; the next signal kills")
                self._impatient = self._impatient or event.kill
            elif isinstance(event, _Ended) and event.child.popen is event.popen:
                event.child.popen = None


def stop_deadline_s() -> float:
    """Return MILLRACE_STOP_DEADLINE_S. Its value is checked by the services, which refuse a wrong one by name."""
    try:
        return float(os.environ.get("MILLRACE_STOP_DEADLINE_S", DEADLINE_DEFAULT_S))
    except ValueError:
        return DEADLINE_DEFAULT_S


def _log(level: str, event: str, **fields: object) -> None:
    """Write a log line of the supervisor. Imports the logger now, because most supervisors never log."""
    from service_chassis import logs
    from service_chassis.settings import ServiceSettings, SettingsError

    try:
        settings = ServiceSettings()
        logs.configure("millrace", settings.log_level, settings.log_format)
    except SettingsError:  # the services refuse it too, with its reason
        logs.configure("millrace")
    logger = logs.get(__name__)
    (logger.error if level == "error" else logger.warning)(event, **fields)
