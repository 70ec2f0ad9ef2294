"""Batches from before the newest snapshot, looked for when a producer repeats one of them.

A snapshot keeps one batch of each producer (Kafka's format), we promise to recognise five. So a producer that the
snapshot named and that sends what does not follow its last batch is looked up in the log: backwards from where the
start's replay began, until its five batches are found, an older epoch of it, the beginning of the log, or 1 GiB has
been read since the start, whichever comes first. Nobody's batches are read twice: what is passed on the way completes
the windows of all others too. Batches that compaction removed are not found.
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
    """Owned by its log's BatchWriter."""

    __slots__ = ("_bytes_left", "_files", "_offset", "_producers", "_segments")

    def __init__(self, producers: ProducerState, segments: Segments, files: Files) -> None:
        self._producers = producers
        self._segments = segments
        self._files = files
        #: Everything at and behind this offset has been looked at.
        self._offset = producers.replayed_from
        self._bytes_left = _BYTES_MAX

    def complete(self, producer_id: int) -> bool:
        """Find what is missing of the producer's last batches; whether there was any.

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
        """The batches that end at the offset, about a megabyte of them; the offset is where they begin."""
        segments = self._segments
        segment = segments[segments.index_of(self._offset - 1)]
        located = segment.locate(self._offset)
        end = segment.size if located is None else located[0]
        start, _ = boundary(segment, 0, max(0, end - _STEP_BYTES))
        found = [header for _, header in headers(self._files, segment.descriptor, start, end)]
        self._offset = found[0].base_offset if start else segment.base_offset
        self._bytes_left -= end - start
        return found
