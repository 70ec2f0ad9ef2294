"""One partition's log: the steps that change its LogState. No part of it calls the log; the log calls its parts.

    append     stage, write_staged                            batch_writer.py
               note_transaction_end                           called by transaction_end.py
    segments   roll                                           next_segment.py
               take_oldest, replace_segments, set_aside       called by retention.py, segment_swap.py
    sync       request_sync, sync_target, synced              called by flusher.py
    read       spans, read_batches                            log_view.py

The high watermark follows the syncs (`flush.policy = group`) or the writes (`os`). A log is taken offline when its disk
cannot be trusted: a failed sync may have lost pages for good, so nothing more is acknowledged. Records below the high
watermark are still read.

A deleted log changes no file. Its folder is renamed, and every path that the log holds is renamed with it (`move`),
because the old path may become another topic's.

The event loop's thread owns the state; only the syncing of pinned segments runs in another thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol_lib.errors import ErrorCode
from service_chassis import logs

from storage_svc.log.config import FOREVER, FlushPolicy, LogConfig
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Buffer
from storage_svc.log.errors import Refused, StorageFailure
from storage_svc.log.partition.batch_writer import BatchWriter
from storage_svc.log.partition.environment import DeletionReason, LogEnvironment
from storage_svc.log.partition.log_view import LogView
from storage_svc.log.partition.next_segment import next_segment, settle_active
from storage_svc.log.partition.outcome import Admitted, Appended, Origin, Prepared, Retry
from storage_svc.log.partition.pending_sync import SyncTarget
from storage_svc.log.partition.state import LogState
from storage_svc.log.producers.snapshots import ProducerSnapshots
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.segment_list import set_aside

__all__ = ["Admitted", "Appended", "Origin", "PartitionLog", "Retry"]

# An attribute of an Enum class costs as much as a call: it is looked up once.
_GROUP: Final = FlushPolicy.GROUP

#: The pause before a sync is tried again that the system refused to begin.
_SYNC_AGAIN_MS: Final = 100

_log = logs.get(__name__)


class PartitionLog(LogView):
    """A log and the steps that change it. Made by recovery.py (existing folders) and data_folder.py (new ones)."""

    __slots__ = ("_environment", "snapshots", "writer")

    def __init__(self, environment: LogEnvironment, state: LogState) -> None:
        super().__init__(state)
        self._environment = environment
        #: The staged batches.
        self.writer = BatchWriter(state, environment.room)
        #: The stored producer states.
        self.snapshots = ProducerSnapshots(environment.files, state.folder)
        self.configure(state.config)

    def now_ms(self) -> int:
        """Return the present time in milliseconds since 1970."""
        return self._environment.clock()  # wall clock: timestamps of batches, checked or set

    def configure(self, config: LogConfig) -> None:
        """Use these settings from now on. A flush policy applies to batches that are written after it was set."""
        state = self._state
        state.read_ahead.invalidate()
        state.config = config
        state.policy = config.flush_policy or self._environment.policy
        if state.policy is FlushPolicy.OS and state.high_watermark < state.log_end_offset:
            state.promised_end = state.log_end_offset
        self.writer.configure(config)
        state.segments.configure(config)

    def identify(self, topic_id: bytes) -> None:
        """Note the topic's id, which the folder did not name."""
        self._state.topic_id = topic_id

    def begin_leader_epoch(self, epoch: int) -> None:
        """Append the next batches under a newer leader epoch."""
        self._state.leader_epoch = epoch

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(
        self, records: Buffer, *, origin: Origin = Origin.CLIENT, may_wait: bool = False, verified: bool = True
    ) -> Appended | Retry:
        """Check and write one batch; `may_wait` and `verified` as in `stage`.

        Coordinators' batches are trusted and may go to any topic; `end_transaction` writes their markers.
        """
        appended = self.stage(memoryview(records), origin, self.now_ms(), may_wait=may_wait, verified=verified)
        self.write_staged()
        return appended

    def stage(
        self,
        view: memoryview,
        origin: Origin,
        now_ms: int,
        admitted: Admitted | None = None,
        *,
        may_wait: bool = False,
        may_verify: bool = False,
        verified: bool = False,
    ) -> Appended | Retry:
        """Check one batch and give it offsets. `write_staged` must follow before anything else happens to the log.

        The arguments are those of `BatchWriter.stage`; with `may_wait` the result may be AFTER_SYNC as well.
        """
        try:
            outcome = self.writer.stage(view, origin, now_ms, admitted, may_wait, may_verify, verified)
            if type(outcome) is Appended or isinstance(outcome, Retry):
                return outcome
            return self._stage_with_room(outcome, now_ms, may_wait=may_wait)
        # mutant: segment-opens-or-answers
        except StorageFailure as error:
            return Appended(ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))

    def _stage_with_room(self, prepared: Prepared, now_ms: int, *, may_wait: bool) -> Appended | Retry:
        """Write the staged batches and, if the checked batch still does not fit, roll; then stage it.

        Raises:
            StorageFailure: there is no segment for the batch.
        """
        writer = self.writer
        base_offset = writer.next_offset
        self.write_staged()
        if base_offset != writer.next_offset:  # the batch would follow staged batches that could not be written
            return Appended(ErrorCode.KAFKA_STORAGE_ERROR, error_message="an earlier batch could not be written")
        if (appended := writer.add(prepared, now_ms)) is not None:
            return appended
        if may_wait and self._state.roll_syncs:  # mutant: roll-off-loop
            return Retry.AFTER_SYNC
        try:
            self.roll(now_ms)
        except StorageFailure as error:
            self.drop_staged(error)
            raise
        appended = writer.add(prepared, now_ms)
        assert appended is not None, "an empty segment has room"
        return appended

    def drop_staged(self, error: StorageFailure) -> None:
        """Give up the staged batches, which cannot be written for this reason."""
        self.writer.lose(error)
        if not isinstance(error, Refused):
            self.take_offline(str(error))

    def write_staged(self) -> None:
        """Write the staged batches with one call and move the log's end.

        A failure turns every `Appended` that `stage` has returned for them into error 56.
        """
        try:
            written = self.writer.write()
        except Refused:
            return
        except StorageFailure as error:
            self.take_offline(str(error))
            return
        if written is None:
            return
        state = self._state
        start_offset = state.log_end_offset
        state.log_end_offset, batches, records, size = written
        state.appended_batches += batches
        state.appended_records += records
        state.appended_bytes += size
        if state.epochs.latest < state.leader_epoch:
            state.epochs.assign(state.leader_epoch, start_offset)
            if state.epochs.store_if_possible():
                state.unsynced.add_paths(state.epochs.path, state.folder)
        if state.policy is _GROUP:  # mutant: answer-after-sync
            self.request_sync()
        else:
            self._advance_by_write(records)

    def _advance_by_write(self, records: int) -> None:
        """Make the number of records that were written readable, and have them synced by the settings of `os`."""
        state = self._state
        unsynced, config = state.unsynced, state.config
        if unsynced.records == 0 and config.flush_ms != FOREVER:
            self._environment.mark_later(self, config.flush_ms)
        unsynced.records += records
        if unsynced.records >= config.flush_messages:
            self.request_sync()
        elif unsynced.paths:
            self._environment.mark(self)
        if state.readable.offset < state.promised_end:  # mutant: promised-before-os-policy
            self.request_sync()
        else:
            active = state.segments.active
            largest = active.max_timestamp, active.max_timestamp_offset
            state.readable.advance(state.log_end_offset, active, active.size, largest)

    def note_transaction_end(self, producer_id: int, epoch: int, coordinator_epoch: int, at: int, now_ms: int) -> None:
        """Note that a producer's marker is written at this offset (transaction_end.py)."""
        self._state.producers.end(producer_id, epoch, coordinator_epoch, at, now_ms, now_ms)
        self._state.read_ahead.invalidate()

    def roll(self, now_ms: int) -> None:
        """Close the active segment, which is not empty, and start another; nothing may be staged.

        Raises:
            Refused: the log goes on with the active segment it has.
            StorageFailure: the log is offline, or its caller takes it offline.
        """
        state = self._state
        state.refuse_deleted()
        old = state.segments.active
        try:
            settle_active(state)
        except Refused:
            raise
        except StorageFailure as error:
            self.take_offline(f"sync failed: {error}")
            raise
        segment, to_sync = next_segment(state, self._environment.open_segments, self.snapshots, now_ms)
        state.segments.add(segment)
        if state.high_watermark == state.log_end_offset:
            state.readable.relocate(segment, 0)
        state.unsynced.add_segments(old)  # mutant: rolled-segment-synced
        state.unsynced.add_paths(*to_sync)
        self._environment.mark(self)

    # -- durability ---------------------------------------------------------------------------------------------------

    def sync_paths(self, *paths: str) -> None:
        """Have the next sync cover these folders and files too; it is not requested here."""
        self._state.unsynced.add_paths(*paths)

    def request_sync(self) -> None:
        """Sync everything that is written when the flusher begins its next sync."""
        state = self._state
        state.unsynced.include(state.segments.active)
        self._environment.mark(self)

    def sync_again(self, recovery_point: int) -> None:
        """Count only records below the recovery point as synced, and request a sync of everything else."""
        state = self._state
        state.recovery_point = recovery_point
        state.unsynced.add_segments(*state.segments.older_segments())
        state.unsynced.add_paths(state.folder)
        self.request_sync()

    def sync_target(self) -> SyncTarget | None:
        """Return the content of the next sync, pinned; None when there is nothing to sync. `synced` must follow."""
        state = self._state
        if state.deleted or state.offline is not None:
            return None
        return state.unsynced.take(state.segments.active, state.log_end_offset, state.appended_bytes)

    def synced(self, target: SyncTarget) -> None:
        """Move the offsets after a sync, or go offline if it failed."""
        state = self._state
        for segment in target.segments:
            segment.unpin()
        if state.deleted:
            return
        # mutant: refusal-is-no-failure
        if isinstance(target.failure, Refused) and state.offline is None:  # it was not begun: nothing is lost
            state.unsynced.put_back(target)
            self._environment.mark_later(self, _SYNC_AGAIN_MS)
            return
        if target.failure is not None:
            self.take_offline(f"sync failed: {target.failure}")  # mutant: offline-after-failed-sync
        if state.offline is not None:  # a later sync does not prove that the failed pages were written
            return
        if target.paths:
            self.snapshots.note_synced(state.segments.active.base_offset, target.paths)
        state.recovery_point = max(state.recovery_point, target.recovery_point)
        state.synced_bytes = max(state.synced_bytes, target.written)
        if target.end_offset > state.high_watermark:
            state.readable.advance(target.end_offset, target.segment, target.position, target.largest)

    def take_offline(self, reason: str) -> None:
        """Refuse appends and acknowledgements, as a write failed. Records below the high watermark are still read."""
        self._environment.note_failed_write()
        self._go_offline(reason)

    def _go_offline(self, reason: str) -> None:
        state = self._state
        if state.offline is None:
            state.offline = reason
            state.unsynced.give_up(state.segments.active)
            _log.error("log offline", log=state.folder, reason=reason, high_watermark=state.high_watermark)
        state.read_ahead.invalidate()
        state.readable.fail(state.unavailable)

    def quarantine(self, reason: str, recovery_point: int, high_watermark: int) -> None:
        """Go offline and change no file: damage was found below an offset that is known to be durable."""
        self._state.known_durable = recovery_point, high_watermark
        self._go_offline(reason)

    def withhold(self, reason: str) -> None:
        """Go offline for readers too: the files may be another topic's, or cannot be read at all."""
        state = self._state
        recovery_point, high_watermark = state.checkpoint
        state.withheld = True
        state.readable.retreat(state.log_start_offset, state.segments[0], 0)
        self.quarantine(reason, recovery_point, high_watermark)

    def suspect(self) -> None:
        """Have the log scrubbed: a batch in it differs from the one that was written."""
        if not self._state.deleted:
            self._environment.suspect((self.topic, self.partition))

    # -- segments -----------------------------------------------------------------------------------------

    def take_oldest(self, reasons: Sequence[DeletionReason]) -> list[Segment]:
        """Remove one of the oldest segments from the log for each reason, never all, and return them for `set_aside`.

        The log start must rise after that.
        """
        state = self._state
        taken = state.segments.take_oldest(len(reasons))
        state.read_ahead.invalidate()
        state.unsynced.forget_segments(taken)
        for segment, reason in zip(taken, reasons, strict=True):
            self._environment.note_deleted(segment.size, reason)
        return taken

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """Put a rewritten segment in the place of the older segments it was made of; `set_aside` each of them then."""
        state = self._state
        state.refuse_deleted()
        state.segments.replace(old, new)
        state.read_ahead.invalidate()
        state.unsynced.forget_segments(old)
        if state.readable.segment in old:  # at its end: cleaned segments are readable
            state.readable.relocate(state.segments[state.segments.index_of(new.base_offset) + 1], 0)

    def set_aside(self, segment: Segment, *, snapshot: bool = True) -> None:
        """Rename the files of a segment that the log has no more, as `segment_list.set_aside` does; delete them later.

        Raises:
            StorageFailure: some files stay in the folder until the next start.
        """
        paths: list[str] = []
        try:
            set_aside(self.files, segment, paths, snapshot=snapshot)
        finally:
            self._environment.unlink_later(paths, self.config.file_delete_delay_ms)

    def raise_log_start(self, offset: int) -> None:
        """Stop reading records below the offset.

        Raises:
            StorageFailure: the partition was deleted.
        """
        state = self._state
        state.refuse_deleted()
        if offset > state.log_start_offset:
            state.log_start_offset = offset
            state.read_ahead.invalidate()  # mutant: read-ahead-ends-at-deletion
            if state.epochs.advance(offset):
                state.epochs.store_if_possible()

    def move(self, folder: str) -> None:
        """Use another path of the log's folder from now on."""
        state = self._state
        state.folder = folder
        state.segments.move(folder)
        self.snapshots.move(folder)
        state.epochs.path = f"{folder}/{checkpoints.LEADER_EPOCHS}"

    def mark_deleted(self) -> None:
        """Mark the partition as deleted and call all waiters back; `move` follows."""
        state = self._state
        state.deleted = True
        state.read_ahead.invalidate()
        state.readable.fail(state.unavailable)
        state.readable.notify_watchers()
        state.segments.close()

    def close(self) -> None:
        """Complete the index files and store the producer state. Everything must be synced.

        Raises:
            StorageFailure: the next start must recover this log.
        """
        state = self._state
        if state.offline is None:
            state.segments.active.finish()
            self.snapshots.store_last(state.producers, state.log_end_offset)
        state.segments.close()

    def check_invariants(self) -> None:
        """Raise AssertionError unless the state is consistent and nothing is staged."""
        self._state.check_invariants()
        self.writer.check_invariants()
