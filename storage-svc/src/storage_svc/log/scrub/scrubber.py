"""The scrub: all batches of all logs are read and checked while the broker works, and damage is removed.

A start checks the part that a crash may have torn, not everything that was ever synced (recovery.py). The scrub reads:

    all logs    once such a start is over, and again each `log.scrub.interval.ms` (a week; counted over restarts by the
                file `last-scrub`)
    one log     at once, if a batch in it was found that cannot be opened

A helper process reads (job.py), at low priority and at most at `log.scrub.io.max.bytes.per.second`. If it reports a
damaged segment, the broker checks that segment again, in a thread. Damage is then copied aside (quarantine.py), and
the rest becomes a new segment that replaces the old one as a compacted one does (segment_swap.py). Readers pass over
the gap. An active segment is closed for that first. A log that is being compacted waits. Wrong base offsets and leader
epochs of batches are corrected in the new segment.

A batch that is as its producer sent it, and whose records clients cannot read, stays. The log line `unreadable batch`
names it, and the totals count it until it is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from service_chassis import logs

from storage_svc.log.batch.readability import NAMED_MAX, Unreadable
from storage_svc.log.config import LogSettings
from storage_svc.log.disk import checkpoints, helper_process
from storage_svc.log.disk.files import Files
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.segment_swap import CleanedGroup, Outdated, carry_out, swap
from storage_svc.log.recovery.quarantine import log_corrected, log_holes, set_aside_holes, write_sound
from storage_svc.log.scrub import job as scrub_job
from storage_svc.log.segment_names import CLEANED_SUFFIX
from storage_svc.topic_partition import TopicPartition

_REPAIR_WAIT_S: Final = 1.0
_ASKED_AGAIN_S: Final = 60
_MODULE: Final = "storage_svc.log.scrub.job"

_log = logs.get(__name__)


@dataclass(slots=True)
class ScrubTotals:
    """Totals since the start."""

    rounds: int = 0
    seconds: float = 0.0
    bytes_read: int = 0
    segments_damaged: int = 0
    quarantined_bytes: int = 0
    damaged_places: int = 0
    failures: int = 0
    #: The number of batches whose records clients cannot read, and the last offset of the last one, by log.
    unreadable: dict[PartitionLog, tuple[int, int]] = field(default_factory=dict)

    @property
    def unreadable_batches(self) -> int:
        """The number of such batches at the last scrub of each log, without logs that have passed all of theirs."""
        return sum(
            count
            for log, (count, last_offset) in self.unreadable.items()
            if not log.deleted and log.log_start_offset <= last_offset
        )


class Scrubber:
    """The scrubber of one data folder, owned by the Maintenance, on the event loop's thread."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        files: Files,
        settings: LogSettings,
        clock: Callable[[], int],
        root: str,
    ) -> None:
        self._logs = logs
        self._files = files
        self._settings = settings
        self._clock = clock
        self._last_scrub_path = f"{root}/{checkpoints.LAST_SCRUB}"
        self._helper: helper_process.Helper | None = None
        #: One waits for the helper's messages; another ends it.
        self._threads = Threads("scrub", 2)
        self._task: asyncio.Task[None] | None = None
        self._wanted: dict[PartitionLog, None] = {}
        #: The time from which on a log may be requested again.
        self._asked: dict[PartitionLog, float] = {}
        self._woken = asyncio.Event()
        self._stopping = False
        self.totals = ScrubTotals()
        #: The times of the last round over everything and of the next one, in ms since 1970; 0: none.
        self.last_ms = self.next_ms = 0

    # -- running ------------------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the task that scrubs. A new folder counts as scrubbed."""
        if not self._logs:  # a new folder: later batches cannot have been damaged before
            self._note_round()
        self._task = loop.create_task(self._work())

    async def stop(self) -> None:
        """Stop scrubbing; a swap that has begun is finished."""
        self._stopping = True
        self._woken.set()
        task, self._task = self._task, None
        while task is not None and not task.done():
            await self._end_helper()
            await asyncio.wait([task], timeout=0.1)

    def request(self, log: PartitionLog) -> None:
        """Scrub this log, in which a damaged batch was found. A second request within a minute does nothing."""
        now = time.monotonic()
        if now >= self._asked.get(log, now):
            self._asked = {each: until for each, until in self._asked.items() if until > now}
            self._asked[log] = now + _ASKED_AGAIN_S
            self._wanted[log] = None
            self._woken.set()

    async def _work(self) -> None:
        due = time.monotonic() + self._due_in_s()
        self._note_next(due)
        while not self._stopping:
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                if not self._wanted:
                    await asyncio.wait_for(self._woken.wait(), max(0.0, due - time.monotonic()))
            if self._stopping:
                break
            wanted, self._wanted = list(self._wanted), {}
            try:
                if time.monotonic() >= due:
                    if await self.scrub(list(self._logs.values())):
                        self._note_round()
                    due = time.monotonic() + self._settings.scrub_interval_ms / 1000
                    self._note_next(due)
                else:
                    await self.scrub(wanted)
            except Exception:  # a bug; it must not end scrubbing for good
                self.totals.failures += 1
                _log.exception("scrub failed")
                due = max(due, time.monotonic() + self._settings.scrub_delay_ms / 1000)

    def _due_in_s(self) -> float:
        """Return the seconds until the next round over everything."""
        # wall clock: the time of the last scrub, which outlives the process; a clock set back is due
        interval_ms, now_ms = self._settings.scrub_interval_ms, self._clock()
        content = self._files.read_file(self._last_scrub_path) or b""
        last_ms = int(content) if content.strip().isdigit() else 0
        self.last_ms = last_ms if 0 < last_ms <= now_ms else 0
        since_ms = now_ms - last_ms if self.last_ms else interval_ms
        return max(self._settings.scrub_delay_ms, interval_ms - since_ms) / 1000

    def _note_next(self, due: float) -> None:
        # wall clock: for people
        self.next_ms = self._clock() + max(0, int((due - time.monotonic()) * 1000))

    def _note_round(self) -> None:
        self.last_ms = self._clock()
        try:
            content = b"%d\n" % self.last_ms
            self._files.replace_file(self._last_scrub_path, content, sync=False)
        except StorageFailure as error:  # the next start scrubs once more
            _log.warning("end of the scrub not noted", reason=str(error))

    # -- one round ----------------------------------------------------------------------------------------------------

    async def scrub(self, wanted: list[PartitionLog]) -> bool:
        """Read these logs and remove damage; return whether all of them were read to the end."""
        started, read, whole = time.perf_counter(), self.totals.bytes_read, True
        damaged = self.totals.segments_damaged
        try:
            for log in wanted:
                if not self._stopping and not log.deleted and log.offline is None:
                    whole = await self._scrub_log(log) and whole
        finally:
            await self._end_helper()
        seconds = time.perf_counter() - started
        self.totals.rounds += 1
        self.totals.seconds += seconds
        _log.info(
            "scrub over",
            logs=len(wanted),
            bytes=self.totals.bytes_read - read,
            damaged_segments=self.totals.segments_damaged - damaged,
            whole=whole,
            seconds=round(seconds, 3),
        )
        return whole

    async def _scrub_log(self, log: PartitionLog) -> bool:
        job = {
            "folder": log.folder,
            "segments": _readable(log),
            "start_offset": log.log_start_offset,
            "end_offset": log.high_watermark,
            "bytes_per_second": self._settings.scrub_io_bytes_per_second,
        }
        damaged: list[int] = []
        unreadable = _UnreadableOfLog(log)
        try:
            if self._helper is None:
                self._helper = await self._threads.run(helper_process.start, _MODULE)
            helper = self._helper
            await self._threads.run(helper_process.send, helper, job)
            while True:
                message = await self._threads.run(helper_process.receive, helper)
                if message is None or "failed" in message:
                    reason = "the helper process ended" if message is None else message["failed"]
                    if not self._stopping:
                        self.totals.failures += 1
                        _log.warning("log not scrubbed", log=log.folder, reason=reason)
                        await self._end_helper()
                    return False
                if "done" in message:
                    break
                self.totals.bytes_read += message["bytes"]
                if message["damaged"]:
                    damaged.append(message["segment"])
                unreadable.add(message["unreadable"], message["named"], message["unreadable_end"])
        except (OSError, ValueError) as error:  # ValueError: `stop` has closed the pipe
            _log.warning("log not scrubbed", log=log.folder, reason=str(error))
            await self._end_helper()
            return False
        unreadable.note(self.totals)
        repaired = True
        for base_offset in damaged:
            repaired = await self.repair(log, base_offset) and repaired
        return repaired

    async def _end_helper(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            await self._threads.run(helper_process.end, helper)

    # -- damage -------------------------------------------------------------------------------------------------------

    async def repair(self, log: PartitionLog, base_offset: int) -> bool:
        """Take the damage out of a segment; whether it is sound then."""
        while log.compaction.running and not self._stopping:  # noqa: ASYNC110 (there is no event for it)
            await asyncio.sleep(_REPAIR_WAIT_S)
        if self._stopping or log.deleted or log.offline is not None:
            return False
        log.compaction.running = True
        try:
            return await self._repair_alone(log, base_offset)
        except (Outdated, StorageFailure) as error:
            self.totals.failures += 1
            _log.error("damage not removed", log=log.folder, segment=base_offset, reason=str(error))
            return False
        finally:
            log.compaction.running = False

    async def _repair_alone(self, log: PartitionLog, base_offset: int) -> bool:
        """Repair a segment while no other task rewrites or deletes segments of the log."""
        wanted = _readable(log)
        index = next((number for number, each in enumerate(wanted) if each[0] == base_offset), None)
        if index is None:
            return True
        found = await self._threads.run(self._look_again, log, wanted[index:], log.high_watermark)
        if found is None or not found.damaged:
            return True
        self.totals.segments_damaged += 1
        self.totals.damaged_places += len(found.holes)
        if log.segments.active.base_offset == base_offset:
            log.write_staged()
            await log.durable(log.log_end_offset)  # `roll` syncs by itself otherwise, and the event loop waits
            log.roll(log.now_ms())
        segment = log.segments[log.segments.index_of(base_offset)]
        if segment.base_offset != base_offset:
            raise Outdated("the segment is gone")
        size = await self._threads.run(self._write_sound, log, found, segment.size)
        if size is None:
            raise Outdated("the segment is another one")
        await carry_out(
            swap(log, CleanedGroup((base_offset,), size), log.now_ms()), self._files.sync_path, self._threads
        )
        log.compaction.uncleanable = None
        self.totals.quarantined_bytes += log_holes(segment, found.holes)
        log_corrected(segment, found.moved)
        return True

    def _look_again(self, log: PartitionLog, wanted: list[tuple[int, int]], end_offset: int) -> scrub_job.Look | None:
        return next(scrub_job.look(self._files, log.folder, wanted, end_offset, epochs=log.epochs), None)

    def _write_sound(self, log: PartitionLog, found: scrub_job.Look, size: int) -> int | None:
        """Copy the damage aside and write `size` bytes of the segment again without it; return the size of the new one.

        The result is None if the file is not the one that was checked.
        """
        segment = found.segment
        segment.open()
        try:
            if segment.file_id != found.file_id or segment.size < size:
                return None
            segment.size = size
            if found.holes:
                set_aside_holes(self._files, segment, found.holes)  # mutant: scrub-copies-damage
            try:
                return write_sound(self._files, segment, found.holes, found.moved, log.config)
            except StorageFailure:
                segment.rename(CLEANED_SUFFIX)
                for path in segment.paths():
                    self._files.unlink(path)
                raise
        finally:
            segment.close()


class _UnreadableOfLog:
    """The unreadable batches that one scrub finds in one log. The first NAMED_MAX have a log line each."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._count = self._named = 0
        self._last_offset = -1

    def add(self, count: int, named: list[Unreadable], last_offset: int) -> None:
        """Add those of one segment."""
        log = self._log
        for _, offset, last_offset, reason in named[: NAMED_MAX - self._named]:
            self._named += 1
            _log.error(
                "unreadable batch",
                topic=log.topic,
                partition=log.partition,
                offset=offset,
                last_offset=last_offset,
                reason=reason,
            )
        self._count += count
        self._last_offset = max(self._last_offset, last_offset)

    def note(self, totals: ScrubTotals) -> None:
        """Put them into the totals, in the place of those of the scrub before."""
        kept = {log: found for log, found in totals.unreadable.items() if log is not self._log and not log.deleted}
        if self._count:
            kept[self._log] = self._count, self._last_offset
        totals.unreadable = kept
        if self._count > self._named:
            count = self._count - self._named
            _log.error("more unreadable batches", topic=self._log.topic, partition=self._log.partition, count=count)


def _readable(log: PartitionLog) -> list[tuple[int, int]]:
    """Return (base offset, bytes) of each segment, as far as consumers may read it."""
    readable = log.readable
    found = []
    for segment in log.segments:
        if segment is readable.segment:
            found.append((segment.base_offset, readable.position))
            break
        found.append((segment.base_offset, segment.size))
    return [each for each in found if each[1]]
