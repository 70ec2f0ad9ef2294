"""Transactions as one partition's log sees them: they begin with a batch, end with a marker, and make readers wait.

A transaction begins with its first batch here, and the transaction coordinator ends it by a marker (`end`). In between,
readers with isolation level read_committed see nothing after the last stable offset. Aborted batches stay in the log;
such readers learn which producers' batches to leave out (`aborted`).

    offset      0      3      5(abort marker)   6      9
    producer 7  data          x
    producer 8         data                     data              last stable offset 3; aborted below it: (7, 0)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from protocol_lib.errors import ErrorCode
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch

from storage_svc.log.batch.header import headers
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.batch_writer import BatchWriter
from storage_svc.log.partition.log_reader import Span, find_spans
from storage_svc.log.partition.outcome import Appended, Origin, Retry
from storage_svc.log.partition.state import LogActions, LogState
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.transaction_index import AbortedTransaction

_MESSAGES: dict[int, str] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer's epoch is older than the newest one",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer transaction coordinator has written here",
}


class LogTransactions:
    """The transactions of one log, owned by its PartitionLog."""

    __slots__ = ("_actions", "_clock", "_stable", "_state", "_writer")

    def __init__(self, state: LogState, writer: BatchWriter, actions: LogActions, clock: Callable[[], int]) -> None:
        self._state = state
        self._writer = writer
        self._actions = actions
        self._clock = clock
        #: The stable offset that was looked up last, and where it is.
        self._stable: tuple[int, Segment, int] | None = None

    def end(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
        may_wait: bool = False,
    ) -> Appended | Retry:
        """Write the marker that commits or aborts the producer's transaction in this partition.

        With `may_wait` the result may be AFTER_SYNC: the log is unchanged, and the caller calls again after the sync.

        Error 47 means that the producer has a newer epoch, 52 that a newer coordinator has written a marker for it.
        Error 56 leaves everything as it was. Without an open transaction the marker is written all the same:
        coordinators repeat themselves after a crash.
        """
        state, writer = self._state, self._writer
        producers = state.producers
        error = producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if state.offline is None and error:
            return Appended(error, error_message=_MESSAGES[error])
        self._actions.write_staged()
        now_ms = self._clock()  # wall clock: timestamps of markers
        marker = EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch)
        batch = build_marker_batch(marker, timestamp=now_ms, producer_id=producer_id, producer_epoch=producer_epoch)
        appended = writer.stage(memoryview(batch), Origin.COORDINATOR, now_ms, may_wait=may_wait)
        if isinstance(appended, Retry) or appended.error_code:
            return appended
        offset, first_offset = appended.base_offset, producers.open_since(producer_id)
        index = state.segments.active.transaction_index
        aborts = not commit and first_offset >= 0
        if aborts:
            # Before the marker: a reader that sees the marker must find the entry. If this fails, no state has changed.
            stable_offset = producers.transactions.stable_without(producer_id, offset)
            try:
                index.append(AbortedTransaction(producer_id, first_offset, offset, stable_offset))
            except StorageFailure as error:
                writer.drop_staged(error)
                return appended
            state.unsynced.add_paths(index.file.path, state.folder)
        self._actions.write_staged()
        if appended.error_code:
            if aborts:
                self._take_back(index_end=offset)
            return appended
        producers.end(producer_id, producer_epoch, coordinator_epoch, offset, now_ms, now_ms)
        self._actions.invalidate_read_ahead()
        return appended

    def _take_back(self, index_end: int) -> None:
        """Remove the index entry of a marker that could not be written; if that fails, take the log offline."""
        try:
            self._state.segments.active.transaction_index.truncate(index_end)
        except StorageFailure as error:
            self._actions.take_offline(str(error))

    # -- reading ------------------------------------------------------------------------------------------------------

    def stable_end(self) -> tuple[int, Segment, int]:
        """Return the last stable offset and where the batches below it end: segment and position.

        Raises:
            StorageFailure: the disk did not answer.
        """
        offset = self._state.last_stable_offset
        readable = self._state.readable
        if offset == readable.offset:
            return offset, readable.segment, readable.position
        if self._stable is None or self._stable[0] != offset or self._stable[1] not in self._state.segments:
            self._stable = offset, *self._place(offset)
        return self._stable

    def read(
        self, offset: int, max_bytes: int, most: int, *, min_one: bool
    ) -> tuple[list[Span], list[tuple[int, int]]]:
        """Return the batches that a reader of committed records gets from the offset on, and (producer id, first
        offset) of the aborted transactions among them.

        If there are more than `most` of those, fewer batches are returned, but one at least with `min_one`. So the list
        is longer only where more than `most` transactions were open at the offset.

        Raises:
            StorageFailure: the disk did not answer.
        """
        stable_offset, segment, position = self.stable_end()
        if offset >= stable_offset:
            return [], []
        spans = find_spans(self._state, offset, max_bytes, segment, position, min_one=min_one)
        found, end = self._aborted(offset, spans, most)
        if end is not None:  # mutant: read-up-to-listed-aborts
            spans = find_spans(self._state, offset, max_bytes, *self._place(end), min_one=True)
        return spans, found

    def aborted(self, offset: int, spans: Sequence[Span]) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions with batches in the spans, which begin at the
        offset.

        Raises:
            StorageFailure: the disk did not answer.
        """
        return self._aborted(offset, spans, sys.maxsize)[0]

    def _aborted(self, offset: int, spans: Sequence[Span], most: int) -> tuple[list[tuple[int, int]], int | None]:
        """Return the aborted transactions, and the end of the batches that they cover; None for that of the spans."""
        found: list[tuple[int, int]] = []
        if not spans:
            return found, None
        whole_end = end = -1
        for segment in self._state.segments.starting_with(offset):
            if not len(segment.transaction_index):
                continue
            if end < 0:
                whole_end = end = self._end_offset(spans[-1])
            some, end, complete = segment.transaction_index.find(offset, end, most - len(found))
            found += some
            if complete:
                break
        found = [each for each in found if each[1] < end]  # a later segment may have ended the search early
        if len(found) > most and (later := sorted(first for _, first in found if first > offset)):
            end = later[max(0, most - len(found) + len(later))]
        if end == whole_end:
            return found, None
        return [each for each in found if each[1] < end], end

    def _place(self, offset: int) -> tuple[Segment, int]:
        """Return the segment and the position in it at which the batches below the offset end."""
        segment = self._state.segments.starting_with(offset)[0]
        located = segment.locate(offset)
        return segment, segment.size if located is None else located[0]

    def _end_offset(self, span: Span) -> int:
        """Return the offset after the last batch of a span."""
        segment, position, length = span
        segment.open()
        later = headers(self._state.files, segment.descriptor, position + length, segment.size, 64)
        if (following := next(later, None)) is not None:
            return following[1].base_offset
        segments = self._state.segments
        return segments.end_of(segments.index_of(segment.base_offset), self._state.log_end_offset)
