"""Record batches as the log sees them: the 61-byte header, never the records (Kafka's DefaultRecordBatch).

A log that an old Kafka began may hold messages of formats 0 and 1. The log treats each message as a batch. A plain
message is a batch of one record. A message that wraps compressed ones has the offset of the last of them. Only opening
it would reveal the first offset, so `base_offset` is the last one's too. Fields that such messages lack read -1: leader
epoch, producer, in format 0 the timestamp. Nothing is appended in these formats.

`headers` walks a segment from batch to batch with few reads. It stops where no complete batch follows, at the end of
the file or at damage; its caller decides which by the position it reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from crc32c import crc32c
from protocol_lib.records.header import CRC_START as CRC_START
from protocol_lib.records.header import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_AT
from protocol_lib.records.legacy import message_records, read_message
from protocol_lib.records.record import Record, read_records

from storage_svc.log.disk.files import Files

#: A header's thirteen fields as they are unpacked, in the order of `Header`.
RawHeader = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
unpack_header: Final = HEADER.unpack_from
# The fields that the broker writes over a producer's: base offset, (length,) partition leader epoch. Outside the CRC.
pack_prefix: Final = Struct(">qii").pack

_CHUNK: Final = 64 << 10
#: A look-up walks less than index.interval.bytes (4096) of small batches: one read of this size holds them all.
WALK_CHUNK: Final = 4 << 10
#: The largest batch after which more than the next header is read: after a large one another large one follows, as a
#: rule.
_SMALL: Final = 8 << 10
#: Offset, size, CRC, format, attributes of a message of format 0 or 1; then in format 1 the timestamp.
_MESSAGE: Final = Struct(">qiIbb")
_MESSAGE_TIMESTAMP: Final = Struct(">q").unpack_from
#: Bytes of a message without key and value, by format; from that many everything in a header can be read.
_MESSAGE_SIZES_MIN: Final = (26, 34)
MESSAGE_HEAD_SIZE: Final = 34
_MESSAGE_CRC_START: Final = 16
#: Codec and LogAppendTime; old attributes say nothing else.
_MESSAGE_ATTRIBUTES: Final = 0x0F


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
        """The offset of the batch's last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def size(self) -> int:
        """The bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length


def headers(files: Files, descriptor: int, start: int, end: int, chunk: int = _CHUNK) -> Iterator[tuple[int, Header]]:
    """Yield (position, header) of each complete batch between two positions of a segment."""
    position = origin = start
    step = chunk
    buffer = b""
    while position < end:
        at = position - origin
        if at + HEADER_SIZE > len(buffer):
            buffer = files.read(descriptor, min(step, end - position), position)
            origin, at = position, 0
        header: Header | None
        if at + HEADER_SIZE <= len(buffer) and buffer[at + MAGIC_AT] == MAGIC:
            header = Header._make(unpack_header(buffer, at))
            if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
                return
        elif (header := message_header(buffer, at)) is None:
            return
        size = LOG_OVERHEAD + header.batch_length
        if position + size > end:
            return
        yield position, header
        position += size
        step = chunk if size <= _SMALL else HEADER_SIZE


def message_header(buffer: bytes | memoryview, at: int = 0) -> Header | None:
    """Return the message of format 0 or 1 that begins there in the form of a batch; None if there is none."""
    room = len(buffer) - at
    if room < _MESSAGE_SIZES_MIN[0]:
        return None
    offset, length, crc, magic, attributes = _MESSAGE.unpack_from(buffer, at)
    if magic not in (0, 1) or room < _MESSAGE_SIZES_MIN[magic] or LOG_OVERHEAD + length < _MESSAGE_SIZES_MIN[magic]:
        return None
    (timestamp,) = _MESSAGE_TIMESTAMP(buffer, at + _MESSAGE.size) if magic else (-1,)
    attributes &= _MESSAGE_ATTRIBUTES
    return Header(offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


def whole_batches(data: bytes) -> Iterator[tuple[Header, memoryview]]:
    """Yield (header, bytes) of every batch of a run of whole ones; end where none follows any more."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        header: Header | None
        if len(view) - position >= HEADER_SIZE and view[position + MAGIC_AT] == MAGIC:
            header = Header._make(unpack_header(view, position))
        else:
            header = message_header(view, position)
        if header is None or header.size > len(view) - position or header.size < _MESSAGE_SIZES_MIN[0]:
            return
        yield header, view[position : position + header.size]
        position += header.size


def records_of(batch: bytes | memoryview) -> Iterator[Record]:
    """Yield the records of one whole batch, with their offsets in the log.

    Raises:
        DecodeError: they are malformed.
    """
    if batch[MAGIC_AT] == MAGIC:
        yield from read_records(batch)
    else:
        yield from message_records(read_message(batch)[0])


def intact(batch: memoryview) -> bool:
    """Return whether the CRC of one whole batch (header and records) is that of its bytes."""
    if batch[MAGIC_AT] != MAGIC:
        header = message_header(batch)
        return header is not None and crc32(batch[_MESSAGE_CRC_START:]) == header.crc
    stored: int = unpack_header(batch)[4]
    return bool(crc32c(batch[CRC_START:]) == stored)
