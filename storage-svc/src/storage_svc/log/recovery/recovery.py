"""The opening of a partition's folder: a short check after a clean stop, else a check of the part that may be torn.

In order (Kafka's LogLoader):

1. Steps that a crash left half done in the folder are finished or undone (partition_folder.py).
2. Unless the stop was clean and the log ends where it left it, segments are read from the one that holds the recovery
   point on. Every batch is checked, the indexes are rebuilt, and torn or damaged batches are repaired
   (segment_recovery.py).
3. The log start and recovery point checkpoints are applied as far as they still fit.
4. Producer state is loaded: the newest sound snapshot, then the batches after it (producer_recovery.py).
5. A transaction index that is not in order is rebuilt. So is the list of leader epochs when it is lost or contradicts
   the batches.

In step 2 the batches of the first segment below the recovery point are synced: their headers must follow one another.
The CRC is checked from the recovery point on, and of the last 256 KB in any case. If a header does not follow, the CRC
of the whole segment is checked. Damage inside an older batch is the disk's, not the crash's: the scrub that follows an
unclean start finds it while the broker works (scrubber.py). Internal topics are checked as a whole, since coordinators
load them as a whole before they serve clients.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from os.path import basename

from service_chassis import logs

from storage_svc.log.batch.header import WALK_CHUNK, Header, headers
from storage_svc.log.config import INTERNAL_TOPICS, LogConfig
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.environment import LogEnvironment
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.state import LogState
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.recovery.partition_folder import listing, tidy
from storage_svc.log.recovery.producer_recovery import ProducerRecovery
from storage_svc.log.recovery.quarantine import FOLDER as QUARANTINE
from storage_svc.log.recovery.segment_recovery import SegmentRecovery
from storage_svc.log.recovery.transaction_index_check import TransactionIndexCheck
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment_names import LOG_SUFFIX, file_stem

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The state of one partition in the data folder's checkpoints."""

    clean: bool
    #: Whether the system has kept everything that was written: only the process ended.
    unsynced_kept: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned_to: int = 0

    @property
    def durable_offset(self) -> int:
        """The offset below which everything was synced; records that are missing there were compacted away."""
        return max(self.recovery_point, self.high_watermark, self.cleaned_to)


class Recovery:
    """Opens one folder. Use once: `Recovery(…).run()`."""

    def __init__(
        self, environment: LogEnvironment, folder: str, topic: str, partition: int, config: LogConfig, known: Known
    ) -> None:
        self._environment = environment
        self._files: Files = environment.files
        self._folder = folder
        self._topic = topic
        self._partition = partition
        self._config = config
        self._known = known
        self._end_offset = 0
        self._epochs = LeaderEpochs(self._files, f"{folder}/{checkpoints.LEADER_EPOCHS}")
        self._damage: str | None = None
        # wall clock: the age of a segment and of a producer's state, which outlive the process
        self._producers = ProducerRecovery(self._files, folder, (), environment.clock())
        #: The state of producers at the end offset; None until segments were scanned.
        self._state: ProducerState | None = None
        self._epochs_wrong = False
        #: The base offset of the first segment that was read whole; None when none was.
        self._read_from: int | None = None
        # The headers of the active segment's first and last batch, if they were read.
        self._edges: tuple[Header | None, Header | None] | None = None
        #: Snapshots that no start needs any more, for their deletion when the broker works.
        self.strays: list[str] = []
        self.truncated_bytes = 0
        self.quarantined_bytes = 0
        self.damaged_places = 0

    def run(self, sizes: Mapping[str, int] | None = None) -> PartitionLog:
        """Return the log, ready for use. `sizes` is the `listing` of its folder, if it is known.

        Raises:
            StorageFailure: the folder cannot be read or written.
        """
        started = time.perf_counter()
        found = tidy(self._files, self._folder, listing(self._files, self._folder) if sizes is None else sizes)
        segments = [self._segment(base, size) for base, size in found.logs.items()]
        for segment in segments:
            if segment.base_offset not in found.transaction_indexes:
                segment.transaction_index.assume_empty()
        self._epochs.load(self._known.log_start_offset)
        stored = self._epochs.entries
        self._producers = ProducerRecovery(self._files, self._folder, found.snapshots, self._environment.clock())
        self._end_offset = segments[0].base_offset if segments else self._known.log_start_offset
        segments = self._usable(segments)
        check = TransactionIndexCheck(self._files, self._producers, segments, self._end_offset)
        check.run(found.transaction_indexes, self._read_from)
        producers = self._producers.state_at(segments, self._end_offset) if self._state is None else self._state
        self._check_epochs(segments)
        self.strays = self._producers.remove_stray(found.logs, self._end_offset)
        self._epochs.truncate(self._end_offset)
        state = LogState.at_end(
            self._environment,
            self._folder,
            self._topic,
            self._partition,
            self._topic_id(),
            segments,
            log_start_offset=min(max(self._known.log_start_offset, segments[0].base_offset), self._end_offset),
            log_end_offset=self._end_offset,
            producers=producers,
            epochs=self._epochs,
            config=self._config,
        )
        log = PartitionLog(self._environment, state)
        self._finish(log, stored)
        if self.truncated_bytes or self.quarantined_bytes:
            _log.info(
                "log recovered",
                log=self._folder,
                end_offset=self._end_offset,
                truncated_bytes=self.truncated_bytes,
                quarantined_bytes=self.quarantined_bytes,
                seconds=round(time.perf_counter() - started, 4),
            )
        return log

    def unusable(self, reason: str) -> PartitionLog:
        """Return the log as it is known when `run` has failed: offline, for readers too, until a start can read it."""
        known = self._known
        start = known.log_start_offset
        segment = Segment(self._files, self._folder, start, self._config, self._environment.clock())
        state = LogState.at_end(
            self._environment,
            self._folder,
            self._topic,
            self._partition,
            bytes(16),
            [segment],
            log_start_offset=start,
            log_end_offset=max(start, known.recovery_point, known.high_watermark),
            producers=ProducerState(),
            epochs=self._epochs,
            config=self._config,
        )
        log = PartitionLog(self._environment, state)
        log.withhold(reason)
        log.quarantine(reason, known.recovery_point, known.high_watermark)
        return log

    def _usable(self, segments: list[Segment]) -> list[Segment]:
        """Return the segments that stay of those found, never none; the end offset is known then."""
        if not self._known.clean:
            segments = self._recover(segments)
        if not segments:
            segments = [self._new_segment(max(self._end_offset, self._known.log_start_offset))]
        active = segments[-1]
        if not self._known.clean:
            active.load_for_append()
        else:
            self._end_offset, position = self._end(active)
            if position != active.size or self._end_offset != self._known.recovery_point:
                _log.warning(
                    "not as the last stop, which was clean, left it",
                    segment=active.relative_path,
                    position=position,
                    end_offset=self._end_offset,
                    recovery_point=self._known.recovery_point,
                )
                segments = self._recover(segments)
                segments[-1].load_for_append()
        if self._end_offset < self._known.log_start_offset:
            _log.warning("log ends before its start", log=self._folder, end_offset=self._end_offset)
            for segment in segments:
                self._set_aside(segment)
            segments = [self._new_segment(self._known.log_start_offset)]
            self._end_offset = self._known.log_start_offset
            self._state, self._read_from = ProducerState(), self._end_offset
        return segments

    def _finish(self, log: PartitionLog, stored: list[tuple[int, int]]) -> None:
        """Make everything that was lost, found or repaired a part of the log's state."""
        if self._damage is not None:
            log.quarantine(self._damage, self._known.recovery_point, self._known.high_watermark)
            return
        if self._end_offset < self._known.high_watermark:
            # Records that consumers may have seen are gone: they learn it by a new epoch.
            _log.error("readable records lost", log=self._folder, end_offset=self._end_offset, **_was(self._known))
            log.begin_leader_epoch(log.leader_epoch + 1)  # mutant: epoch-after-loss
            self._epochs.assign(log.leader_epoch, self._end_offset)
        if self._epochs.entries != stored:
            self._epochs.store_if_possible()
        recovered = not self._known.clean or self._state is not None
        if self._producers.has_snapshot(base := log.segments.active.base_offset):
            # A roll's snapshot was synced before a clean stop. The stop writes that of the log's end and does not sync
            # it.
            path = log.snapshots.path(base)
            if recovered or base == self._end_offset:
                log.sync_paths(path)
            else:
                log.snapshots.note_synced(base, [path])
        if not recovered and self._producers.has_snapshot(self._end_offset):
            log.snapshots.note_stored(self._end_offset)
        if recovered:
            log.sync_again(min(self._known.recovery_point, self._end_offset))
        # Rebuilt or not: a transaction index that is missing at a later start counts as one that never was.
        if indexes := [each.transaction_index.file.path for each in log.segments if len(each.transaction_index)]:
            log.sync_paths(*indexes, log.folder)
            self._environment.mark(log)

    # -- segments -----------------------------------------------------------------------------------------------------

    def _segment(self, base_offset: int, size: int) -> Segment:
        """Return a segment that is there, not opened yet."""
        created_ms = self._files.modified_ms(f"{self._folder}/{file_stem(base_offset)}{LOG_SUFFIX}")
        segment = Segment(self._files, self._folder, base_offset, self._config, created_ms)
        segment.size = size
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(self._files, self._folder, base_offset, self._config, self._environment.clock())

    def _set_aside(self, segment: Segment) -> None:
        """Move the files of a segment into the quarantine: the checkpoint that is above its end may be wrong."""
        self.truncated_bytes += segment.size
        segment.close()
        folder = f"{self._folder}/{QUARANTINE}"
        self._files.make_folder(folder)
        for path in segment.paths():
            if self._files.exists(path):
                self._files.rename(path, f"{folder}/{basename(path)}")

    # -- batches ------------------------------------------------------------------------------------------------------

    def _end(self, active: Segment) -> tuple[int, int]:
        """Return the offset and the position after the last whole batch of the segment that a clean stop left active.

        A small one is released at once: of ten thousand partitions, few are used soon.
        """
        small = active.size <= WALK_CHUNK
        start = 0
        if not small:
            active.load_for_append()
            entry = active.offset_index.last
            start = entry[1] if entry else 0
        elif active.size:
            active.open()
        first = last = None
        position = start
        for at, last in headers(self._files, active.descriptor, start, active.size):
            first, position = first or last, at + last.size
        if small:
            self._edges = first, last
            active.rest()
        return active.base_offset if last is None else last.last_offset + 1, position

    def _recover(self, segments: list[Segment]) -> list[Segment]:
        """Step 2; the segments that are left."""
        if not segments:
            return segments
        start, synced_to, self._edges = 0, 0, None
        if self._topic not in INTERNAL_TOPICS:  # mutant: internal-log-checked-whole
            synced_to = self._known.recovery_point
            start = max((at for at, each in enumerate(segments) if each.base_offset <= synced_to), default=0)
        self._read_from = segments[start].base_offset
        recovery = SegmentRecovery(
            self._files,
            self._epochs,
            self._producers,
            synced_to=synced_to,
            durable_offset=self._known.durable_offset,
            unsynced_kept=self._known.unsynced_kept,
        )
        segments = recovery.run(segments, start)
        self._end_offset, self._state, self._damage = recovery.end_offset, recovery.state, recovery.damage
        self._epochs_wrong = recovery.epochs_wrong
        self.truncated_bytes += recovery.truncated_bytes
        self.quarantined_bytes += recovery.quarantined_bytes
        self.damaged_places += recovery.damaged_places
        return segments

    def _check_epochs(self, segments: list[Segment]) -> None:
        """Rebuild the epoch list if it was lost or contradicts the batches."""
        if self._epochs_wrong or not self._epochs.agree(segments, self._edges):
            if self._epochs.entries:
                _log.warning("leader epochs rebuilt", log=self._folder, were=self._epochs.entries)
            self._epochs.rebuild(segments)

    def _topic_id(self) -> bytes:
        """Return the topic's id, all zeros when the folder does not say."""
        data = self._files.read_file(f"{self._folder}/{checkpoints.PARTITION_METADATA}")
        try:
            return bytes(16) if data is None else checkpoints.decode_partition_metadata(data)
        except checkpoints.UnreadableCheckpoint as error:
            _log.warning("topic id unreadable", log=self._folder, reason=str(error))
            return bytes(16)


def _was(known: Known) -> dict[str, int]:
    return {"high_watermark_before": known.high_watermark, "recovery_point": known.recovery_point}
