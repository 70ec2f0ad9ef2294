"""The header of a record batch, format version 2, and everything that does not need the records.

    0   base offset i64             outside the CRC: the broker writes it
    8   batch length i32            bytes after this field
    12  partition leader epoch i32  outside the CRC: the broker writes it
    16  magic i8 = 2
    17  crc u32                     CRC-32C of byte 21 to the end
    21  attributes i16              bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
    23  last offset delta i32       kept by compaction even when the last record is gone
    27  base timestamp i64          the delete horizon when bit 6 is set
    35  max timestamp i64
    43  producer id i64             -1: not idempotent
    51  producer epoch i16
    53  base sequence i32           goes on at 0 after 2^31-1
    57  records count i32
    61  records                     as one compressed block when there is a codec

Formats 0 and 1 have their magic at the same place, so `read_magic` works on any of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from crc32c import crc32c

from protocol_lib.errors import DecodeError
from protocol_lib.varint import Buffer

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
MAGIC: Final = 2
#: Bytes before the part that `batch length` counts.
LOG_OVERHEAD: Final = 12
BATCH_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
#: A record of no key, no value and no headers: seven fields of a byte each.
RECORD_SIZE_MIN: Final = 7

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1

#: Positions in a batch of format 2; the magic is there in every format.
MAGIC_AT: Final = 16
CRC_AT: Final = 17
#: The first byte that the CRC covers.
CRC_START: Final = 21
#: The low byte of the attributes, which has all bits that have a meaning.
ATTRIBUTES_AT: Final = 22
RECORDS_COUNT_AT: Final = 57
_LENGTH: Final = Struct(">i")
CRC: Final = Struct(">I")
_new: Final = object.__new__
_ASSIGNED: Final = Struct(">qii")


class UnsupportedMagic(DecodeError):  # noqa: N818 (Kafka's own term)
    """The bytes are of message format 0 or 1, or of none."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record format {magic}")
        self.magic = magic


@dataclass(slots=True)
class BatchHeader:
    """The 61 bytes at the start of a batch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
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
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_to_sequence(self.base_sequence, self.last_offset_delta)


def add_to_sequence(sequence: int, count: int) -> int:
    """Return the sequence number `count` records on; after 2^31-1 comes 0."""
    return (sequence + count) & SEQUENCE_MAX


def read_magic(buffer: Buffer, position: int = 0) -> int:
    if len(buffer) - position <= MAGIC_AT:
        raise DecodeError(f"a record batch of {len(buffer) - position} bytes")
    return buffer[position + MAGIC_AT]


def batch_size(buffer: Buffer, position: int = 0) -> int:
    """Return the size of the whole batch that starts at a position, whether or not they are all there."""
    if len(buffer) - position < LOG_OVERHEAD:
        raise DecodeError(f"a record batch of {len(buffer) - position} bytes")
    (length,) = _LENGTH.unpack_from(buffer, position + 8)
    if length < BATCH_LENGTH_MIN:
        raise DecodeError(f"a record batch of length {length}")
    return LOG_OVERHEAD + int(length)


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at a position; its batch may reach past the end of the buffer."""
    if len(buffer) - position < HEADER_SIZE:
        magic = read_magic(buffer, position)
        raise (
            DecodeError(f"a record batch of {len(buffer) - position} bytes")
            if magic == MAGIC
            else UnsupportedMagic(magic)
        )
    header: BatchHeader = _new(BatchHeader)  # the broker reads one a batch: this takes two thirds of the time
    (
        header.base_offset,
        header.batch_length,
        header.partition_leader_epoch,
        header.magic,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.records_count,
    ) = HEADER.unpack_from(buffer, position)
    if header.magic != MAGIC:
        raise UnsupportedMagic(header.magic & 0xFF)
    if header.batch_length < BATCH_LENGTH_MIN:
        raise DecodeError(f"a record batch of length {header.batch_length}")
    return header


def read_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch of a buffer of whole batches, with its bytes."""
    view = memoryview(buffer)
    position, end = 0, len(view)
    while position < end:
        header = read_batch_header(view, position)
        if header.size > end - position:
            raise DecodeError(f"a record batch of {header.size} bytes where {end - position} are left")
        yield header, view[position : position + header.size]
        position += header.size


def batch_crc(batch: Buffer) -> int:
    """Compute the CRC-32C of one whole batch."""
    return crc32c(memoryview(batch)[CRC_START:])


def crc_matches(batch: Buffer) -> bool:
    """Return whether one whole batch, and no byte more, has the CRC in its header."""
    (crc,) = CRC.unpack_from(batch, CRC_AT)
    said: int = crc
    return said == crc32c(memoryview(batch)[CRC_START:])


def assign(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Give a batch its place in the log: write the two fields outside the CRC in place."""
    (length,) = _LENGTH.unpack_from(batch, 8)
    _ASSIGNED.pack_into(batch, 0, base_offset, length, leader_epoch)
