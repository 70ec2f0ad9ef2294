"""The search for batches that are older than the newest snapshot, when a producer repeats one of them.

A snapshot holds one batch of each producer (Kafka's format), but five must be recognised. So if the next batch of a
producer from the snapshot does not follow its last one, the log is searched for its older batches. The search goes
backwards from the start of the replay. It ends at the producer's fifth batch, at an older epoch of the producer, at the
log's beginning, or after 1 GiB since the start.

No batch is read twice: batches of other producers complete the windows of those. Batches that compaction removed are
not found.

The search may take a second a gigabyte, and a cold disk takes longer. So a batch that a client sent waits for `search`,
a thread of which reads about a megabyte at a time. `complete` does the same work before it returns.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from storage_svc.log.batch.header import Header, headers
from storage_svc.log.disk.files import Files
from storage_svc.log.disk.threads import Threads
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.segment.positions import boundary
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.segment_list import Segments

_BYTES_MAX: Final = 1 << 30
STEP_BYTES: Final = 1 << 20


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

    def lacks(self, producer_id: int) -> bool:
        """Return whether a search may find older batches of the producer."""
        producer = self._producers.producers.get(producer_id)
        if producer is None or not producer.lacks_batches:
            return False
        if self._offset > self._segments.bases[0] and self._bytes_left > 0:
            return True
        producer.complete = True
        return False

    async def search(self, producer_id: int, threads: Threads) -> None:
        """Find the missing ones of the producer's last batches, while one of these threads reads the log.

        The caller begins no other search before this one ends.

        Raises:
            StorageFailure: the disk did not answer.
        """
        while self.lacks(producer_id):
            step = self._step()
            try:
                found = await threads.run(self._read, step)  # mutant: look-back-off-loop
            finally:
                step.segment.unpin()
            self._note(step, found)

    def complete(self, producer_id: int) -> bool:
        """Find the missing ones of the producer's last batches before this returns; return whether there were any.

        Raises:
            StorageFailure: the disk did not answer.
        """
        producer = self._producers.producers.get(producer_id)
        known = 0 if producer is None else len(producer.batches)
        while self.lacks(producer_id):
            step = self._step()
            try:
                found = self._read(step)
            finally:
                step.segment.unpin()
            self._note(step, found)
        return producer is not None and len(producer.batches) > known

    def _step(self) -> _Step:
        """Return the position of about a megabyte of the batches that end at the offset. The segment is pinned."""
        segments = self._segments
        segment = segments[segments.index_of(self._offset - 1)]
        located = segment.locate(self._offset)
        end = segment.size if located is None else located[0]
        start, _ = boundary(segment, 0, max(0, end - STEP_BYTES))
        segment.pin()
        return _Step(segment, start, end)

    def _read(self, step: _Step) -> list[Header]:
        return [header for _, header in headers(self._files, step.segment.descriptor, step.start, step.end)]

    def _note(self, step: _Step, found: list[Header]) -> None:
        """Add the batches of one step to the windows; move the offset to where they begin."""
        self._offset = found[0].base_offset if step.start else step.segment.base_offset
        self._bytes_left -= step.end - step.start
        for header in reversed(found):
            self._producers.remember_before(header)


class _Step(NamedTuple):
    """Bytes of a segment to be searched."""

    segment: Segment
    start: int
    end: int
