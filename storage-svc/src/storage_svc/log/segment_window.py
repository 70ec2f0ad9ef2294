"""A segment's bytes as recovery reads them: in large pieces, and trusting nothing they say.

A batch is good if it lies in the segment as a whole, its header makes sense at that place, and its CRC is right.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c
from protocol_lib.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC

from storage_svc.log.batches import CRC_START, Header, unpack_header
from storage_svc.log.segment import Segment

_MAGIC_AT: Final = 16
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
# Larger pieces come from fresh pages each time, which costs more than the calls that they save.
_STEP: Final = 96 << 10


class SegmentWindow:
    """A reader of one segment, front to back. What it returns a view of is there until the window moves on."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._start = 0
        self._bytes = memoryview(b"")

    def _move_to(self, position: int, length: int) -> int:
        """Make `length` bytes there visible, fewer at the end of the segment; where in the window they begin."""
        at = position - self._start
        if at < 0 or at + length > len(self._bytes):
            length = max(0, min(length, self._segment.size - position))
            if at < 0 or at + length > len(self._bytes):
                self._bytes = memoryview(self._segment.read(position, max(length, _STEP)))
                self._start, at = position, 0
        return at

    def _view(self, position: int, length: int) -> memoryview:
        """The bytes there; fewer at the end of the segment."""
        length = max(0, min(length, self._segment.size - position))
        at = self._move_to(position, length)
        return self._bytes[at : at + length]

    def batch(self, position: int, header: Header) -> memoryview:
        """The bytes of a good batch, until the window moves on."""
        return self._view(position, header.size)

    def good_batch(self, position: int, offset_min: int) -> Header | None:
        """The header of the batch at a position, if a good one with no lower offset than this is there."""
        room = self._segment.size - position
        if room < HEADER_SIZE:
            return None
        at = self._move_to(position, HEADER_SIZE)
        fields = unpack_header(self._bytes, at)
        base_offset, size, last_delta = fields[0], fields[1] + LOG_OVERHEAD, fields[6]
        if (
            fields[3] != MAGIC
            or not HEADER_SIZE <= size <= room
            or base_offset < offset_min
            or last_delta < 0
            or base_offset + last_delta - self._segment.base_offset > _RELATIVE_OFFSET_MAX
        ):
            return None
        if at + size > len(self._bytes):
            at = self._move_to(position, size)
        return Header._make(fields) if crc32c(self._bytes[at + CRC_START : at + size]) == fields[4] else None

    def good_batch_follows(self, position: int, offset_min: int, batch_bytes_max: int) -> bool:
        """Whether behind a bad batch at this position a good one is found, as far as the bad one may reach."""
        head = self._view(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return False
        behind = position + LOG_OVERHEAD + int.from_bytes(head[8:12], "big", signed=True)
        if behind > position and self.good_batch(behind, offset_min):
            return True
        # The length may be what is damaged: look for the next batch byte by byte.
        search = bytes(self._view(position + 1, LOG_OVERHEAD + batch_bytes_max + HEADER_SIZE))
        magic_at = search.find(MAGIC, _MAGIC_AT)
        while magic_at >= 0:
            if self.good_batch(position + 1 + magic_at - _MAGIC_AT, offset_min):
                return True
            magic_at = search.find(MAGIC, magic_at + 1)
        return False
