"""Compaction: every 15 seconds the dirtiest logs that are due are rewritten, one after the other.

Choosing and swapping happen on the event loop, where the logs live. A separate process does the rewriting. While it
runs, a log may be deleted or go offline: segments that were swapped by then stay, the rest is done another time. A
deletion waits until the helper is gone: it writes by path.
`cleaner-offset-checkpoint` keeps how far each log is clean.

A log that cannot be cleaned (damage, a batch that nobody can read, a bug) is marked, reported and skipped until the
next start, as in Kafka. The scrub checks it at once. If it removes damage, or once the log starts after the batch, the
log is cleaned again. After a full disk the cleaning is repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from service_chassis import logs

from storage_svc.log.cleaner.choice import Cleanable, cleanable, dirtiest
from storage_svc.log.cleaner.job import Cleaning, CleaningJob, CleaningStatistics
from storage_svc.log.cleaner.process import CleanerProcess
from storage_svc.log.config import LogSettings
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Files
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import Refused, Stopped, StorageFailure, Uncleanable
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.segment_swap import Outdated, carry_out, carry_out_now, swap
from storage_svc.topic_partition import TopicPartition

#: The disk space that a cleaning leaves to appends.
_RESERVE_BYTES: Final = 64 << 20
_STOP_CHECK_S: Final = 0.1
_RESTART_CHECK_S: Final = 0.01
#: The shortest pause in seconds, for a backoff of 0: each search checks every compacted log.
_PAUSE_MIN_S: Final = 0.1

_log = logs.get(__name__)


@dataclass(slots=True)
class CleanerTotals:
    """Totals since the start."""

    runs: int = 0
    failures: int = 0
    seconds: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    records_removed: int = 0


@dataclass(slots=True)
class _Round:
    """One cleaning of one log."""

    found: Cleanable
    job: CleaningJob
    statistics: CleaningStatistics = field(default_factory=CleaningStatistics)


class CheckpointWriter(Protocol):
    """The store of the data folder's checkpoints, as far as the cleaner writes them."""

    async def store(self, name: str) -> bool:
        """Store one checkpoint as of now; return whether that worked."""
        ...

    def store_all(self) -> bool:
        """Store every checkpoint as of now; return whether that worked."""
        ...


class Cleaner:
    """The cleaner of one data folder, owned by the Maintenance, on the event loop's thread."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        files: Files,
        settings: LogSettings,
        clock: Callable[[], int],
        root: str,
        stored: CheckpointWriter,
    ) -> None:
        self._logs = logs
        self._files = files
        self._settings = settings
        self._clock = clock
        self._root = root
        self._checkpoints = stored
        self._process = CleanerProcess()
        self._threads = Threads("swap", 1)
        #: The log that the helper rewrites.
        self._cleaned: PartitionLog | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        #: Set at the stop, and when other settings are in force.
        self._woken = asyncio.Event()
        #: The settings of the latest cleaning.
        self._begun_under = settings
        self._restarting: asyncio.Task[None] | None = None
        self.totals = CleanerTotals()
        #: The ratio of the dirtiest log at the last check, 0 to 1.
        self.dirty_ratio_max = 0.0

    # -- running ------------------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the task that looks for dirty logs."""
        self._task = loop.create_task(self._work())

    async def stop(self) -> None:
        """Finish a swap that has begun; throw unfinished segments away."""
        self._stopping.set()
        self._woken.set()
        task, self._task = self._task, None
        while task is not None and not task.done():
            await self._process.close()  # it may be just about to start
            await asyncio.wait([task], timeout=_STOP_CHECK_S)
        if self._restarting is not None:
            await self._restarting

    def configure(self, settings: LogSettings) -> None:
        """Clean under these settings from now on; a cleaning under others is begun again, as in Kafka's LogCleaner."""
        if _limits(settings) == _limits(self._settings):
            return
        self._settings = settings
        self._woken.set()
        # mutant: cleaning-settings-current
        if self._cleaned is not None and (self._restarting is None or self._restarting.done()):
            self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        """End the helper for as long as it works under settings that are not in force any more."""
        while self._cleaned is not None and self._begun_under is not self._settings:
            await self._process.close()  # it may be just about to start
            await asyncio.sleep(_RESTART_CHECK_S)

    async def give_up(self, log: PartitionLog) -> None:
        """End the helper if it is rewriting this log, whose folder is about to get another name."""
        if self._cleaned is log:
            await self._process.close()

    async def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                while not self._stopping.is_set() and (found := self._choose()) is not None:
                    await self._clean(found)
            except Exception:  # a bug in choosing; compaction of the others must go on
                _log.exception("compaction failed")
            await self._process.close()
            with contextlib.suppress(TimeoutError):
                pause_s = max(_PAUSE_MIN_S, self._settings.cleaner_backoff_ms / 1000)
                await asyncio.wait_for(self._woken.wait(), pause_s)
            if not self._stopping.is_set():
                self._woken.clear()

    def _choose(self) -> Cleanable | None:
        now_ms = self._clock()  # wall clock: ages of records, and horizons of tombstones, which are stored
        found = []
        for log in list(self._logs.values()):
            state = log.compaction
            if 0 <= state.uncleanable_to < log.log_start_offset:  # mutant: cleanable-without-batch
                state.uncleanable, state.uncleanable_to = None, -1
            kept_out = state.running or state.uncleanable is not None
            if log.config.compacted and not log.deleted and log.offline is None and not kept_out:
                try:
                    found.append(cleanable(log, now_ms))
                except Refused as error:
                    _log.warning("log not checked", log=log.folder, reason=str(error))
                except StorageFailure as error:
                    self._give_up(log, str(error))
        self.dirty_ratio_max = max((each.dirty_ratio for each in found), default=0.0)
        return dirtiest([each for each in found if self._has_room(each)])

    def _has_room(self, found: Cleanable) -> bool:
        """Return whether the disk can hold the new segments next to the old ones, which are deleted a while later."""
        if not found.due:
            return True
        needed = found.clean_bytes + found.dirty_bytes + _RESERVE_BYTES
        if self._files.free_bytes(self._root) >= needed:
            return True
        _log.warning("no space to compact", log=found.log.folder, bytes=needed)
        return False

    async def _clean(self, found: Cleanable) -> None:
        log = found.log
        cleaning = self._begin(found)
        self._cleaned = log
        try:
            async with contextlib.aclosing(self._process.run(cleaning.job, cleaning.statistics)) as groups:
                async for group in groups:
                    await carry_out(swap(log, group, self._clock()), self._files.sync_path, self._threads)
            self._complete(cleaning)
            await self._checkpoints.store(checkpoints.CLEANED)
        except (Stopped, Outdated, Uncleanable, StorageFailure) as error:
            self._failed(cleaning, error)
            await self._process.close()
        finally:
            self._cleaned = None
            log.compaction.running = False

    def clean_now(self, log: PartitionLog) -> CleaningStatistics:
        """Clean one log here and now, whether it is due or not; before `start` or after `stop`.

        Raises:
            Uncleanable, Outdated, StorageFailure: it was not, or not wholly.
        """
        cleaning = self._begin(cleanable(log, self._clock()))
        work = Cleaning(self._files, cleaning.job)
        try:
            for group in work.run():
                carry_out_now(swap(log, group, self._clock()), self._files.sync_path)
            cleaning.statistics = work.statistics
            self._complete(cleaning)
            self._checkpoints.store_all()
        except (Outdated, Uncleanable, StorageFailure) as error:
            self._failed(cleaning, error)
            raise
        finally:
            log.compaction.running = False
        return work.statistics

    # -- one cleaning -------------------------------------------------------------------------------------------------

    def _begin(self, found: Cleanable) -> _Round:
        log = found.log
        log.compaction.running = True
        self._begun_under = self._settings
        return _Round(found, _job(found, self._clock(), self._settings))

    def _complete(self, cleaning: _Round) -> None:
        found, statistics = cleaning.found, cleaning.statistics
        log = found.log
        log.compaction.cleaned_to = statistics.cleaned_to
        totals = self.totals
        totals.runs += 1
        totals.seconds += statistics.seconds
        totals.bytes_read += statistics.bytes_read
        totals.bytes_written += statistics.bytes_written
        totals.records_removed += statistics.records_read - statistics.records_kept
        _log.info(
            "log cleaned",
            log=log.folder,
            dirty_from=found.dirty_from,
            cleaned_to=statistics.cleaned_to,
            bytes_before=sum(size for base, size in cleaning.job.segments if base < statistics.cleaned_to),
            bytes_after=statistics.bytes_written,
            records_before=statistics.records_read,
            records_after=statistics.records_kept,
            keyless_records=statistics.keyless_records,
            keys=statistics.keys,
            key_map_bytes=statistics.key_map_bytes,
            seconds=round(statistics.seconds, 3),
        )

    def _failed(self, cleaning: _Round, error: Exception) -> None:
        log = cleaning.found.log
        if isinstance(error, Stopped | Outdated):
            _log.info("cleaning given up", log=log.folder, reason=str(error) or "stopping")
            return
        self.totals.failures += 1
        if isinstance(error, Refused):
            _log.warning("cleaning failed", log=log.folder, reason=str(error))
        else:
            self._give_up(log, str(error), error.last_offset if isinstance(error, Uncleanable) else -1)

    def _give_up(self, log: PartitionLog, reason: str, last_offset: int = -1) -> None:
        if not log.deleted:
            log.compaction.uncleanable, log.compaction.uncleanable_to = reason, last_offset
            log.suspect()
            _log.error("log uncleanable", log=log.folder, topic=log.topic, partition=log.partition, reason=reason)


def _limits(settings: LogSettings) -> tuple[int, int, int]:
    return settings.cleaner_backoff_ms, settings.cleaner_dedupe_buffer_bytes, settings.cleaner_io_bytes_per_second


def _job(found: Cleanable, now_ms: int, settings: LogSettings) -> CleaningJob:
    log, config = found.log, found.log.config
    return CleaningJob(
        folder=log.folder,
        segments=[(each.base_offset, each.size) for each in log.segments if each.base_offset < found.end_offset],
        dirty_from=found.dirty_from,
        end_offset=found.end_offset,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        delete_retention_ms=config.delete_retention_ms,
        last_batches={
            producer_id: (producer.batches[-1].last_offset if producer.batches else -1, producer.epoch)
            for producer_id, producer in log.producers.producers.items()
        },
        # Also those whose markers lie after the cleaned part.
        aborted=[
            entry for each in log.segments for entry in each.transaction_index if entry.first_offset < found.end_offset
        ],
        key_map_bytes=settings.cleaner_dedupe_buffer_bytes,
        bytes_per_second=settings.cleaner_io_bytes_per_second,
    )
