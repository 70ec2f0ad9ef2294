"""A segment's bytes as recovery reads them: in large pieces, and trusting nothing they say.

A batch is good if it lies in the segment as a whole and its CRC is right. Base offset and leader epoch lie outside the
CRC: whether they make sense at that place is segment_scan.py's to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c
from protocol_lib.records.header import HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_AT

from storage_svc.log.batch.header import CRC_START, MESSAGE_HEAD_SIZE, Header, intact, message_header, unpack_header
from storage_svc.log.segment.segment import Segment

RELATIVE_OFFSET_MAX: Final = 2**31 - 1

# Larger pieces come from fresh pages each time, which costs more than the calls that they save.
_STEP: Final = 96 << 10
_SEARCH_STEP: Final = 1 << 20
#: The unit that a disk writes or does not write as a whole; bytes that were never written read as zeros.
_SECTOR: Final = 512
_NO_SECTOR: Final = bytes(_SECTOR)
#: The number of leading zeros with which no batch begins: its offset is zero only where a log begins.
_ZEROS_MIN: Final = 9
#: The bytes from the first to the magic byte.
_SEARCHED: Final = 17


class SegmentWindow:
    """A reader of one segment, front to back. A returned view is valid until the window moves on."""

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

    def view(self, position: int, length: int) -> memoryview:
        """Return the bytes there; fewer at the end of the segment."""
        length = max(0, min(length, self._segment.size - position))
        at = self._move_to(position, length)
        return self._bytes[at : at + length]

    def batch(self, position: int, header: Header) -> memoryview:
        """Return the bytes of a good batch."""
        return self.view(position, header.size)

    def good_batch(self, position: int) -> Header | None:
        """Return the header of the batch at a position, if a good one is there."""
        room = self._segment.size - position
        at = self._move_to(position, HEADER_SIZE)
        if room < HEADER_SIZE or self._bytes[at + MAGIC_AT] != MAGIC:
            return self._good_message(position)
        fields = unpack_header(self._bytes, at)
        size = fields[1] + LOG_OVERHEAD
        if not HEADER_SIZE <= size <= room or fields[6] < 0:
            return None
        if at + size > len(self._bytes):
            at = self._move_to(position, size)
        # mutant: recovery-crc
        return Header._make(fields) if crc32c(self._bytes[at + CRC_START : at + size]) == fields[4] else None

    def _good_message(self, position: int) -> Header | None:
        """Return the header of a message of format 0 or 1 at a position, if a good one is there."""
        header = message_header(self.view(position, MESSAGE_HEAD_SIZE))
        if header is None or header.base_offset < 0:
            return None
        message = self.view(position, header.size)
        return header if len(message) == header.size and intact(message) else None

    # -- after a bad batch --------------------------------------------------------------------------------------------

    def next_good(self, position: int, offset_min: int) -> int | None:
        """Return where, after a bad batch at this position, the next good one begins, with no lower offset than this.

        The bad one's length is believed if it leads to a good batch, or to the end. Otherwise the length itself is
        damaged, and the rest of the segment is searched. A good batch may also be found inside a record (a topic of
        copied batches). So one that is followed by another, or ends where the segment does, is preferred.
        """
        head = self.view(position, LOG_OVERHEAD)
        next_position = position + LOG_OVERHEAD + int.from_bytes(head[8:12], "big", signed=True)
        if next_position == self._segment.size:
            return None
        if next_position > position and self._belongs(next_position, offset_min):
            return next_position
        alone = None
        for candidate in self._candidates(position + 1, offset_min):
            header = self._belongs(candidate, offset_min)
            if header is None:
                continue
            next_position = candidate + header.size
            if next_position == self._segment.size or self.good_batch(next_position) is not None:
                return candidate
            alone = candidate if alone is None else alone
        return alone

    def _belongs(self, position: int, offset_min: int) -> Header | None:
        header = self.good_batch(position)
        if header is None or not 0 <= header.base_offset - offset_min <= RELATIVE_OFFSET_MAX:
            return None
        return header

    def _candidates(self, start: int, offset_min: int) -> Iterator[int]:
        """Yield the positions where a header of format v2 with such an offset may begin."""
        upper = offset_min >> 32
        high = b"|".join(re.escape(each.to_bytes(4, "big")) for each in (upper, upper + 1))
        shape = re.compile(b"(?s)(?=(?:" + high + rb").{4}[\x00-\x7f].{7}\x02)")
        for step in range(start, self._segment.size, _SEARCH_STEP):
            piece = self._segment.read(step, _SEARCH_STEP + _SEARCHED - 1)
            for match in shape.finditer(piece):
                if match.start() < _SEARCH_STEP:
                    yield step + match.start()

    def never_written(self, start: int, end: int) -> bool:
        """Return whether bytes between two positions look as if a sector never came to the disk: a power cut, not
        damage.

        The last sector of an older segment, which is not a whole one, is not checked: zeros there are damage. Under
        `flush.policy=group` a power cut leaves none, as the segment is synced before the next is begun. Under `os`,
        which promises nothing, they are copied aside and the batches after them stay.
        """
        boundary = -(-start // _SECTOR) * _SECTOR
        # Up to the sector's end, though another batch may begin in it: if the start of a sector is missing, so is the
        # rest.
        # mutant: zeros-up-to-boundary
        if boundary - start >= _ZEROS_MIN and not any(self.view(start, boundary - start)):
            return True
        # The last sector may go beyond the end: a good batch there begins with zeros too.
        # mutant: hole-ends-in-sector
        return any(self.view(at, _SECTOR) == _NO_SECTOR for at in range(boundary, end, _SECTOR))
