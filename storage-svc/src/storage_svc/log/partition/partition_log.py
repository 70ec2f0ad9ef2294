"""One partition's log: segments, what is known of its producers and epochs, and how far it is durable and readable.

    log start offset <= last stable offset <= high watermark <= log end offset

Its end is moved by batch_writer.py, the stable offset by transactions.py; this is where the parts meet: what is durable
and so readable, which segments there are, and whether the log can be trusted.

The high watermark follows the syncs (`flush.policy = group`) or the writes (`os`). A log is taken offline when its disk
cannot be trusted: a failed sync may have lost pages for good, so nothing more is acknowledged; what is below the high
watermark is still read.

State is owned by the event loop's thread; only the syncing of pinned segments runs in another (flusher.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from protocol_lib.errors import ErrorCode
from service_chassis import logs

from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.disk.files import Buffer
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.batch_writer import BatchWriter
from storage_svc.log.partition.compaction_state import CompactionState
from storage_svc.log.partition.environment import LogEnvironment
from storage_svc.log.partition.high_watermark import HighWatermark
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.partition.outcome import Admitted, Appended, Origin
from storage_svc.log.partition.reading import Places, Span, find_batches, find_spans
from storage_svc.log.partition.transactions import Transactions
from storage_svc.log.partition.unsynced import SyncTarget, Unsynced
from storage_svc.log.producers.snapshots import ProducerSnapshots
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.segment_list import Segments, set_aside

if TYPE_CHECKING:
    from storage_svc.log.partition.flusher import Flusher

__all__ = ["Admitted", "Appended", "Origin", "PartitionLog"]

_NONE: Final = int(ErrorCode.NONE)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_UNKNOWN_PARTITION: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

_log = logs.get(__name__)


class PartitionLog:
    """Made by recovery.py (existing folders) and data_folder.py (new ones)."""

    def __init__(
        self,
        environment: LogEnvironment,
        folder: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        segments: list[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        producers: ProducerState,
        epochs: LeaderEpochs,
        config: LogConfig,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.folder = folder
        self.files = environment.files
        self.segments = Segments(segments, environment.open_segments)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.readable = HighWatermark(log_end_offset, segments[-1], segments[-1].size)
        self.places = Places()
        self.recovery_point = log_end_offset
        self.producers = producers
        self.transactions = Transactions(self)
        self.epochs = epochs
        self.leader_epoch = max(0, epochs.latest)
        self.unsynced = Unsynced()
        self.compaction = CompactionState()
        self.offline: str | None = None
        #: Offline, and nothing of it is read.
        self.withheld = False
        self.deleted = False
        self.appended_batches = self.appended_records = self.appended_bytes = 0
        self._environment = environment
        self._place = environment.revisions.place()
        #: Whether somebody was told what holds until the log changes.
        self.told = False
        self.writer = BatchWriter(self, environment)
        #: Who syncs it; it stays with one, for only one after the other its syncs say how far it is durable.
        self.flusher: Flusher | None = None
        # What the checkpoints go on saying of a damaged log, so that no later start cuts it.
        self._known_durable: tuple[int, int] | None = None
        self.snapshots = ProducerSnapshots(environment.files, folder)
        #: Below it nothing counts as durable before its sync, whatever the policy is now.
        self.promised_end = 0
        self.configure(config)

    @property
    def high_watermark(self) -> int:
        return self.readable.offset

    @property
    def last_stable_offset(self) -> int:
        return self.transactions.stable_offset

    def now_ms(self) -> int:
        return self._environment.clock()

    def configure(self, config: LogConfig) -> None:
        """Use these settings from now on. A flush policy counts for what is written after it was set."""
        self.changed()
        self.config = config
        self.policy = config.flush_policy or self._environment.policy
        if self.policy is FlushPolicy.OS and self.high_watermark < self.log_end_offset:
            self.promised_end = self.log_end_offset
        self.writer.configure(config)
        self.segments.configure(config)

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(self, records: Buffer, *, origin: Origin = Origin.CLIENT) -> Appended:
        """Check and write one batch. Coordinators' batches are trusted and may go to any topic; their markers go
        through `transactions`."""
        appended = self.writer.stage(memoryview(records), origin, self.now_ms())
        self.writer.write_staged()
        return appended

    @property
    def roll_syncs(self) -> bool:
        """Whether `roll` must sync first. What comes to the new segment may reach the disk by itself; behind batches
        that did not it makes a hole. Who can wait until the log is durable does, rather than hold up the event loop.

        What `os` wrote, before the policy was changed, may leave such a hole until the next sync, as under `os`.
        """
        return self.policy is FlushPolicy.GROUP and self.high_watermark < self.log_end_offset

    def roll(self, now_ms: int) -> None:
        """Close the active segment, which is not empty, and start another; nothing may be staged.

        Raises:
            StorageFailure: the log goes on with the active segment it has, or is offline: a sync failed.
        """
        old = self.segments.active
        if self.roll_syncs:
            try:
                old.sync(self.files)
            except StorageFailure as error:
                self.take_offline(f"sync failed: {error}")
                raise
        segment = Segment.create(self.files, self.folder, self.log_end_offset, self.config, now_ms)
        to_sync = [self.folder]
        try:
            old.finish()
            to_sync += self.snapshots.store(self.producers, self.log_end_offset)
        except StorageFailure as error:  # both are rebuilt from the log when they are needed
            _log.warning("index or producer snapshot not written", segment=old.relative_path, reason=str(error))
        self.segments.add(segment)
        if self.high_watermark == self.log_end_offset:
            self.readable.place(segment, 0)
        self.unsynced.add_segments(old)
        self.unsynced.add_paths(*to_sync)
        self._environment.mark(self)

    # -- durability ---------------------------------------------------------------------------------------------------

    def request_sync(self) -> None:
        """Sync what is written by the time the flusher comes to it."""
        self.unsynced.include_active()
        self._environment.mark(self)

    def sync_target(self) -> SyncTarget | None:
        """What to sync now, pinned; None when there is nothing. `synced` must follow."""
        return None if self.deleted or self.offline is not None else self.unsynced.take(self)

    def synced(self, target: SyncTarget) -> None:
        """A sync is over: move on, or go offline when it failed."""
        for segment in target.segments:
            segment.unpin()
        if self.deleted:
            return
        if target.failure is not None:
            self.take_offline(f"sync failed: {target.failure}")
        if self.offline is not None:  # a later sync that succeeds says nothing of the pages that failed before
            return
        if target.paths:
            self.snapshots.note_synced(self.segments.active.base_offset, target.paths)
        self.recovery_point = max(self.recovery_point, target.recovery_point)
        if target.end_offset > self.high_watermark:
            self.readable.advance(target.end_offset, target.segment, target.position, self)

    def on_durable(self, offset: int, callback: Callable[[int], None]) -> None:
        """Call back with 0 once the high watermark is at the offset or behind it, with an error code if it never will.

        For a batch that is its last offset + 1. Called at once when that is already so.
        """
        if self.high_watermark >= offset:
            callback(_NONE)
        elif self.offline is not None or self.deleted:
            callback(self.unavailable)
        else:
            self.readable.wait(offset, callback)

    async def durable(self, offset: int) -> int:
        """As `on_durable`, for coroutines."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.on_durable(offset, lambda code: None if future.done() else future.set_result(code))
        return await future

    def take_offline(self, reason: str) -> None:
        """Refuse appends and acknowledge nothing more; reading below the high watermark goes on."""
        if self.offline is None:
            self.offline = reason
            _log.error("log offline", log=self.folder, reason=reason, high_watermark=self.high_watermark)
        self.changed()
        self.readable.fail(self.unavailable)

    def quarantine(self, reason: str, recovery_point: int, high_watermark: int) -> None:
        """Damage was found below an offset that is known to be durable: leave everything as it is."""
        self._known_durable = recovery_point, high_watermark
        self.take_offline(reason)

    def withhold(self, reason: str) -> None:
        """Go offline for readers too: what is here may be another topic's, or cannot be read at all."""
        recovery_point, high_watermark = self.checkpoint
        self.withheld = True
        self.readable.offset = self.log_start_offset
        self.readable.place(self.segments[0], 0)
        self.quarantine(reason, recovery_point, high_watermark)

    def suspect(self) -> None:
        """Have the log scrubbed: the caller has met a batch that is not what was written."""
        self._environment.suspect((self.topic, self.partition))

    @property
    def checkpoint(self) -> tuple[int, int]:
        """(recovery point, high watermark) for the next start."""
        return self._known_durable or (self.recovery_point, self.high_watermark)

    @property
    def unavailable(self) -> int:
        """The error code for what an offline or deleted log is asked for."""
        return _UNKNOWN_PARTITION if self.deleted else _STORAGE_ERROR

    # -- reading and segments -----------------------------------------------------------------------------------------

    def spans(self, offset: int, max_bytes: int, *, min_one: bool, committed: bool = False) -> list[Span]:
        """What a consumer may read from the offset on: at most `max_bytes`, but with `min_one` at least one batch; with
        `committed` nothing of undecided transactions.

        Raises:
            StorageFailure: the disk did not answer.
        """
        return find_spans(self, offset, max_bytes, min_one=min_one, committed=committed)

    def read_batches(self, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that contains the offset, at least one, up to the log end offset; empty there.

        For our own coordinators: what is not durable yet is read too.

        Raises:
            StorageFailure: the disk did not answer.
        """
        return find_batches(self, offset, max_bytes)

    def tell(self) -> tuple[int, int]:
        """(place, number) in the environment's Revisions: what is told of the log now holds while the number stays."""
        self.told = True
        return self._place, self._environment.revisions[self._place]

    def changed(self) -> None:
        """What was told of the log may not hold any more; before anybody else hears of the change."""
        if self.told:
            self.told = False
            self._environment.revisions.move(self._place)

    def drop_oldest(self, count: int) -> int:
        """Delete the oldest segments, at most so many and never all of them; how many bytes that were.

        What is known of the producers whose batches go must be in the snapshot of a segment that stays: without one (it
        could not be written when the segment was begun) fewer go, or none.

        Raises:
            StorageFailure: files of theirs are left in the folder until the next start.
        """
        count = min(count, self.snapshots.newest(self.segments.bases))
        if count == 0:
            return 0
        dropped = self.segments.take_oldest(count)
        self.changed()
        self.unsynced.forget_segments(dropped)
        paths: list[str] = []
        try:
            self.raise_log_start(self.segments.bases[0])
            for segment in dropped:
                paths += set_aside(self.files, segment)
        finally:
            self._environment.unlink_later(paths, self.config.file_delete_delay_ms)
        freed = sum(segment.size for segment in dropped)
        self._environment.note_deleted(freed)
        return freed

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """A rewritten segment takes the place of those behind the active one that it was made of (segment_swap.py).

        Raises:
            StorageFailure: it has; files of the old ones are left under their names.
        """
        self.segments.replace(old, new)
        self.changed()
        self.unsynced.forget_segments(old)
        if self.readable.segment in old:  # at its end: what is cleaned is readable
            self.readable.place(self.segments[self.segments.index_of(new.base_offset) + 1], 0)
        paths: list[str] = []
        try:
            for segment in old:
                paths += set_aside(self.files, segment, snapshot=segment.base_offset != new.base_offset)
        finally:
            self._environment.unlink_later(paths, self.config.file_delete_delay_ms)

    def raise_log_start(self, offset: int) -> None:
        """Records below the offset are not read any more."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.changed()
            if self.epochs.advance(offset):
                self.epochs.store(sync=False)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(newest epoch not newer than this one, the offset behind its last record); (-1, -1) when none is known."""
        if epoch == self.leader_epoch:
            return epoch, self.log_end_offset
        if not 0 <= epoch < self.leader_epoch:
            return -1, -1
        return self.epochs.end_of(epoch) or (max(self.epochs.latest, epoch), self.log_end_offset)

    def mark_deleted(self) -> None:
        """The partition is gone: whoever waits learns it now."""
        self.deleted = True
        self.changed()
        self.readable.fail(self.unavailable)
        self.readable.touch(self)
        self.segments.close()

    def close(self) -> None:
        """Complete the index files and store the producer state. Everything must be synced.

        Raises:
            StorageFailure: the next start must recover this log.
        """
        if self.offline is None:
            self.segments.active.finish()
            self.snapshots.store(self.producers, self.log_end_offset)
        self.segments.close()

    def check_invariants(self) -> None:
        """Raise AssertionError unless the log's state is consistent."""
        offsets = [self.log_start_offset, self.last_stable_offset, self.high_watermark, self.log_end_offset]
        assert offsets == sorted(offsets), (self.folder, offsets)
        assert self.recovery_point <= self.log_end_offset, self.folder
        self.segments.check_invariants()
        assert self.segments.bases[0] <= self.log_start_offset, self.folder
        self.writer.check_invariants()
        assert self.readable.segment in self.segments, self.folder
        assert self.readable.position <= self.readable.segment.size, self.folder
        for segment in self.segments if self.offline is None else ():
            assert segment.descriptor < 0 or self.files.status(segment.descriptor).st_size == segment.size, segment.path
