"""One partition's log as other modules see it: its state, read-only, and the batches that readers get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

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


def _shown(field: str) -> Any:
    """Return a field of the state that cannot be assigned here. Reading it costs no call of a Python function."""
    return property(attrgetter(f"_state.{field}"))


class LogView:
    """The side of a PartitionLog that reads, and waits for it. The fields are those of LogState."""

    __slots__ = ("_state", "transactions")

    topic: Final[str] = _shown("topic")
    partition: Final[int] = _shown("partition")
    topic_id: Final[bytes] = _shown("topic_id")
    folder: Final[str] = _shown("folder")
    files: Final[Files] = _shown("files")
    config: Final[LogConfig] = _shown("config")
    policy: Final[FlushPolicy] = _shown("policy")
    segments: Final[Segments] = _shown("segments")
    log_start_offset: Final[int] = _shown("log_start_offset")
    log_end_offset: Final[int] = _shown("log_end_offset")
    readable: Final[HighWatermark] = _shown("readable")
    recovery_point: Final[int] = _shown("recovery_point")
    producers: Final[ProducerState] = _shown("producers")
    epochs: Final[LeaderEpochs] = _shown("epochs")
    leader_epoch: Final[int] = _shown("leader_epoch")
    compaction: Final[CompactionState] = _shown("compaction")
    offline: Final[str | None] = _shown("offline")
    withheld: Final[bool] = _shown("withheld")
    deleted: Final[bool] = _shown("deleted")
    appended_batches: Final[int] = _shown("appended_batches")
    appended_records: Final[int] = _shown("appended_records")
    appended_bytes: Final[int] = _shown("appended_bytes")
    synced_bytes: Final[int] = _shown("synced_bytes")
    last_stable_offset: Final[int] = _shown("last_stable_offset")
    roll_syncs: Final[bool] = _shown("roll_syncs")
    unavailable: Final[int] = _shown("unavailable")
    #: The first offset that is not acknowledged yet; readers see the records below it.
    high_watermark: Final[int] = _shown("readable.offset")
    checkpoint: Final[tuple[int, int]] = _shown("checkpoint")

    def __init__(self, state: LogState) -> None:
        self._state = state
        #: The transactions, for readers of committed records.
        self.transactions = LogTransactions(state)

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
