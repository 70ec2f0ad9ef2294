"""Transactions as one partition's log sees them: they begin with a batch, end with a marker, and make readers wait.

A transaction begins with its first batch here, and the transaction coordinator ends it by a marker
(transaction_end.py). In between, readers with isolation level read_committed see nothing after the last stable offset.
Aborted batches stay in the log; such readers learn which producers' batches to leave out (`aborted`).

    offset      0      3      5(abort marker)   6      9
    producer 7  data          x
    producer 8         data                     data              last stable offset 3; aborted below it: (7, 0)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from storage_svc.log.batch.header import headers
from storage_svc.log.partition.log_reader import Span, find_spans
from storage_svc.log.partition.state import LogState
from storage_svc.log.segment.segment import Segment


class LogTransactions:
    """The transactions of one log, for its readers. Owned by its PartitionLog, which ends them."""

    __slots__ = ("_stable", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        #: The stable offset that was looked up last, and where it is.
        self._stable: tuple[int, Segment, int] | None = None

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
