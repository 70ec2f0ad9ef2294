"""The check of a segment's transaction index, whose format has no checksum.

A wrong entry shows aborted records to committed readers. A start checks the index of every segment that recovery does
not read anyway. With a seal, the file must agree with it. Without one the order of the entries is checked, and of the
first 2,000 entries that:

- a marker of that producer stands at the last offset
- a batch of the producer begins at the first offset
- the last stable offset is that of a transaction or after the marker

Batches that were deleted or compacted away cannot be checked. An index that does not agree is rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Final

from protocol_lib.records.header import CONTROL, TRANSACTIONAL
from service_chassis import logs

from storage_svc.log.batch.header import Header, headers
from storage_svc.log.disk.files import Files
from storage_svc.log.recovery.producer_recovery import ProducerRecovery
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.transaction_index import AbortedTransaction

_CHECKED_MAX: Final = 2_000

_log = logs.get(__name__)


class TransactionIndexCheck:
    """The check of one log's segments, of which the last one is open; used by recovery.py."""

    def __init__(self, files: Files, producers: ProducerRecovery, segments: Sequence[Segment], end_offset: int) -> None:
        self._files = files
        self._producers = producers
        self._segments = segments
        self._end_offset = end_offset

    def run(self, with_index: set[int], read_from: int | None) -> None:
        """Check the indexes of the segments below the offset that recovery read from, and rebuild those that are wrong.

        The offset is None if recovery did not read at all; segments with these base offsets have an index.

        Raises:
            StorageFailure: the folder cannot be read or written.
        """
        bounds = [segment.base_offset for segment in self._segments] + [self._end_offset]
        for number, segment in enumerate(self._segments):
            index = segment.transaction_index
            if read_from is not None and segment.base_offset >= read_from:
                break
            if segment.base_offset not in with_index:
                index.assume_empty()
            elif not index.load(segment.base_offset, bounds[number + 1]) or not self._is_true(segment, index.sealed()):
                _log.warning("transaction index rebuilt", segment=segment.relative_path)
                self._rebuild(number)
        for segment in self._segments[:-1]:
            segment.release()

    def _is_true(self, segment: Segment, sealed: bool | None) -> bool:
        # mutant: transaction-index-seal
        return (
            sealed
            if sealed is not None
            else all(self._agrees(entry) for entry in islice(segment.transaction_index, _CHECKED_MAX))
        )

    def _agrees(self, entry: AbortedTransaction) -> bool:
        marker = self._batch_with(entry.last_offset)
        if marker is not None and (
            marker.last_offset != entry.last_offset
            or not marker.attributes & CONTROL
            or marker.producer_id != entry.producer_id
        ):
            return False
        first = self._batch_with(entry.first_offset)
        if first is not None and (first.base_offset, first.producer_id) != (entry.first_offset, entry.producer_id):
            return False
        if entry.last_stable_offset == entry.last_offset + 1:
            return True
        stable = self._batch_with(entry.last_stable_offset)
        return stable is None or (
            stable.base_offset == entry.last_stable_offset and bool(stable.attributes & TRANSACTIONAL)
        )

    def _batch_with(self, offset: int) -> Header | None:
        """Return the batch that contains an offset; None if it is gone."""
        holding = [segment for segment in self._segments if segment.base_offset <= offset]
        if not holding:
            return None
        located = holding[-1].locate(offset)
        return located[1] if located is not None and located[1].base_offset <= offset else None

    def _rebuild(self, number: int) -> None:
        segment = self._segments[number]
        state = self._producers.state_at(self._segments[:number], segment.base_offset)
        segment.open()
        entries = []
        for position, header in headers(self._files, segment.descriptor, 0, segment.size):
            aborted = self._producers.replay(state, header, partial(segment.read, position, header.size))
            if aborted is not None:
                entries.append(aborted)
        segment.transaction_index.replace(entries)
