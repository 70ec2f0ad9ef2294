"""A segment's bytes as recovery reads them: in large pieces, and trusting nothing they say.

A batch is good if it lies in the segment as a whole, its header makes sense at that place, and its CRC is right.
"""

from __future__ import annotations

from typing import Final

from protocol_lib.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC

from storage_svc.log.batches import Header, intact, unpack_header
from storage_svc.log.segment import Segment

_MAGIC_AT: Final = 16
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_STEP: Final = 1 << 20


class SegmentWindow:
    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._start = 0
        self._bytes = b""

    def _view(self, position: int, length: int) -> memoryview:
        """The bytes there; fewer at the end of the segment."""
        length = max(0, min(length, self._segment.size - position))
        at = position - self._start
        if at < 0 or at + length > len(self._bytes):
            self._bytes = self._segment.read(position, max(length, _STEP))
            self._start, at = position, 0
        return memoryview(self._bytes)[at : at + length]

    def good_batch(self, position: int, offset_min: int) -> Header | None:
        """The header of the batch at a position, if a good one with no lower offset than this is there."""
        head = self._view(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return None
        header = Header._make(unpack_header(head))
        base_offset = self._segment.base_offset
        if (
            header.magic != MAGIC
            or not HEADER_SIZE <= header.size <= self._segment.size - position
            or header.base_offset < offset_min
            or header.last_offset_delta < 0
            or header.last_offset - base_offset > _RELATIVE_OFFSET_MAX
        ):
            return None
        return header if intact(self._view(position, header.size)) else None

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
