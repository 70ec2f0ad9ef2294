"""One partition's log as other modules see it: its state, read-only, and the batches that readers get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from protocol_lib.errors import ErrorCode

from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.compaction_state import CompactionState
from storage_svc.log.partition.high_watermark import HighWatermark
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.partition.log_reader import Span, awaited_bytes, find_batches, find_spans, next_offset
from storage_svc.log.partition.state import LogState
from storage_svc.log.partition.transactions import LogTransactions
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.segment_list import Segments


class LogView:
    """The side of a PartitionLog that reads, and waits for it."""

    __slots__ = ("_state", "transactions")

    def __init__(self, state: LogState) -> None:
        self._state = state
        #: The transactions, for readers of committed records.
        self.transactions = LogTransactions(state)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._state.topic

    @property
    def partition(self) -> int:
        """The partition's index."""
        return self._state.partition

    @property
    def topic_id(self) -> bytes:
        """The topic's id, 16 bytes; all zeros until it is known."""
        return self._state.topic_id

    @property
    def folder(self) -> str:
        """The partition's folder, which holds all its files."""
        return self._state.folder

    @property
    def files(self) -> Files:
        """The disk."""
        return self._state.files

    @property
    def config(self) -> LogConfig:
        """The topic's settings that apply to its logs."""
        return self._state.config

    @property
    def policy(self) -> FlushPolicy:
        """The policy by which appends count as durable."""
        return self._state.policy

    @property
    def segments(self) -> Segments:
        """The segments, oldest first, never none; the last one is active."""
        return self._state.segments

    @property
    def log_start_offset(self) -> int:
        """The first offset that is still read."""
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._state.log_end_offset

    @property
    def readable(self) -> HighWatermark:
        """The high watermark with its place, and the callers that wait for it."""
        return self._state.readable

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is synced."""
        return self._state.recovery_point

    @property
    def producers(self) -> ProducerState:
        """Producers with their last batches and open transactions."""
        return self._state.producers

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the records, as stored."""
        return self._state.epochs

    @property
    def leader_epoch(self) -> int:
        """The epoch under which new batches are appended."""
        return self._state.leader_epoch

    @property
    def compaction(self) -> CompactionState:
        """The progress of compaction in this log."""
        return self._state.compaction

    @property
    def offline(self) -> str | None:
        """The reason why nothing is appended or acknowledged. None while the log works."""
        return self._state.offline

    @property
    def withheld(self) -> bool:
        """Whether the log is offline and not read either."""
        return self._state.withheld

    @property
    def deleted(self) -> bool:
        """Whether the partition was deleted."""
        return self._state.deleted

    @property
    def appended_batches(self) -> int:
        """Batches that were appended since the log was opened."""
        return self._state.appended_batches

    @property
    def appended_records(self) -> int:
        """Records that were appended since the log was opened."""
        return self._state.appended_records

    @property
    def appended_bytes(self) -> int:
        """Bytes that were appended since the log was opened."""
        return self._state.appended_bytes

    @property
    def synced_bytes(self) -> int:
        """The number of these bytes, from the first on, that a sync has covered."""
        return self._state.synced_bytes

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided and the decision durable."""
        return self._state.last_stable_offset

    @property
    def roll_syncs(self) -> bool:
        """Whether a roll must sync first: `LogState.roll_syncs`."""
        return self._state.roll_syncs

    @property
    def unavailable(self) -> int:
        """The error code of requests to an offline or deleted log."""
        return self._state.unavailable

    @property
    def high_watermark(self) -> int:
        """The first offset that is not acknowledged yet; readers see the records below it."""
        return self._state.readable.offset

    @property
    def checkpoint(self) -> tuple[int, int]:
        """(recovery point, high watermark) for the next start."""
        return self._state.checkpoint

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (newest epoch not newer than this one, the offset after its last record), as LogState does."""
        return self._state.end_of_epoch(epoch)

    def current_revision(self) -> tuple[int, int]:
        """Return the log's slot in the environment's Revisions and the number there.

        An answer that was sent ahead is valid while that number stays the same.
        """
        return self._state.read_ahead.current()

    def spans(self, offset: int, max_bytes: int, *, min_one: bool, committed: bool = False) -> list[Span]:
        """Return the batches that a consumer may read from the offset on, at most `max_bytes` of them.

        With `min_one` that is at least one batch; with `committed` none of undecided transactions.

        Raises:
            StorageFailure: the disk did not answer.
        """
        readable = self._state.readable
        if offset >= readable.offset:
            return []
        if not committed:
            return find_spans(self._state, offset, max_bytes, readable.segment, readable.position, min_one=min_one)
        stable_offset, segment, position = self.transactions.stable_end()
        if offset >= stable_offset:
            return []
        return find_spans(self._state, offset, max_bytes, segment, position, min_one=min_one)

    def read_batches(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that contains the offset, at least one, up to the log end offset; empty
        there.

        It serves our own coordinators, so it reads batches that are not durable yet, too.

        Raises:
            StorageFailure: the disk did not answer.
        """
        return find_batches(self._state, offset, max_bytes)

    def awaited_bytes(
        self, offset: int, max_bytes: int, spans: list[Span], readable_end: tuple[int, Segment, int]
    ) -> int | None:
        """Return the bytes that count towards a read's `min_bytes`, as `log_reader.awaited_bytes` does."""
        return awaited_bytes(self._state, offset, max_bytes, spans, readable_end)

    def next_offset(self, spans: list[Span]) -> int | None:
        """Return the offset of the batch after the spans; None where no readable one follows.

        Raises:
            StorageFailure: the disk did not answer.
        """
        return next_offset(self._state, spans)

    def on_durable(self, offset: int, callback: Callable[[int], None]) -> None:
        """Call back with 0 once the high watermark is at or after the offset, with an error code if it never will be.

        The offset of a batch is its last offset + 1. The callback is called at once if the offset is durable already.
        """
        state = self._state
        if state.readable.offset >= offset:
            callback(ErrorCode.NONE)
        elif state.offline is not None or state.deleted:
            callback(state.unavailable)
        else:
            state.readable.wait(offset, callback)

    async def durable(self, offset: int) -> int:
        """Wait as `on_durable` does, for coroutines; return 0 or the error code."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.on_durable(offset, lambda code: None if future.done() else future.set_result(code))
        return await future
