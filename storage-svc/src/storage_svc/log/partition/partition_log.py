"""One partition's log: the steps that change its LogState, and the parts that take them.

    append     writer.stage, write_staged                     batch_writer.py
    segments   roll, drop_oldest, replace_segments
    sync       request_sync, sync_target, synced              flusher.py
    read       spans, read_batches                            log_reader.py

The high watermark follows the syncs (`flush.policy = group`) or the writes (`os`). A log is taken offline when its disk
cannot be trusted: a failed sync may have lost pages for good, so nothing more is acknowledged. Records below the high
watermark are still read.

A deleted log changes no file. Its folder is renamed, and every path that the log holds is renamed with it (`move`),
because the old path may become another topic's.

The event loop's thread owns the state; only the syncing of pinned segments runs in another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from protocol_lib.errors import ErrorCode
from service_chassis import logs

from storage_svc.log.config import FOREVER, FlushPolicy, LogConfig
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Buffer
from storage_svc.log.errors import NotNow, Refused, StorageFailure
from storage_svc.log.partition.batch_writer import BatchWriter
from storage_svc.log.partition.environment import DeletionReason, LogEnvironment
from storage_svc.log.partition.high_watermark import HighWatermark
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.partition.log_reader import Span, find_batches, find_spans
from storage_svc.log.partition.outcome import Admitted, Appended, Origin, Retry
from storage_svc.log.partition.pending_sync import SyncTarget
from storage_svc.log.partition.read_positions import ReadPositions
from storage_svc.log.partition.state import LogState
from storage_svc.log.partition.transactions import LogTransactions
from storage_svc.log.producers.snapshots import ProducerSnapshots
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.segment_list import Segments, set_aside

__all__ = ["Admitted", "Appended", "Origin", "PartitionLog", "Retry"]

# An attribute of an Enum class costs as much as a call: it is looked up once.
_GROUP: Final = FlushPolicy.GROUP

#: The pause before a sync is tried again that the system refused to begin.
_SYNC_AGAIN_MS: Final = 100

_log = logs.get(__name__)


class PartitionLog(LogState):
    """A LogState and the steps that change it. Made by recovery.py (existing folders) and data_folder.py (new ones)."""

    __slots__ = (
        "_environment",
        "_known_durable",
        "_revision_slot",
        "appended_batches",
        "appended_bytes",
        "appended_records",
        "has_readers_ahead",
        "snapshots",
        "synced_bytes",
        "transactions",
        "writer",
    )

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
        positions, active = ReadPositions(), segments[-1]
        super().__init__(
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            folder=folder,
            files=environment.files,
            config=config,
            policy=environment.policy,
            segments=Segments(segments, environment.open_segments),
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            readable=HighWatermark(log_end_offset, active, active.size, positions, self.invalidate_read_ahead),
            recovery_point=log_end_offset,
            producers=producers,
            epochs=epochs,
            leader_epoch=max(0, epochs.latest),
            read_positions=positions,
        )
        self._environment = environment
        #: Batches, records and bytes that were appended since the log was opened.
        self.appended_batches = self.appended_records = self.appended_bytes = 0
        #: The number of these bytes, from the first on, that a sync has covered.
        self.synced_bytes = 0
        # Each part gets this log twice: as its LogState, and as the LogActions that it may start.
        #: The appender of clients' and coordinators' batches.
        self.writer = BatchWriter(self, self, environment.room)
        #: The steps that begin and end transactions.
        self.transactions = LogTransactions(self, self.writer, self, environment.clock)
        #: The stored producer states.
        self.snapshots = ProducerSnapshots(environment.files, folder)
        #: Whether a reader holds an answer that was sent ahead and is valid until the log changes.
        self.has_readers_ahead = False
        self._revision_slot = environment.revisions.new_slot()
        # (recovery point, high watermark) in the checkpoints of a damaged log, so that no later start cuts it.
        self._known_durable: tuple[int, int] | None = None
        self.configure(config)

    def now_ms(self) -> int:
        """Return the present time in milliseconds since 1970."""
        return self._environment.clock()  # wall clock: timestamps of batches, checked or set

    def configure(self, config: LogConfig) -> None:
        """Use these settings from now on. A flush policy applies to batches that are written after it was set."""
        self.invalidate_read_ahead()
        self.config = config
        self.policy = config.flush_policy or self._environment.policy
        if self.policy is FlushPolicy.OS and self.high_watermark < self.log_end_offset:
            self.promised_end = self.log_end_offset
        self.writer.configure(config)
        self.segments.configure(config)

    def identify(self, topic_id: bytes) -> None:
        """Note the topic's id, which the folder did not name."""
        self.topic_id = topic_id

    def begin_leader_epoch(self, epoch: int) -> None:
        """Append the next batches under a newer leader epoch."""
        self.leader_epoch = epoch

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(
        self, records: Buffer, *, origin: Origin = Origin.CLIENT, may_wait: bool = False, verified: bool = True
    ) -> Appended | Retry:
        """Check and write one batch; `may_wait` and `verified` as in `BatchWriter.stage`.

        Coordinators' batches are trusted and may go to any topic; `transactions` writes their markers.
        """
        appended = self.writer.stage(memoryview(records), origin, self.now_ms(), may_wait=may_wait, verified=verified)
        self.write_staged()
        return appended

    def write_staged(self) -> None:
        """Write the staged batches with one call and move the log's end.

        A failure turns every `Appended` that was returned for them into error 56.
        """
        written = self.writer.write_staged()
        if written is None:
            return
        self.log_end_offset, batches, records, size = written
        self.appended_batches += batches
        self.appended_records += records
        self.appended_bytes += size
        if self.policy is _GROUP:  # mutant: answer-after-sync
            self.request_sync()
        else:
            unsynced, config = self.unsynced, self.config
            if unsynced.records == 0 and config.flush_ms != FOREVER:
                self._environment.mark_later(self, config.flush_ms)
            unsynced.records += records
            if unsynced.records >= config.flush_messages:
                self.request_sync()
            elif unsynced.paths:
                self._environment.mark(self)
            if self.readable.offset < self.promised_end:  # mutant: promised-before-os-policy
                self.request_sync()
            else:
                active = self.segments.active
                largest = active.max_timestamp, active.max_timestamp_offset
                self.readable.advance(self.log_end_offset, active, active.size, largest)

    def roll(self, now_ms: int) -> None:
        """Close the active segment, which is not empty, and start another; nothing may be staged.

        Raises:
            Refused: the log goes on with the active segment it has.
            StorageFailure: the log is offline, or its caller takes it offline.
        """
        self._refuse_deleted()
        old = self.segments.active
        if old.uncut:
            old.cut()
        if self.roll_syncs:
            try:
                old.sync(self.files)
            except Refused:
                raise
            except StorageFailure as error:
                self.take_offline(f"sync failed: {error}")
                raise
        begun = self.files, self.folder, self.log_end_offset, self.config, now_ms
        try:
            segment = Segment.create(*begun)
        except NotNow:
            if not self._environment.open_segments.release_some():
                raise
            segment = Segment.create(*begun)
        to_sync = [self.folder]  # mutant: new-segment-folder-synced
        try:
            old.finish()
            # The sync of the segment covers its indexes: if they lost their ends, they may agree by chance.
            to_sync += old.index_paths()  # mutant: finished-indexes-synced
            to_sync += self.snapshots.store(self.producers, self.log_end_offset)
        except StorageFailure as error:  # both are rebuilt from the log when they are needed
            _log.warning("index or producer snapshot not written", segment=old.relative_path, reason=str(error))
        self.segments.add(segment)
        if self.high_watermark == self.log_end_offset:
            self.readable.relocate(segment, 0)
        self.unsynced.add_segments(old)  # mutant: rolled-segment-synced
        self.unsynced.add_paths(*to_sync)
        self._environment.mark(self)

    # -- durability ---------------------------------------------------------------------------------------------------

    def request_sync(self) -> None:
        """Sync everything that is written when the flusher begins its next sync."""
        self.unsynced.include(self.segments.active)
        self._environment.mark(self)

    def sync_again(self, recovery_point: int) -> None:
        """Count only records below the recovery point as synced, and request a sync of everything else."""
        self.recovery_point = recovery_point
        self.unsynced.add_segments(*self.segments.older_segments())
        self.unsynced.add_paths(self.folder)
        self.request_sync()

    def sync_target(self) -> SyncTarget | None:
        """Return the content of the next sync, pinned; None when there is nothing to sync. `synced` must follow."""
        if self.deleted or self.offline is not None:
            return None
        if (target := self.unsynced.take(self.segments.active, self.log_end_offset)) is not None:
            has_active = target.recovery_point == target.end_offset
            # mutant: unflushed-bytes
            target.written = self.appended_bytes - (0 if has_active else self.segments.active.size)
        return target

    def synced(self, target: SyncTarget) -> None:
        """Move the offsets after a sync, or go offline if it failed."""
        for segment in target.segments:
            segment.unpin()
        if self.deleted:
            return
        # mutant: refusal-is-no-failure
        if isinstance(target.failure, Refused) and self.offline is None:  # it was not begun: nothing is lost
            self.unsynced.put_back(target)
            self._environment.mark_later(self, _SYNC_AGAIN_MS)
            return
        if target.failure is not None:
            self.take_offline(f"sync failed: {target.failure}")  # mutant: offline-after-failed-sync
        if self.offline is not None:  # a later sync does not prove that the failed pages were written
            return
        if target.paths:
            self.snapshots.note_synced(self.segments.active.base_offset, target.paths)
        self.recovery_point = max(self.recovery_point, target.recovery_point)
        self.synced_bytes = max(self.synced_bytes, target.written)
        if target.end_offset > self.high_watermark:
            self.readable.advance(target.end_offset, target.segment, target.position, target.largest)

    def on_durable(self, offset: int, callback: Callable[[int], None]) -> None:
        """Call back with 0 once the high watermark is at or after the offset, with an error code if it never will be.

        The offset of a batch is its last offset + 1. The callback is called at once if the offset is durable already.
        """
        if self.high_watermark >= offset:
            callback(ErrorCode.NONE)
        elif self.offline is not None or self.deleted:
            callback(self.unavailable)
        else:
            self.readable.wait(offset, callback)

    async def durable(self, offset: int) -> int:
        """Wait as `on_durable` does, for coroutines; return 0 or the error code."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.on_durable(offset, lambda code: None if future.done() else future.set_result(code))
        return await future

    def take_offline(self, reason: str) -> None:
        """Refuse appends and acknowledgements, as a write failed. Records below the high watermark are still read."""
        self._environment.note_failed_write()
        self._go_offline(reason)

    def _go_offline(self, reason: str) -> None:
        if self.offline is None:
            self.offline = reason
            self.unsynced.give_up(self.segments.active)
            _log.error("log offline", log=self.folder, reason=reason, high_watermark=self.high_watermark)
        self.invalidate_read_ahead()
        self.readable.fail(self.unavailable)

    def quarantine(self, reason: str, recovery_point: int, high_watermark: int) -> None:
        """Go offline and change no file: damage was found below an offset that is known to be durable."""
        self._known_durable = recovery_point, high_watermark
        self._go_offline(reason)

    def withhold(self, reason: str) -> None:
        """Go offline for readers too: the files may be another topic's, or cannot be read at all."""
        recovery_point, high_watermark = self.checkpoint
        self.withheld = True
        self.readable.retreat(self.log_start_offset, self.segments[0], 0)
        self.quarantine(reason, recovery_point, high_watermark)

    def suspect(self) -> None:
        """Have the log scrubbed: a batch in it differs from the one that was written."""
        if not self.deleted:
            self._environment.suspect((self.topic, self.partition))

    @property
    def checkpoint(self) -> tuple[int, int]:
        """(recovery point, high watermark) for the next start."""
        return self._known_durable or (self.recovery_point, self.high_watermark)

    # -- reading and segments -----------------------------------------------------------------------------------------

    def spans(self, offset: int, max_bytes: int, *, min_one: bool, committed: bool = False) -> list[Span]:
        """Return the batches that a consumer may read from the offset on, at most `max_bytes` of them.

        With `min_one` that is at least one batch; with `committed` none of undecided transactions.

        Raises:
            StorageFailure: the disk did not answer.
        """
        readable = self.readable
        if offset >= readable.offset:
            return []
        if not committed:
            return find_spans(self, offset, max_bytes, readable.segment, readable.position, min_one=min_one)
        stable_offset, segment, position = self.transactions.stable_end()
        return (
            [] if offset >= stable_offset else find_spans(self, offset, max_bytes, segment, position, min_one=min_one)
        )

    def read_batches(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that contains the offset, at least one, up to the log end offset; empty
        there.

        It serves our own coordinators, so it reads batches that are not durable yet, too.

        Raises:
            StorageFailure: the disk did not answer.
        """
        return find_batches(self, offset, max_bytes)

    def current_revision(self) -> tuple[int, int]:
        """Return the log's slot in the environment's Revisions and the number there.

        An answer that was sent ahead is valid while that number stays the same.
        """
        self.has_readers_ahead = True
        return self._revision_slot, self._environment.revisions[self._revision_slot]

    def invalidate_read_ahead(self) -> None:
        """Withdraw the answers that were sent ahead, before any caller learns of the change."""
        if self.has_readers_ahead:
            self.has_readers_ahead = False
            self._environment.revisions.move(self._revision_slot)

    def drop_oldest(self, reasons: Sequence[DeletionReason]) -> int:
        """Delete one of the oldest segments for each reason, at most, and never all; return the bytes they had.

        The producers with batches in them must be in the snapshot of a segment that stays. Without such a snapshot (it
        could not be written when the segment began) fewer segments are deleted, or none.

        The files are deleted first, which frees space on a full disk. The list of leader epochs, which needs some, is
        written last.

        Raises:
            StorageFailure: some files stay in the folder until the next start.
        """
        count = 0 if self.deleted else min(len(reasons), self.snapshots.newest(self.segments.bases))
        if count == 0:
            return 0
        dropped = self.segments.take_oldest(count)
        self.invalidate_read_ahead()
        self.unsynced.forget_segments(dropped)
        freed = sum(segment.size for segment in dropped)
        failure: StorageFailure | None = None
        for segment in dropped:
            paths: list[str] = []
            try:
                set_aside(self.files, segment, paths)
            except StorageFailure as error:  # the other segments are deleted all the same
                failure = failure or error
            self._environment.unlink_later(paths, self.config.file_delete_delay_ms)
        self.raise_log_start(self.segments.bases[0])
        for segment, reason in zip(dropped, reasons, strict=False):
            self._environment.note_deleted(segment.size, reason)
        if failure is not None:
            raise failure
        return freed

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """Put a rewritten segment in the place of the older segments it was made of (segment_swap.py).

        Raises:
            StorageFailure: it is in place; files of the old segments are left under their names.
        """
        self._refuse_deleted()
        self.segments.replace(old, new)
        self.invalidate_read_ahead()
        self.unsynced.forget_segments(old)
        if self.readable.segment in old:  # at its end: cleaned segments are readable
            self.readable.relocate(self.segments[self.segments.index_of(new.base_offset) + 1], 0)
        paths: list[str] = []
        try:
            for segment in old:
                set_aside(self.files, segment, paths, snapshot=segment.base_offset != new.base_offset)
        finally:
            self._environment.unlink_later(paths, self.config.file_delete_delay_ms)

    def raise_log_start(self, offset: int) -> None:
        """Stop reading records below the offset.

        Raises:
            StorageFailure: the partition was deleted.
        """
        self._refuse_deleted()
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.invalidate_read_ahead()  # mutant: read-ahead-ends-at-deletion
            if self.epochs.advance(offset):
                try:
                    self.epochs.store(sync=False)
                except StorageFailure as error:  # epochs of records below the log start do no harm
                    _log.warning("leader epochs not stored", log=self.folder, reason=str(error))

    def _refuse_deleted(self) -> None:
        if self.deleted:
            raise StorageFailure(f"the partition {self.topic}-{self.partition} was deleted")

    def move(self, folder: str) -> None:
        """Use another path of the log's folder from now on."""
        self.folder = folder
        self.segments.move(folder)
        self.snapshots.move(folder)
        self.epochs.path = f"{folder}/{checkpoints.LEADER_EPOCHS}"

    def mark_deleted(self) -> None:
        """Mark the partition as deleted and call all waiters back; `move` follows."""
        self.deleted = True
        self.invalidate_read_ahead()
        self.readable.fail(self.unavailable)
        self.readable.notify_watchers()
        self.segments.close()

    def close(self) -> None:
        """Complete the index files and store the producer state. Everything must be synced.

        Raises:
            StorageFailure: the next start must recover this log.
        """
        if self.offline is None:
            self.segments.active.finish()
            self.snapshots.store_last(self.producers, self.log_end_offset)
        self.segments.close()

    def check_invariants(self) -> None:
        """Raise AssertionError unless the state is consistent and nothing is staged."""
        super().check_invariants()
        self.writer.check_invariants()
