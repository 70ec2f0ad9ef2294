"""The state of one partition's log, as plain data.

    log start offset <= last stable offset <= high watermark <= log end offset

A PartitionLog *is* this state, and hands itself to its parts: as a LogState, and as the LogActions that they may start.
All of them run on the event loop's thread. They write:

    PartitionLog       every field but the parts below
    BatchWriter        the active segment's size and first timestamp, `producers`, `epochs`, paths of `unsynced`
    LogTransactions    `producers`, the transaction index of the active segment, paths of `unsynced`
    log_reader         `read_positions`
    Cleaner, scrub     `compaction`
    Recovery           any field, before the log is used
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from protocol_lib.errors import ErrorCode

from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.compaction_state import CompactionState
from storage_svc.log.partition.high_watermark import HighWatermark
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.partition.pending_sync import PendingSync
from storage_svc.log.partition.read_positions import ReadPositions
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.segment.segment_list import Segments


class LogActions(Protocol):
    """The steps of a PartitionLog that its parts may start."""

    def write_staged(self) -> None:
        """Write the staged batches and move the log's end."""

    def roll(self, now_ms: int) -> None:
        """Close the active segment and start another."""

    def take_offline(self, reason: str) -> None:
        """Refuse appends and acknowledge nothing more."""

    def invalidate_read_ahead(self) -> None:
        """Withdraw the answers that readers got in advance."""


@dataclass(slots=True, eq=False, kw_only=True)
class LogState:
    """The state of one log. The table above says which module writes which field."""

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
