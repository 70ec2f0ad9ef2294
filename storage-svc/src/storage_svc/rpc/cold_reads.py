"""Reads of records that are not in the page cache, in threads: a cold disk takes milliseconds each time.

The kernel says whether a read would wait for the disk. Records that are in memory are read on the event loop, which is
faster than a thread. Segments stay open while a thread reads them, even if their log is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Final

from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.log_reader import Span
from storage_svc.log.segment.open_segments import open_segments_max
from storage_svc.log.segment.segment import Segment

#: Reads at the same time.
_THREADS: Final = 2

#: One read holds at most this part of the segments that may be open (open_segments.py).
_OPEN_PART: Final = 8

#: The records of each run of spans, or the reason why they could not be read.
Outcome = list[bytes] | StorageFailure


def read_spans(spans: Iterable[Span]) -> bytes:
    """Return the records of some spans, from the disk if need be.

    Raises:
        StorageFailure: the disk did not answer.
    """
    return b"".join([segment.read(position, length) for segment, position, length in spans])


class ColdReads:
    """The cold reads of one storage. ReadAnswers owns it and uses it from the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, files: Files) -> None:
        self._loop = loop
        self._files = files
        self._threads = ThreadPoolExecutor(_THREADS, "cold-read")
        #: Most segments of one read.
        self.segments_max = open_segments_max() // _OPEN_PART
        #: The number of reads in the threads.
        self.count = 0
        self._is_finished = False
        self._idle = asyncio.Event()
        self._idle.set()

    def are_cold(self, runs: Iterable[list[Span]]) -> bool:
        """Return whether reading these spans would wait for the disk.

        Raises:
            StorageFailure: a segment cannot be opened.
        """
        for segment, position, length in (span for spans in runs for span in spans):
            segment.open()
            if not self._files.is_resident(segment.descriptor, length, position):
                return True
        return False

    def read(self, runs: list[list[Span]], done: Callable[[Outcome], None]) -> Callable[[], None]:
        """Read the records of each run in a thread, and call `done` later. Return a function that gives the read up.

        `done` is called at once if a segment cannot be opened.
        """
        segments: list[Segment] = []
        try:
            for segment, _, _ in chain.from_iterable(runs):
                segment.open()
                segment.pin()
                segments.append(segment)
        except StorageFailure as error:
            for segment in segments:
                segment.unpin()
            done(error)
            return lambda: None
        places = [[(segment.descriptor, length, position) for segment, position, length in spans] for spans in runs]
        wanted = True

        def read() -> list[bytes]:
            return [b"".join([self._files.read(*place) for place in run]) if wanted else b"" for run in places]

        def give_up() -> None:
            nonlocal wanted
            wanted = False

        def ended(outcome: Outcome) -> None:
            self._count(-1)
            for segment in segments:
                segment.unpin()
            if wanted:
                done(outcome)

        def in_thread(future: Future[list[bytes]]) -> None:
            error = future.exception()
            outcome = future.result() if error is None else StorageFailure(f"{type(error).__name__}: {error}")
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it all of storage
                self._loop.call_soon_threadsafe(ended, outcome)

        self._count(1)
        self._threads.submit(read).add_done_callback(in_thread)
        return give_up

    async def warm(self, segment: Segment, position: int, length: int) -> None:
        """Read records of an open segment in a thread, so that they are in memory when the file is sent.

        Raises:
            StorageFailure: the disk did not answer.
        """
        if self._is_finished:
            return

        def ended(outcome: asyncio.Future[None]) -> None:
            outcome.cancelled() or outcome.exception()  # nobody may wait for it any more
            segment.unpin()
            self._count(-1)

        segment.pin()
        self._count(1)
        reading = self._loop.run_in_executor(self._threads, self._files.warm, segment.descriptor, length, position)
        reading.add_done_callback(ended)
        await asyncio.shield(reading)

    def _count(self, change: int) -> None:
        self.count += change
        (self._idle.clear if self.count else self._idle.set)()

    async def finish(self) -> None:
        """Wait until all reads are over; `read` must not be called again."""
        self._is_finished = True
        await self._idle.wait()
        self._threads.shutdown(wait=False)
