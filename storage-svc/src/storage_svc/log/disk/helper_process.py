"""Helper processes: a module of ours run by our interpreter at low priority, so that long work never holds up the event
loop.

The helper reads jobs and writes messages about them, each a line of JSON. The end of its input, whether we closed it or
died, is the sign to stop.
"""

from __future__ import annotations

import contextlib
import json
import os  # past the file layer: starts processes
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Final

#: The niceness at which, with all cores busy, the helper gets a tenth of the share of a process of normal priority.
_NICENESS: Final = 10
_END_WAIT_S: Final = 5

Helper = subprocess.Popen[bytes]


def start(module: str) -> Helper:
    """Run a module whose `main` calls `serve`; blocks for as long as a process takes to be made."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # an interrupt at the terminal is ours to handle
        env={**os.environ, "PYTHONHASHSEED": "random"},  # the cleaner's key map relies on it
    )


def send(helper: Helper, job: dict[str, Any]) -> None:
    """Send a job.

    Raises:
        OSError: the helper is gone.
    """
    assert helper.stdin is not None
    helper.stdin.write(json.dumps(job).encode() + b"\n")
    helper.stdin.flush()


def receive(helper: Helper) -> dict[str, Any] | None:
    """Return the next message, after any time; None once the helper is gone."""
    assert helper.stdout is not None
    line = helper.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def status(helper: Helper) -> int:
    """Return the exit status of a helper that is gone, or about to go."""
    return helper.wait(_END_WAIT_S)


def end(helper: Helper) -> None:
    """End the helper and wait until it is gone."""
    assert helper.stdin is not None
    with contextlib.suppress(OSError):  # a job that was not sent yet is lost
        helper.stdin.close()
    try:
        helper.wait(_END_WAIT_S)
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()


def serve(work: Callable[[dict[str, Any], Callable[[], bool]], Iterator[dict[str, Any]]]) -> None:
    """Do, in the helper, the jobs that come until the input ends. `work` gets a job and a function that says when to
    stop.
    """
    os.nice(_NICENESS)
    ended = threading.Event()
    jobs: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            jobs.put(line)
        ended.set()
        jobs.put(b"")

    threading.Thread(target=read, daemon=True).start()
    while line := jobs.get():
        for message in work(json.loads(line), ended.is_set):
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()
