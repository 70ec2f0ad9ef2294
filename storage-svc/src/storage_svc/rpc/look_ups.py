"""Look-ups of records by timestamp, in one thread.

Each opens a batch, which may decompress to megabytes, after a walk that may be long. So all look-ups share one thread,
and no other work waits for it. A look-up whose caller has gone does not begin, or ends within a fraction of a
millisecond, or after a batch was decompressed.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final

from service_chassis.time_slices import Abandoned

from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.timestamps import (
    FoundRecord,
    Search,
    largest_readable,
    search_largest,
    search_timestamp,
)
from storage_svc.log.segment.segment import Segment

#: Segments whose indexes are opened before the event loop goes on: each takes some system calls.
_SEGMENTS_A_TURN: Final = 16


class LookUps:
    """The look-ups of one storage, which owns it and uses it from its event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "look-up")
        self._searches: set[Search] = set()

    @property
    def count(self) -> int:
        """The number of searches that run or wait."""
        return len(self._searches)

    @property
    def wanted_count(self) -> int:
        """The number of searches whose callers wait."""
        return sum(not search.is_abandoned for search in self._searches)

    async def by_timestamp(self, log: PartitionLog, timestamp: int) -> FoundRecord | None:
        """Return the first readable record of this timestamp or a later one; None without one.

        Raises:
            StorageFailure: the disk did not answer.
            DecodeError: a batch is damaged.
            Abandoned: storage stops.
        """
        offset, looked_at = log.log_start_offset, 0
        while offset < log.high_watermark and not log.deleted:
            segments = log.segments
            index = segments.index_of(offset)
            segment, end_offset = segments[index], segments.end_of(index, log.log_end_offset)
            search = search_timestamp(log, segment, timestamp, offset)
            if search is not None and (record := await self._run(search)) is not None:
                return record
            looked_at += 1
            if looked_at % _SEGMENTS_A_TURN == 0:
                await asyncio.sleep(0)
            offset = max(end_offset, offset + 1)
        return None

    async def largest(self, log: PartitionLog) -> FoundRecord | None:
        """Return the first readable record of the largest timestamp; None without timestamps.

        Raises:
            StorageFailure: the disk did not answer.
            DecodeError: a batch is damaged.
            Abandoned: storage stops.
        """
        best: tuple[int, int, Segment] | None = None
        for number, segment in enumerate(log.segments.starting_with(log.log_start_offset), 1):
            if segment.base_offset >= log.high_watermark:
                break
            if not segment.gone:
                timestamp, offset = largest_readable(log, segment)
                if timestamp >= 0 and (best is None or timestamp > best[0]):
                    best = timestamp, offset, segment
            if number % _SEGMENTS_A_TURN == 0:
                await asyncio.sleep(0)
        if best is None or log.deleted:
            return None
        timestamp, offset, segment = best
        if segment.gone:  # rewritten or deleted since: its record may be in another one
            return await self.by_timestamp(log, timestamp)
        search = search_largest(log, segment, timestamp, offset)
        return None if search is None else await self._run(search)

    async def _run(self, search: Search) -> FoundRecord | None:
        loop = asyncio.get_running_loop()
        self._searches.add(search)
        try:
            search.begin()
            running = self._thread.submit(search.run)
        except RuntimeError:  # storage stops
            self._ended(search)
            raise Abandoned from None
        running.add_done_callback(partial(self._end_soon, loop, search))
        try:
            return await asyncio.wrap_future(running)
        finally:
            search.is_abandoned = True

    def _end_soon(self, loop: asyncio.AbstractEventLoop, search: Search, _: Future[FoundRecord | None]) -> None:
        """Give a segment back once no thread reads it, also if the caller has gone."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it all of storage
            loop.call_soon_threadsafe(self._ended, search)

    def _ended(self, search: Search) -> None:
        self._searches.discard(search)
        search.end()

    async def close(self) -> None:
        """Abandon all searches, and wait until none holds its segment."""
        for search in self._searches:
            search.is_abandoned = True
        await asyncio.to_thread(self._thread.shutdown)  # default threads: nothing is served any more
        await asyncio.sleep(0)
