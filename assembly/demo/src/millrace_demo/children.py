"""Child processes and temporary folders that end with the demo, on every way out.

Each child leads a separate process group, so that a stop reaches its children too (the JVM, admin-api). Ctrl-C in the
terminal reaches the demo alone, which then stops its children in order. SIGINT, SIGTERM and SIGHUP become the exception
Interrupted. During registration and clean-up they are held back, so nothing started is ever forgotten.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Self

STOP_SECONDS = 10.0


class Interrupted(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """The conversion of signals into Interrupted, except inside `held()`, which raises it at its end, and after
    `closed()`.

        An extension module may swallow the exception or change it: `received` has the signal in any case.
    """

    def __init__(self) -> None:
        self._held = 0
        self._closed = False
        self.received = 0

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # after `nohup` it stays ignored
                signal.signal(number, self._handle)

    def closed(self) -> None:
        """Ignore further signals: from now on the clean-up runs to its end."""
        self._closed = True

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._closed:
            return
        self.received = self.received or number
        if not self._held:
            raise Interrupted(self.received)

    @contextmanager
    def held(self) -> Iterator[None]:
        before = self.received
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self.received and not before and not self._held:
            raise Interrupted(self.received)


class Child:
    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.process = process

    def stop(self, deadline_s: float = STOP_SECONDS) -> None:
        """Send SIGTERM to the leader, and SIGKILL to the rest of the group at the deadline."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(deadline_s)
        self._kill_group()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Household:
    """Owner of everything the demo starts or creates. Leaving it removes all of it, last first."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything. May be called again: a signal can arrive just before the first call has shut signals
        out.
        """
        self._signals.closed()
        self._stack.close()

    def folder(self, prefix: str) -> Path:
        with self._signals.held():
            path = Path(tempfile.mkdtemp(prefix=prefix))
            self._stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdout: int | IO[str] | None = None,
        stderr: int | IO[str] | None = None,
    ) -> Child:
        with self._signals.held():
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                text=True,
                errors="replace",
                start_new_session=True,
            )
            child = Child(name, process)
            self._stack.callback(child.stop)
        return child
