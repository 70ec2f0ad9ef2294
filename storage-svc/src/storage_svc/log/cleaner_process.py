"""Cleaning in a process of its own, so that going through millions of records never holds up those who wait.

The helper is this module run by our interpreter at low priority, for as long as there are logs to clean. It reads and
writes lines of JSON:

    to it     a job (cleaner_job.py)
    from it   {"group": [[base offset, …], bytes]} for each group, then {"done": statistics}, or instead of it
              {"failed": kind, "reason": text}, kind one of uncleanable, disk full, storage, bug

The end of its input, whether we closed it or died, stops a job within a megabyte of work; nothing of it is left then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from dataclasses import asdict
from queue import SimpleQueue
from typing import Final

from storage_svc.log.cleaner_job import CleanedGroup, Cleaning, CleaningJob, CleaningStatistics, Stopped, Uncleanable
from storage_svc.log.errors import DiskFull, StorageFailure
from storage_svc.log.files import Files

#: With all cores busy the helper gets a tenth of what a process of normal priority gets.
_NICENESS: Final = 10
_END_WAIT_S: Final = 5


class CleanerProcess:
    """The helper, started by the first job. One job at a time; `close` ends it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    async def run(self, job: CleaningJob, statistics: CleaningStatistics) -> AsyncGenerator[CleanedGroup, None]:
        """Hands out the groups as they become complete; `statistics` are filled in at the end.

        Raises:
            Uncleanable, StorageFailure, DiskFull: as the job's own.
            Stopped: `close` was called.
        """
        if self._process is None:
            self._process = await asyncio.to_thread(_start)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(job.as_data()).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise self._ended(process) from error
        while True:
            line = await asyncio.to_thread(process.stdout.readline)
            if not line.endswith(b"\n"):
                raise self._ended(process)
            said = json.loads(line)
            if "group" in said:
                yield CleanedGroup(*said["group"])
            elif "done" in said:
                for name, value in said["done"].items():
                    setattr(statistics, name, value)
                return
            else:
                raise _FAILURES[said["failed"]](said["reason"])

    def _ended(self, process: subprocess.Popen[bytes]) -> Exception:
        if self._process is not process:
            return Stopped()
        self._process = None
        return Uncleanable(f"the cleaning process ended with status {process.wait(_END_WAIT_S)}")

    async def close(self) -> None:
        """The helper is gone, and what it had not finished."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_end, process)


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # an interrupt at the terminal is ours to handle
        env={**os.environ, "PYTHONHASHSEED": "random"},  # the key map relies on it
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # of what was not sent any more
        process.stdin.close()
    try:
        process.wait(_END_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_FAILURES: Final[dict[str, type[Exception]]] = {
    "uncleanable": Uncleanable,
    "disk full": DiskFull,
    "storage": StorageFailure,
    "bug": Uncleanable,
}


def main() -> int:
    """Do the jobs that come until the input ends."""
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
        cleaning = Cleaning(Files(), CleaningJob.from_data(json.loads(line)), ended.is_set)
        try:
            for group in cleaning.run():
                _say({"group": [list(group.base_offsets), group.size]})
            _say({"done": asdict(cleaning.statistics)})
        except Stopped:
            return 0
        except Uncleanable as error:
            _say({"failed": "uncleanable", "reason": str(error)})
        except DiskFull as error:
            _say({"failed": "disk full", "reason": str(error)})
        except StorageFailure as error:
            _say({"failed": "storage", "reason": str(error)})
        except Exception as error:  # a bug; the log is marked and reported, the process goes on
            _say({"failed": "bug", "reason": f"{type(error).__name__}: {error}"})
    return 0


def _say(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
