"""Reading segments that may be torn or damaged, and repairing them.

At a bad batch one of three things has happened:

    torn      the last writes before a power cut did not reach the disk, or not whole. Nothing good comes after it, or
              sectors in it were never written. The segment is cut there, later ones are dropped: the lost batches were
              not durable, and producers send them again. Good batches after sectors that were never written cannot
              stay: their producers send the older ones again, and would find themselves out of order. Some may have
              been acknowledged all the same (acks=1), so they are copied aside first. When only the process ended,
              the system has kept every write: nothing but the last one is torn.
    damaged   a good batch that continues the offsets comes after it, or it lies below an offset that is known to be
              durable (the checkpoints of recovery point, high watermark and cleaner). Its bytes are copied aside and
              cut out of the segment (quarantine.py); all other batches stay, the log goes on, with a gap in the
              offsets.
    moved     the batch is good, but its base offset or leader epoch, which its CRC does not cover, contradicts its
              neighbours (segment_scan.py). The field is corrected in the file.

Batches that are missing between two segments are no damage: compaction and quarantine leave such gaps. A power cut
leaves none under `flush.policy=group`, which begins a segment only once the one before is synced.

If the damage cannot be copied aside (a full disk), nothing is changed and the log is opened offline. Batches before the
damage are read, appends get error 56, and the next start tries again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from service_chassis import logs

from storage_svc.log.batch.header import pack_prefix
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.recovery.producer_recovery import ProducerRecovery
from storage_svc.log.recovery.quarantine import known_gaps, log_corrected, log_holes, set_aside_holes, write_without
from storage_svc.log.recovery.segment_scan import Hole, SegmentScan, first_good_batch
from storage_svc.log.recovery.segment_window import SegmentWindow
from storage_svc.log.segment.segment import Segment

_NOWHERE: Final = -1

_log = logs.get(__name__)


class SegmentRecovery:
    """The recovery of one partition's segments; used by recovery.py."""

    def __init__(
        self,
        files: Files,
        epochs: LeaderEpochs,
        producers: ProducerRecovery,
        *,
        synced_to: int,
        durable_offset: int,
        unsynced_kept: bool = False,
    ) -> None:
        """Prepare for `run`. Below `synced_to` every byte was synced, and below `durable_offset` too.

        Batches that are missing below `durable_offset` may have been compacted away. With `unsynced_kept` the system
        has lost nothing that was written.
        """
        self._files = files
        self._epochs = epochs
        self._producers = producers
        self._synced_to = synced_to
        self._durable_offset = durable_offset
        self._unsynced_kept = unsynced_kept
        self._later: Sequence[Segment] = ()
        self._gaps: dict[int, int] = {}
        # Whether good batches come after the torn one.
        self._cuts_good = False
        self.end_offset = _NOWHERE
        #: Producers as of the end offset, once `run` was called.
        self.state = ProducerState()
        #: The reason why the log must be opened offline.
        self.damage: str | None = None
        #: Whether the epoch list contradicts the batches.
        self.epochs_wrong = False
        self.truncated_bytes = 0
        self.quarantined_bytes = 0
        #: Places whose bytes are no good batch and were written completely once.
        self.damaged_places = 0

    def run(self, segments: Sequence[Segment], start: int) -> list[Segment]:
        """Read the segments from the one of this index on; those that are left.

        Raises:
            StorageFailure: the folder cannot be read or written.
        """
        before, base_offset = segments[:start], segments[start].base_offset
        self._gaps = known_gaps(self._files, segments[start].folder)
        self.state = self._producers.state_at(before, base_offset)
        if before:
            self._producers.store(self.state, base_offset)
        self.end_offset = segments[start].base_offset
        for index in range(start, len(segments)):
            segment = segments[index]
            self._later = segments[index + 1 :]
            segment.open()
            scan = self._read(segment, self._synced_to if index == start else 0)
            if scan.unlike_synced:
                _log.info("segment checked as a whole", segment=segment.relative_path, position=scan.end_position)
                self.state = self._producers.state_at(before, base_offset)
                scan = self._read(segment)
            self.end_offset = max(self.end_offset, scan.end_offset)
            whole = self._put_right(segment, scan)
            if self.damage is not None:
                return [*segments[: index + 1]]
            if not whole:
                for later in self._later:
                    self.drop(later)
                return [*segments[: index + 1]]
            if self._later:
                self._finish(segment)
                self._producers.store(self.state, self._later[0].base_offset)
        return [*segments]

    def drop(self, segment: Segment) -> None:
        """Remove a segment that holds nothing to keep."""
        segment.open()
        if segment.size and (segment.base_offset < self._durable_offset or self._cuts_good):
            self._set_aside(segment, [Hole(0, segment.size, segment.base_offset, None)])
        else:
            self.truncated_bytes += segment.size
        segment.close()
        for path in segment.paths():
            self._files.unlink(path)

    def _read(self, segment: Segment, synced_to: int = 0) -> SegmentScan:
        """Check the batches that are not known to be synced, rebuild the indexes, follow the producers and epochs."""
        durable_to = self._durable_offset
        scan = SegmentScan(
            segment, self._epochs, self._later, self._is_torn, synced_to, self._gaps, durable_to=durable_to
        )
        segment.restart_indexes()
        segment.transaction_index.restart()
        state, epochs, note = self.state, self._epochs, segment.note
        for position, header in scan:
            note(position - scan.hole_bytes, header.size, header.last_offset, header.max_timestamp)
            epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                batch = partial(scan.window.batch, position, header)
                if (aborted := self._producers.replay(state, header, batch)) is not None:
                    segment.transaction_index.append(aborted)
        self.epochs_wrong = self.epochs_wrong or scan.epochs_wrong
        return scan

    def _is_torn(self, window: SegmentWindow, hole: Hole) -> bool:  # mutant: damage-is-not-torn
        if hole.first_offset < self._durable_offset:
            return False
        if hole.next_offset is None:
            following = first_good_batch(self._later)
            if following is None and self._unsynced_kept:
                return not any(segment.size for segment in self._later)
            if following is None or following.base_offset < hole.first_offset:
                return True
        # mutant: never-written-sectors
        self._cuts_good = not self._unsynced_kept and window.never_written(hole.start, hole.end)
        return self._cuts_good

    def _put_right(self, segment: Segment, scan: SegmentScan) -> bool:
        """Change the file to the batches that were read; return whether later segments follow it."""
        log_corrected(segment, scan.corrected)
        for position, header in scan.corrected:
            prefix = pack_prefix(header.base_offset, header.batch_length, header.leader_epoch)
            self._files.append(segment.descriptor, [prefix], position, len(prefix))
        torn = (
            segment.size
            - scan.end_position
            - sum(hole.end - hole.start for hole in scan.holes if hole.start >= scan.end_position)
        )
        copied = list(scan.holes)
        if torn and self._cuts_good:  # mutant: cut-keeps-copy
            copied.append(Hole(segment.size - torn, segment.size, self.end_offset, None))
        if copied:
            try:
                self._set_aside(segment, copied)
                if copied[0].start < scan.end_position:
                    write_without(self._files, segment, scan.holes, scan.end_position)
            except StorageFailure as error:
                start, _, self.end_offset, _ = copied[0]
                reason = f"is damaged at position {start}, offset {self.end_offset}; it cannot be copied aside: {error}"
                self._leave_alone(segment, start, reason)
                return False
        # mutant: cut-length
        end = scan.end_position - sum(hole.end - hole.start for hole in scan.holes if hole.start < scan.end_position)
        if segment.size != end:
            self._files.truncate(segment.descriptor, end)
            segment.size = end
            # Or a second power cut could restore the end after sectors that were written again since. Good batches
            # would follow the torn one, with no sector between them that was never written.
            self._files.sync(segment.descriptor)  # mutant: cut-synced
        if torn:
            _log.warning(
                "torn segment cut",
                segment=segment.relative_path,
                position=end,
                bytes=torn,
                end_offset=self.end_offset,
                segments_dropped=len(self._later),
            )
            self.truncated_bytes += torn
        return not torn

    def _leave_alone(self, segment: Segment, end: int, reason: str) -> None:
        """Change nothing: the log is read up to this position of the segment."""
        self.damage = f"{segment.relative_path} {reason}"
        segment.size = end
        segment.rebuild()

    def _set_aside(self, segment: Segment, holes: Sequence[Hole]) -> None:
        set_aside_holes(self._files, segment, holes)
        self.quarantined_bytes += log_holes(segment, holes)
        self.damaged_places += len(holes)

    def _finish(self, segment: Segment) -> None:
        try:
            segment.finish()
        except StorageFailure as error:  # the next look-up rebuilds them in memory
            _log.warning("index not written", segment=segment.relative_path, reason=str(error))
        segment.release()
