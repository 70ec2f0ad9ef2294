"""Record batches as the log sees them: the 61-byte header, never the records (kafka-semantics.md §1.2).

`headers` walks a segment from batch to batch with few reads; it stops where no complete batch follows, whether that
is the end of the file or damage, and its caller decides which by the position it reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c
from protocol_lib.records.header import HEADER, HEADER_SIZE, LOG_OVERHEAD

from storage_svc.log.files import Files

CRC_START: Final = 21
#: A header's thirteen fields as they are unpacked, in the order of `Header`.
RawHeader = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
unpack_header: Final = HEADER.unpack_from
# What the broker writes over a producer's batch: base offset, (length,) partition leader epoch. Outside the CRC.
pack_prefix: Final = Struct(">qii").pack

_CHUNK: Final = 64 << 10


class Header(NamedTuple):
    """A batch header's fields in the order of the bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.batch_length


def headers(files: Files, descriptor: int, start: int, end: int, chunk: int = _CHUNK) -> Iterator[tuple[int, Header]]:
    """(position, header) of each complete batch between two positions of a segment."""
    position = origin = start
    buffer = b""
    while position + HEADER_SIZE <= end:
        at = position - origin
        if at + HEADER_SIZE > len(buffer):
            buffer = files.read(descriptor, min(chunk, end - position), position)
            origin, at = position, 0
            if len(buffer) < HEADER_SIZE:
                return
        header = Header._make(unpack_header(buffer, at))
        size = LOG_OVERHEAD + header.batch_length
        if size < HEADER_SIZE or position + size > end:
            return
        yield position, header
        position += size


def intact(batch: memoryview) -> bool:
    """Whether the CRC of one whole batch (header and records) is that of its bytes."""
    stored: int = unpack_header(batch)[4]
    return bool(crc32c(batch[CRC_START:]) == stored)
