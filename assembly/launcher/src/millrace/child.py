"""One service process of the supervisor: its start, its stop and its end.

The supervisor holds one end of a socket; the other is the standard input of the child. A byte in it asks the service to
stop. The socket closes with the supervisor, however that dies, which asks for the same. A service that cannot start
writes its reason there (lifecycle). Signals do not stop a service: it ignores SIGTERM, SIGINT and SIGHUP
(`millrace.service`) and has them blocked until then. A signal to all processes at once, from a terminal or from
systemd, therefore leaves the order of the stop to the supervisor.

A process that starts last may have clients at once: the supervisor listens for them, and hands the sockets on. Requests
wait in the kernel until the process accepts them. If it ends before it is ready, they are disconnected. A later start
has no such sockets: while a process that was ready is away, its clients are refused.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from service_chassis.address import Address
from service_chassis.listeners import listen

RESTART_DELAY_FIRST_S = 0.1
#: The same number as service_chassis.lifecycle.START_FAULT_BYTES_MAX, which is not imported for its weight.
_START_FAULT_BYTES_MAX = 4096
#: Variable of admin-api for the descriptors of listening sockets.
_SOCKETS = "MILLRACE_ADMIN_HTTP_SOCKETS"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class ServiceProcess:
    """A process to start: a name of `millrace.service.MAINS`, its settings, and the address of its /readyz."""

    service: str
    settings: Mapping[str, str]
    http_address: str
    #: Number that distinguishes processes of one kind in the log.
    number: int = 1
    #: The command line, `millrace.service` if empty. It stops when its standard input has a byte or ends.
    command: Sequence[str] = ()
    #: The address of its clients, for a process that starts last: the supervisor listens there until it is ready.
    clients: Address | None = None


@dataclass(eq=False)
class Child:
    """The state of one service; owned by the thread in `Supervisor.run`."""

    process: ServiceProcess
    popen: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    ready_at: float | None = None
    starts: int = 0
    #: Whether the service was ready once.
    was_ready: bool = False
    delay_s: float = RESTART_DELAY_FIRST_S
    restart_at: float | None = None
    #: The supervisor's end of the socket.
    stop_pipe: int | None = field(default=None, repr=False)
    #: Listening sockets, on which clients wait for the first start.
    _waiting_room: list[socket.socket] = field(default_factory=list, repr=False)

    @property
    def label(self) -> str:
        return self.process.service if self.process.number == 1 else f"{self.process.service} {self.process.number}"

    @property
    def has_waiting_room(self) -> bool:
        """Whether clients may wait for the process."""
        return bool(self._waiting_room)

    def start(self, descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        """Start the process, which inherits `descriptors` and, at its first start, sockets that listen for its clients.

        Raises:
            OSError: the address of its clients is taken, or the system has no descriptor, process or memory for it.
        """
        self.close_pipe()
        self.started_at, self.restart_at, self.ready_at = time.monotonic(), None, None
        self.starts += 1
        if self.starts == 1 and self.process.clients is not None:
            try:
                self._waiting_room = listen(self.process.clients)
            except OSError as error:
                raise OSError(f"cannot listen at {self.process.clients}: {error.strerror}") from error
        sockets = [each.fileno() for each in self._waiting_room]
        handed_on = {_SOCKETS: ",".join(map(str, sockets))} if self.process.clients is not None else {}
        ours, theirs = socket.socketpair()
        # mutant: signals-blocked
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)  # a child has the mask of its parent
        try:
            self.popen = subprocess.Popen(
                self.process.command or [sys.executable, "-P", "-m", "millrace.service", self.process.service],
                env={**os.environ, **self.process.settings, **handed_on},
                stdin=theirs.fileno(),
                process_group=0,
                pass_fds=(*descriptors, *sockets),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            theirs.close()
        ours.setblocking(False)
        self.stop_pipe = ours.detach()
        return self.popen

    def note_ready(self) -> None:
        """Note that the process is ready; its clients wait no more."""
        self.ready_at = time.monotonic()
        self.was_ready = True
        self.close_waiting_room()

    def close_waiting_room(self) -> None:
        """Leave waiting clients to the process. Without one, they are disconnected."""
        for each in self._waiting_room:
            each.close()
        self._waiting_room.clear()

    def ask_to_stop(self) -> None:
        if self.stop_pipe is not None:
            with contextlib.suppress(OSError):  # it has ended
                os.write(self.stop_pipe, b"s")

    def start_fault(self) -> str:
        """Return the reason that a service wrote before it ended; empty if it wrote none."""
        reason = b""
        with contextlib.suppress(OSError):  # nothing was written, and a child of the service holds the other end
            reason = os.read(self.stop_pipe, _START_FAULT_BYTES_MAX) if self.stop_pipe is not None else b""
        return reason.decode(errors="replace")

    def close_pipe(self) -> None:
        if self.stop_pipe is not None:
            os.close(self.stop_pipe)
            self.stop_pipe = None


def how_it_ended(status: int) -> str:
    """Return an exit status in words. Real-time signals but the first and last have no name."""
    if status >= 0:
        return f"status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
