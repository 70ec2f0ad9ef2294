"""The findings of recovery in a segment: good batches, holes between them, and wrong fields that the CRC does not
cover.

    position  0        4200      8400      12600     16800         size
              [0-9]    [10-19]   ????????  [30-39]   [7-16]  ...             expected offsets 0, 10, 20, 30, 40
                                 hole                corrected to 40-49: the next batch begins at 50

A base offset is right if it is the one after the last batch. A higher one may be, as compaction leaves gaps, a lower
one never. The next batch decides, or the next segment's base: if exactly this batch fits between its neighbours, that
is where it belongs. The last batch of all has no next one: the end of the log decides, where it is known. Where it is
not, in a segment without any gap, the batch follows the one before it. Two exceptions are a copy of that one, and a
batch after a gap. Damage has left that gap, or the log is known to have reached as far: the segments of an Apache Kafka
follower may have gaps.

Batches that are known to be synced are followed by their headers only, as long as each continues the one before it in
offset and epoch. The first that does not, above or below the synced end, has the whole segment checked instead.

A leader epoch is right if the epoch list says so. If not, the neighbours decide: one that is newer than the whole list
is confirmed by the next batch, any other one by either of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from protocol_lib.records.header import MAGIC

from storage_svc.log.batch.header import Header
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.recovery.segment_window import RELATIVE_OFFSET_MAX, SegmentWindow
from storage_svc.log.segment.segment import Segment

_NO_EPOCH: Final = -1
#: The part of a segment's end that is checked in any case: a crash harms it most often.
_CHECKED_BYTES: Final = 256 << 10


class Hole(NamedTuple):
    """Bytes between two positions that are no good batches."""

    start: int
    end: int
    #: The offset after the last good batch before it.
    first_offset: int
    #: The base offset of the good batch after it; None at the end of the segment.
    next_offset: int | None


class SegmentScan:
    """Iterate once, then read the rest."""

    def __init__(
        self,
        segment: Segment,
        epochs: LeaderEpochs,
        later: Sequence[Segment],
        is_torn: Callable[[SegmentWindow, Hole], bool],
        synced_to: int = 0,
        gaps: Mapping[int, int] = MappingProxyType({}),
        log_end: int | None = None,
        durable_to: int = 0,
    ) -> None:
        """Prepare a scan of one segment; `later` are the segments after it.

        Without later ones, `log_end` is the offset at or before which the segment's last batch ends, if that is known.
        The log ended at or after `durable_to` when a crash cut it short.

        A hole for which `is_torn` returns True ends the scan. Below `synced_to` batches are only followed, except at
        the segment's end (`_CHECKED_BYTES`). `gaps` are those that damage has left (quarantine.py): the offset after
        the last batch before each -> the first offset after it.
        """
        self._segment = segment
        self._epochs = epochs
        self._later = later
        self._is_torn = is_torn
        self._synced_to = synced_to
        self._gaps = gaps
        self._log_end = log_end
        self._durable_to = durable_to
        self._gapless = True
        self._last: Header | None = None
        self.window = SegmentWindow(segment)
        self.holes: list[Hole] = []
        #: (position, header) of batches whose base offset or leader epoch is wrong in the file.
        self.corrected: list[tuple[int, Header]] = []
        #: Bytes of the holes so far.
        self.hole_bytes = 0
        #: Whether the epoch list contradicts the batches.
        self.epochs_wrong = False
        #: Whether the batches that are known to be synced are not as they should be: iterate over another one, without
        #: `synced_to`.
        self.unlike_synced = False
        #: The position after the last good batch.
        self.end_position = 0
        self.end_offset = segment.base_offset

    def __iter__(self) -> Iterator[tuple[int, Header]]:
        """Yield (position, header as it should be) of every good batch."""
        if self._synced_to > self.end_offset:
            yield from self._follow()
            if self.unlike_synced:
                return
        good_batch = self.window.good_batch
        position, size, epoch, epoch_end = self.end_position, self._segment.size, _NO_EPOCH, 0
        while position < size:
            header = good_batch(position)
            if header is not None and (
                header.base_offset != self.end_offset or header.leader_epoch != epoch or self.end_offset >= epoch_end
            ):
                header = self._placed(position, header)
                epoch_end = self._epochs.next_start(self.end_offset if header is None else header.base_offset)
            if header is None:
                hole = self._hole(position)
                if self._is_torn(self.window, hole):
                    return
                self.holes.append(hole)
                self.hole_bytes += hole.end - hole.start
                self._gapless = False
                position = hole.end
                continue
            yield position, header
            position += header.size
            epoch = header.leader_epoch
            self._last = header
            self.end_position, self.end_offset = position, header.last_offset + 1

    def _follow(self) -> Iterator[tuple[int, Header]]:
        """Yield batches in the same form, as long as they are only followed."""
        expected, epoch, epoch_end = self.end_offset, _NO_EPOCH, -1
        last_position = self._segment.size - _CHECKED_BYTES
        for position, header in self._segment.headers():
            if position >= last_position or expected >= self._synced_to:
                break
            if expected >= epoch_end:
                epoch, epoch_end = self._epochs.at(expected), self._epochs.next_start(expected)
            known = header.leader_epoch == epoch or self._epochs.begins_after(expected, header.leader_epoch)
            if header.base_offset != expected or not known or header.last_offset_delta < 0:
                self.unlike_synced = True
                return
            yield position, header
            expected += header.last_offset_delta + 1
            self._last = header
            self.end_position, self.end_offset = position + header.size, expected
        position = self.end_position
        if expected != self._synced_to:
            found = self.window.good_batch(position) if position < self._segment.size else None
            self.unlike_synced = found is None or found.base_offset != expected

    def _hole(self, position: int) -> Hole:
        end = self.window.next_good(position, self.end_offset)
        if end is None:
            return Hole(position, self._segment.size, self.end_offset, None)
        header = self.window.good_batch(end)
        assert header is not None
        return Hole(position, end, self.end_offset, header.base_offset)

    def _placed(self, position: int, header: Header) -> Header | None:
        """Return the header, with the fields outside the CRC corrected; None if the batch's place cannot be found.

        A message of format 0 or 1 has no epoch, and its offset shows where it ends, not where it begins. It stays
        unchanged if it comes after the last batch.
        """
        if header.magic < MAGIC:
            return header if header.base_offset >= self.end_offset else None
        if position + header.size == self._segment.size:
            following = first_good_batch(self._later)
        else:
            following = self.window.good_batch(position + header.size)
        base_offset = self._base_offset(position, header, following)
        if base_offset is None:
            return None
        if base_offset > self.end_offset:
            self._gapless = False
        leader_epoch = self._leader_epoch(header, base_offset, following)
        if (base_offset, leader_epoch) != (header.base_offset, header.leader_epoch):
            header = header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
            self.corrected.append((position, header))
        return header

    def _base_offset(self, position: int, header: Header, following: Header | None) -> int | None:
        base_offset, expected = header.base_offset, self.end_offset
        if base_offset in (expected, self._gaps.get(expected)):
            return base_offset
        following_offset = following.base_offset if following is not None else None
        if position + header.size == self._segment.size:
            following_offset = self._later[0].base_offset if self._later else self._log_end
        if following_offset == expected + header.last_offset_delta + 1:
            return expected
        possible = base_offset > expected and header.last_offset - self._segment.base_offset <= RELATIVE_OFFSET_MAX
        if following_offset is not None:
            return base_offset if possible and header.last_offset < following_offset else None
        if position + header.size < self._segment.size and possible:
            return base_offset  # damage follows: a gap before this one is likelier than damage twice
        if self._last is not None and (self._last.crc, self._last.size) == (header.crc, header.size):
            return base_offset if possible else None
        # The last batch. A follower of Apache Kafka has gaps, and its folder is likelier than a damaged offset. A mark
        # that is exactly where the log would end without the gap contradicts the offset.
        is_marked = expected + header.last_offset_delta + 1 == self._durable_to
        if possible and not (self._gapless and is_marked):  # mutant: marked-batch-in-place
            return base_offset
        return expected if self._gapless else None

    def _leader_epoch(self, header: Header, base_offset: int, following: Header | None) -> int:
        stored, known = header.leader_epoch, self._epochs.at(base_offset)
        before = _NO_EPOCH if self._last is None else self._last.leader_epoch
        if stored in (known, _NO_EPOCH) or self._epochs.begins_after(base_offset, stored):
            return stored
        if stored > self._epochs.latest:
            confirmed = not self._epochs.found if following is None else following.leader_epoch >= stored
            return stored if confirmed else max(known, before, 0)
        neighbours = (before, _NO_EPOCH if following is None else following.leader_epoch)
        # A log start that went back to before a crash lies before everything that the list knows.
        if known != _NO_EPOCH and known in neighbours:
            return known
        self.epochs_wrong = self.epochs_wrong or stored in neighbours
        return stored


def first_good_batch(segments: Sequence[Segment]) -> Header | None:
    """Return the header of the first batch in these segments, if it is good."""
    for segment in segments:
        was_open = segment.descriptor >= 0
        segment.open()
        header = SegmentWindow(segment).good_batch(0)
        if not was_open:
            segment.close()
        if segment.size:
            return header
    return None
