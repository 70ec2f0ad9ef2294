"""Cleaning in a helper process, so that going through millions of records never holds up the event loop.

The helper is this module, as helper_process.py runs it, for as long as there are logs to clean. The messages:

    to it     a job (job.py)
    from it   {"group": [[base offset, …], bytes]} for each group, then {"done": statistics}, or instead of it
              {"failed": kind, "reason": text}, kind one of uncleanable, disk full, not now, storage, bug; uncleanable
              with the "last_offset" of the batch that is the reason, or -1

The end of its input, whether we closed it or died, stops a job within a megabyte of work; its unfinished files are
removed.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

from storage_svc.log.cleaner.job import Cleaning, CleaningJob, CleaningStatistics
from storage_svc.log.disk import helper_process
from storage_svc.log.disk.files import Files
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import DiskFull, NotNow, Stopped, StorageFailure, Uncleanable
from storage_svc.log.partition.segment_swap import CleanedGroup


class CleanerProcess:
    """The helper, started by the first job. One job at a time; `close` ends it."""

    def __init__(self) -> None:
        self._process: helper_process.Helper | None = None
        #: One waits for the helper's messages; another ends it.
        self._threads = Threads("cleaner", 2)

    async def run(self, job: CleaningJob, statistics: CleaningStatistics) -> AsyncGenerator[CleanedGroup, None]:
        """Yield the groups as they become complete; `statistics` are filled in at the end.

        Raises:
            Uncleanable, StorageFailure, DiskFull: as the job's own.
            Stopped: `close` was called.
        """
        if self._process is None:
            self._process = await self._threads.run(helper_process.start, __name__)
        process = self._process
        try:
            # A job with thousands of producers is larger than a pipe, which the helper reads once it has started.
            await self._threads.run(lambda: helper_process.send(process, job.as_data()))
        except (OSError, ValueError) as error:  # ValueError: `close` has closed the pipe
            raise self._ended(process) from error
        while True:
            message = await self._threads.run(helper_process.receive, process)
            if message is None:
                raise self._ended(process)
            if "group" in message:
                yield CleanedGroup(*message["group"])
            elif "done" in message:
                for name, value in message["done"].items():
                    setattr(statistics, name, value)
                return
            else:
                raise _failure(message)

    def _ended(self, process: helper_process.Helper) -> Exception:
        if self._process is not process:
            return Stopped()
        self._process = None
        return Uncleanable(f"the cleaning process ended with status {helper_process.status(process)}")

    async def close(self) -> None:
        """End the helper; its unfinished segments go with it."""
        process, self._process = self._process, None
        if process is not None:
            await self._threads.run(helper_process.end, process)


def _failure(message: dict[str, Any]) -> Exception:
    if message["failed"] == "uncleanable":
        return Uncleanable(message["reason"], message["last_offset"])
    return _FAILURES[message["failed"]](message["reason"])


_FAILURES: Final[dict[str, type[Exception]]] = {
    "disk full": DiskFull,
    "not now": NotNow,
    "storage": StorageFailure,
    "bug": Uncleanable,
}


def main() -> int:
    """Do the jobs that come until the input ends."""
    helper_process.serve(_work)
    return 0


def _work(job: dict[str, Any], stopped: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    cleaning = Cleaning(Files(), CleaningJob.from_data(job), stopped)
    try:
        for group in cleaning.run():
            yield {"group": [list(group.base_offsets), group.size]}
        yield {"done": asdict(cleaning.statistics)}
    except Stopped:
        return
    except Uncleanable as error:
        yield {"failed": "uncleanable", "reason": str(error), "last_offset": error.last_offset}
    except DiskFull as error:
        yield {"failed": "disk full", "reason": str(error)}
    except NotNow as error:
        yield {"failed": "not now", "reason": str(error)}
    except StorageFailure as error:
        yield {"failed": "storage", "reason": str(error)}
    except Exception as error:  # a bug; the log is marked and reported, the process goes on
        yield {"failed": "bug", "reason": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(main())
