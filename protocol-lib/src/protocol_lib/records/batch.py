"""Record batches, format version 2: the unit that is produced, stored and fetched. The header is in `header`.

    build_batch([Record(0, timestamp, b"key", b"value")], codec=Codec.ZSTD) -> bytes

A builder collects records as a producer does, one at a time, with offsets from 0 on.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from crc32c import crc32c

from protocol_lib.errors import EncodeError
from protocol_lib.records.compression import Codec, compress
from protocol_lib.records.header import (
    BATCH_LENGTH_MIN,
    CONTROL,
    CRC,
    CRC_AT,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    SEQUENCE_MAX,
    TRANSACTIONAL,
    BatchHeader,
    UnsupportedMagic,
    add_to_sequence,
    assign,
    batch_crc,
    batch_size,
    crc_matches,
    read_batch_header,
    read_batches,
    read_magic,
)
from protocol_lib.records.record import Header, Record, write_record
from protocol_lib.varint import Buffer, write_signed

__all__ = [
    "HEADER",
    "HEADER_SIZE",
    "MAGIC",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "SEQUENCE_MAX",
    "BatchBuilder",
    "BatchHeader",
    "UnsupportedMagic",
    "add_to_sequence",
    "assign",
    "batch_crc",
    "batch_size",
    "build_batch",
    "build_batch_of_tails",
    "build_empty_batch",
    "crc_matches",
    "read_batch_header",
    "read_batches",
    "read_magic",
]


_NO_TIMESTAMP: Final = -1
#: A record's attributes and timestamp delta.
_AT_BASE_TIME: Final = b"\0\0"
#: Most pieces of records, two for each, that wait to be joined.
_PIECES_MAX: Final = 1024


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    last_offset: int | None = None,
    base_timestamp: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
    delete_horizon_ms: int | None = None,
    leader_epoch: int = 0,
) -> bytes:
    """Build one batch of records with ascending offsets, from `base_offset` on.

    `last_offset` is the end of the batch when compaction has removed its last records. With `log_append_time` readers
    give every record the largest timestamp among them. `delete_horizon_ms` takes the place of the base timestamp: the
    time until which tombstones and control records stay (KIP-534). `base_timestamp` defaults to the first record's.
    The records are read once, so that an iterator needs no memory for all of them.
    """
    body = bytearray()
    pieces: list[bytes] = []
    count, first_offset, end_offset, max_timestamp = 0, 0, 0, 0
    for record in records:
        if not count:
            first_offset, max_timestamp = record.offset, record.timestamp
            if delete_horizon_ms is not None:
                base_timestamp = delete_horizon_ms
            elif base_timestamp is None:
                base_timestamp = record.timestamp
        elif record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        write_record(record, base_offset, base_timestamp or 0, pieces)
        end_offset = record.offset
        count += 1
        if len(pieces) > _PIECES_MAX:
            body += b"".join(pieces)
            pieces.clear()
    if not count:
        raise EncodeError("a record batch without records")
    if not count - 1 <= end_offset - base_offset <= SEQUENCE_MAX or first_offset < base_offset:
        raise EncodeError(f"offsets {first_offset} to {end_offset} in a batch of base offset {base_offset}")
    body += b"".join(pieces)
    attributes = (
        codec
        | (LOG_APPEND_TIME if log_append_time else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    return _sealed(
        body if codec is Codec.NONE else compress(codec, body, level),
        base_offset=base_offset,
        last_offset=end_offset if last_offset is None else last_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        base_timestamp=base_timestamp or 0,
        max_timestamp=max_timestamp,
        producer=(producer_id, producer_epoch, base_sequence),
        records_count=count,
    )


def build_batch_of_tails(tails: Sequence[bytes], timestamp: int) -> bytes:
    """Build one uncompressed batch of records of this time, with offsets from 0 on, out of `write_tail`'s bytes."""
    if not tails:
        raise EncodeError("a record batch without records")
    pieces: list[bytes] = []
    for offset, tail in enumerate(tails):
        delta = write_signed(offset)
        pieces += write_signed(2 + len(delta) + len(tail)), _AT_BASE_TIME, delta, tail
    return _sealed(
        b"".join(pieces),
        base_offset=0,
        last_offset=len(tails) - 1,
        leader_epoch=0,
        attributes=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer=(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE),
        records_count=len(tails),
    )


def build_empty_batch(emptied: BatchHeader) -> bytes:
    """Build the batch that compaction leaves when no record stays but the offsets or the producer's sequence matter.

    Offsets, producer fields, the largest timestamp and its type, transactional and control bits stay; there is no base
    timestamp any more (Kafka's DefaultRecordBatch.writeEmptyHeader).
    """
    return _sealed(
        b"",
        base_offset=emptied.base_offset,
        last_offset=emptied.last_offset,
        leader_epoch=emptied.partition_leader_epoch,
        attributes=emptied.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
        base_timestamp=_NO_TIMESTAMP,
        max_timestamp=emptied.max_timestamp,
        producer=(emptied.producer_id, emptied.producer_epoch, emptied.base_sequence),
        records_count=0,
    )


def _sealed(
    body: Buffer,
    *,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer: tuple[int, int, int],
    records_count: int,
) -> bytes:
    """Return the batch of a body as it goes onto the wire, with its header and its CRC."""
    if not records_count - 1 <= last_offset - base_offset <= SEQUENCE_MAX:
        raise EncodeError(f"{records_count} records in a batch of offsets {base_offset} to {last_offset}")
    header = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        header,
        0,
        base_offset,
        BATCH_LENGTH_MIN + len(body),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        *producer,
        records_count,
    )
    CRC.pack_into(header, CRC_AT, crc32c(body, batch_crc(header)))
    return b"".join((header, body))


class BatchBuilder:
    """A batch under construction, with offsets from 0 on, up to a size. Each record is written once, when it is added;
    `records` are those added so far."""

    def __init__(self, *, codec: Codec = Codec.NONE, level: int | None = None, size_max: int = 2**31 - 1) -> None:
        self._codec = codec
        self._level = level
        self._size_max = size_max
        self._pieces: list[bytes] = []
        self.records: list[Record] = []
        #: bytes of the batch so far, before compression
        self.size = HEADER_SIZE

    def __len__(self) -> int:
        return len(self.records)

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
    ) -> Record | None:
        """Add a record; None when it does not fit any more. The first one always does."""
        record = Record(len(self.records), timestamp, key, value, tuple(headers))
        base_timestamp = self.records[0].timestamp if self.records else timestamp
        pieces: list[bytes] = []
        write_record(record, 0, base_timestamp, pieces)
        written = b"".join(pieces)
        if self.records and self.size + len(written) > self._size_max:
            return None
        self._pieces.append(written)
        self.records.append(record)
        self.size += len(written)
        return record

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytes:
        if not self.records:
            raise EncodeError("a record batch without records")
        return _sealed(
            compress(self._codec, b"".join(self._pieces), self._level),
            base_offset=0,
            last_offset=len(self.records) - 1,
            leader_epoch=0,
            attributes=self._codec | (TRANSACTIONAL if transactional else 0),
            base_timestamp=self.records[0].timestamp,
            max_timestamp=max(record.timestamp for record in self.records),
            producer=(producer_id, producer_epoch, base_sequence),
            records_count=len(self.records),
        )
