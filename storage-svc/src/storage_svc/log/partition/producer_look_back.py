"""The search for batches that are older than the newest snapshot, when a producer repeats one of them.

A snapshot keeps one batch of each producer (Kafka's format), but we promise to recognise five. So the log is searched
for the batches of a producer that the snapshot named, if its next batch does not follow its last one. The search goes
backwards from the start of the replay. It ends at the producer's five batches, at an older epoch of it, at the log's
beginning, or after 1 GiB since the start.

No batch is read twice: batches of other producers complete the windows of those. Batches that compaction removed are
not found.
"""

from __future__ import annotations

from typing import Final

from storage_svc.log.batch.header import Header, headers
from storage_svc.log.disk.files import Files
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.segment.positions import boundary
from storage_svc.log.segment.segment_list import Segments

_BYTES_MAX: Final = 1 << 30
_STEP_BYTES: Final = 1 << 20


class ProducerLookBack:
    """The search in one log, owned by its log's BatchWriter."""

    __slots__ = ("_bytes_left", "_files", "_offset", "_producers", "_segments")

    def __init__(self, producers: ProducerState, segments: Segments, files: Files) -> None:
        self._producers = producers
        self._segments = segments
        self._files = files
        #: The offset from which on everything has been searched.
        self._offset = producers.replayed_from
        self._bytes_left = _BYTES_MAX

    def complete(self, producer_id: int) -> bool:
        """Find the missing ones of the producer's last batches; return whether there were any.

        Raises:
            StorageFailure: the disk did not answer.
        """
        producers = self._producers
        producer = producers.producers.get(producer_id)
        if producer is None or not producer.lacks_batches:
            return False
        known = len(producer.batches)
        while producer.lacks_batches and self._offset > self._segments.bases[0] and self._bytes_left > 0:
            for header in reversed(self._step()):
                producers.remember_before(header)
        producer.complete = True
        return len(producer.batches) > known

    def _step(self) -> list[Header]:
        """Return about a megabyte of the batches that end at the offset; move the offset to where they begin."""
        segments = self._segments
        segment = segments[segments.index_of(self._offset - 1)]
        located = segment.locate(self._offset)
        end = segment.size if located is None else located[0]
        start, _ = boundary(segment, 0, max(0, end - _STEP_BYTES))
        found = [header for _, header in headers(self._files, segment.descriptor, start, end)]
        self._offset = found[0].base_offset if start else segment.base_offset
        self._bytes_left -= end - start
        return found
