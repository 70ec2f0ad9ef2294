"""`millrace up` as a child process of a program: started, ready, its addresses known, stopped in order.

with RunningUp("--processes", "--kafka-port", "0", "--http-port", "0") as up:
    print(up.kafka, up.http, up.services())
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["RunningUp", "UpFailedError"]

_RETURNED = '"event": "service is back"'
_READY = re.compile(r"ready kafka=(\S+) http=(\S+)")


class UpFailedError(Exception):
    """The end of `millrace up`, or a start that was not ready in time; the message has the end of its output."""


class RunningUp:
    """One `millrace up`. Its standard error goes to `log_path`, by default a temporary file."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        log_path: Path | None = None,
        ready_timeout_s: float = 60.0,
        stop_timeout_s: float = 60.0,
        python: str = sys.executable,
    ) -> None:
        self._command = [python, "-m", "millrace", "up", *arguments]
        self._environment = environment or {}
        self._log = open(log_path, "w+b") if log_path else tempfile.TemporaryFile()  # noqa: SIM115
        self._ready_timeout_s = ready_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._popen: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        #: `host:port` of Kafka and of the REST API.
        self.kafka = ""
        self.http = ""
        #: Seconds from the start to the ready line, and to the first answer of REST to a request that waited for it.
        self.ready_after_s = 0.0
        self.rest_after_s = 0.0
        self._metrics = ""

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        if self._popen is None:
            raise RuntimeError("not started")
        return self._popen.pid

    def start(self) -> Self:
        self.spawn()
        self.await_ready()
        return self

    def spawn(self) -> None:
        """Start the process without a wait."""
        self._began = time.monotonic()
        self._popen = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **self._environment},
        )

    def await_ready(self) -> None:
        """Wait for the ready line and for REST. Raises UpFailedError when the process ends, or is not ready in time."""
        line, _, self._metrics = self._first_line(self._began + self._ready_timeout_s).partition("\n")
        ready = _READY.fullmatch(line)
        if ready is None:
            status = self.stop()
            raise UpFailedError(f"millrace up was not ready (status {status}, output {line!r}):\n{self.log()[-4000:]}")
        self.kafka, self.http = ready.groups()
        self.ready_after_s = time.monotonic() - self._began
        try:
            with urllib.request.urlopen(f"http://{self.http}/healthz", timeout=self._ready_timeout_s):
                self.rest_after_s = time.monotonic() - self._began
        except OSError as error:
            raise UpFailedError(f"REST did not answer: {error}:\n{self.log()[-4000:]}") from error

    def wait(self) -> int:
        """Wait for the end of a process that something else stops; return the exit status."""
        if self._popen is None:
            raise RuntimeError("not started")
        return self._popen.wait(self._stop_timeout_s)

    def stop(self) -> int:
        """Request a stop and wait; return the exit status. Kills the process if it does not stop in time."""
        popen = self._popen
        if popen is None:
            raise RuntimeError("not started")
        popen.terminate()
        try:
            status = popen.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            popen.kill()
            status = popen.wait()
        if popen.stdout is not None:
            popen.stdout.close()
        return status

    def log(self) -> str:
        """Return the output so far of the launcher and its services."""
        return os.pread(self._log.fileno(), 1 << 24, 0).decode(errors="replace")

    def metrics(self) -> dict[str, str]:
        """Return the address of each service's /metrics by its name."""
        return dict(pair.split("=", 1) for pair in self._metrics.split("\n", 1)[0].split()[1:])

    def services(self) -> dict[str, list[int]]:
        """Process ids of the running services by name (Linux)."""
        found: dict[str, list[int]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]
                command = folder.joinpath("cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue  # it has ended
            if int(parent) == self.pid and "millrace.service" in command:
                service = command[command.index("millrace.service") + 1]
                found.setdefault(service, []).append(int(folder.name))
        return {service: sorted(pids) for service, pids in found.items()}

    def kill(self, *services: str) -> None:
        """Kill a process of each service, and wait until the supervisor has restarted them all."""
        running, returned = self.services(), self.log().count(_RETURNED)
        for service in services:
            os.kill(running[service][0], signal.SIGKILL)
        deadline = time.monotonic() + self._ready_timeout_s
        while self.log().count(_RETURNED) < returned + len(services):
            if time.monotonic() > deadline:
                raise UpFailedError(f"not back: {', '.join(services)}:\n{self.log()[-4000:]}")
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._log.close()

    def _first_line(self, deadline: float) -> str:
        if self._popen is None or self._popen.stdout is None:
            raise RuntimeError("not started")
        output = self._popen.stdout.fileno()
        line = b""
        while b"\n" not in line:
            readable, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(output, 4096) if readable else b""
            if not part:
                break
            line += part
        return line.decode(errors="replace")
