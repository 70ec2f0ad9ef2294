"""The state of one partition's log, as plain data.

    log start offset <= last stable offset <= high watermark <= log end offset

A PartitionLog has one LogState, on the event loop's thread, and only that PartitionLog assigns its fields. Its parts
(BatchWriter, LogTransactions, log_reader) get the state to read it. Other modules see the log as a LogView.

Some fields are objects that others change by their methods:

    producers         BatchWriter adds staged batches, keeps them, or takes them back
    read_positions    log_reader and the high watermark note positions
    compaction        the Cleaner, the Scrubber and the start assign its fields
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from protocol_lib.errors import ErrorCode

from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.compaction_state import CompactionState
from storage_svc.log.partition.environment import LogEnvironment
from storage_svc.log.partition.high_watermark import HighWatermark
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.partition.pending_sync import PendingSync
from storage_svc.log.partition.read_ahead_revision import ReadAheadRevision
from storage_svc.log.partition.read_positions import ReadPositions
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.segment_list import Segments


@dataclass(slots=True, eq=False, kw_only=True)
class LogState:
    """The state of one log. Only its PartitionLog assigns the fields."""

    #: The topic's name.
    topic: str
    #: The partition's index.
    partition: int
    #: The topic's id, 16 bytes; all zeros until it is known.
    topic_id: bytes
    #: The partition's folder, which holds all its files.
    folder: str
    #: The disk.
    files: Files
    #: The topic's settings that apply to its logs.
    config: LogConfig
    #: The policy by which appends count as durable: after a sync (`group`) or after the write (`os`).
    policy: FlushPolicy
    #: The segments, oldest first, never none; the last one is active.
    segments: Segments
    #: The first offset that is still read. Never falls.
    log_start_offset: int
    #: The offset that the next record gets. Never falls, except while a start recovers the log.
    log_end_offset: int
    #: The high watermark: how far the log is readable and acknowledged. Falls only when the log is withheld.
    readable: HighWatermark
    #: Everything below this offset is synced.
    recovery_point: int
    #: The offset below which nothing counts as durable before its sync, whichever policy applies now.
    promised_end: int = 0
    #: Producers with their last batches and open transactions.
    producers: ProducerState
    #: The leader epochs of the records, as stored.
    epochs: LeaderEpochs
    #: The epoch under which new batches are appended; at least that of the newest batch. Never falls.
    leader_epoch: int
    #: Everything that the next sync must cover.
    unsynced: PendingSync = field(default_factory=PendingSync)
    #: The progress of compaction in this log. Written by the Cleaner and the Scrubber.
    compaction: CompactionState = field(default_factory=CompactionState)
    #: Positions at which reads will probably begin.
    read_positions: ReadPositions
    #: The reason why the log is offline: nothing is appended or acknowledged. None while it works.
    offline: str | None = None
    #: Whether the log is offline and not read either.
    withheld: bool = False
    #: Whether the partition was deleted.
    deleted: bool = False
    #: (recovery point, high watermark) in the checkpoints of a damaged log, so that no later start cuts it.
    known_durable: tuple[int, int] | None = None
    #: The answers that readers got in advance, as far as they are valid.
    read_ahead: ReadAheadRevision
    #: Batches, records and bytes that were appended since the log was opened.
    appended_batches: int = 0
    appended_records: int = 0
    appended_bytes: int = 0
    #: The number of these bytes, from the first on, that a sync has covered.
    synced_bytes: int = 0

    @classmethod
    def at_end(
        cls,
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
    ) -> Self:
        """Return the state of a log whose records are all readable and need no sync."""
        positions, active = ReadPositions(), segments[-1]
        read_ahead = ReadAheadRevision(environment.revisions)
        return cls(
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            folder=folder,
            files=environment.files,
            config=config,
            policy=config.flush_policy or environment.policy,
            segments=Segments(segments, environment.open_segments),
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            readable=HighWatermark(log_end_offset, active, active.size, positions, read_ahead.invalidate),
            recovery_point=log_end_offset,
            producers=producers,
            epochs=epochs,
            leader_epoch=max(0, epochs.latest),
            read_positions=positions,
            read_ahead=read_ahead,
        )

    @property
    def high_watermark(self) -> int:
        """The first offset that is not acknowledged yet; readers see the records below it."""
        return self.readable.offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided and the decision durable."""
        high_watermark = self.readable.offset
        undecided = self.producers.transactions.first_undecided(high_watermark)
        if undecided is None or undecided >= high_watermark:
            return high_watermark
        return max(undecided, self.log_start_offset)  # mutant: last-stable-offset

    @property
    def checkpoint(self) -> tuple[int, int]:
        """(recovery point, high watermark) for the next start."""
        return self.known_durable or (self.recovery_point, self.high_watermark)

    @property
    def roll_syncs(self) -> bool:
        """Whether a roll must sync first.

        Batches of the new segment may reach the disk by themselves. After older batches that did not, they would leave
        a hole. A caller that can wait until the log is durable does, so that the event loop is not held up.

        Batches that `os` wrote before the policy was changed may leave such a hole until the next sync, as under `os`.
        """
        # mutant: roll-after-sync
        return self.policy is FlushPolicy.GROUP and self.readable.offset < self.log_end_offset

    @property
    def unavailable(self) -> int:
        """The error code of requests to an offline or deleted log."""
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self.deleted else ErrorCode.KAFKA_STORAGE_ERROR

    def refuse_deleted(self) -> None:
        """Raise StorageFailure if the partition was deleted."""
        if self.deleted:
            raise StorageFailure(f"the partition {self.topic}-{self.partition} was deleted")

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (newest epoch not newer than this one, the offset after its last record); (-1, -1) if none is
        known.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log_end_offset
        if not 0 <= epoch < self.leader_epoch:
            return -1, -1
        return self.epochs.end_of(epoch) or (max(self.epochs.latest, epoch), self.log_end_offset)

    def check_invariants(self) -> None:
        """Raise AssertionError unless the state is consistent."""
        offsets = [self.log_start_offset, self.last_stable_offset, self.high_watermark, self.log_end_offset]
        assert offsets == sorted(offsets), (self.folder, offsets)
        assert self.recovery_point <= self.log_end_offset, self.folder
        self.segments.check_invariants()
        assert self.segments.bases[0] <= self.log_start_offset, self.folder
        assert self.readable.segment in self.segments, self.folder
        assert self.readable.position <= self.readable.segment.size, self.folder
        for segment in self.segments if self.offline is None else ():
            if segment.uncut:
                continue
            assert segment.descriptor < 0 or self.files.status(segment.descriptor).st_size == segment.size, segment.path
