"""Processes that a test stops for a while, as SIGSTOP does."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["freeze", "frozen"]

_TIMEOUT_S = 30.0


def freeze(pid: int) -> None:
    """Send SIGSTOP and wait until each thread of the process stands still.

    The signal alone is not enough: until the kernel has run the thread that takes it, the others go on and may answer.

    Raises:
        TimeoutError: a thread still runs after 30 s.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _TIMEOUT_S
    while any(_runs(thread) for thread in Path(f"/proc/{pid}/task").iterdir()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} still runs")
        time.sleep(0.001)


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Let the process stand still, and go on at the end."""
    freeze(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _runs(thread: Path) -> bool:
    try:
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "TtZX"
