"""Record batches, format version 2: the unit that is produced, stored and fetched. The header is in `header`.

    build_batch([Record(0, timestamp, b"key", b"value")], codec=Codec.ZSTD) -> bytes

A builder collects records as a producer does, one at a time, with offsets from 0 on.
"""

from collections.abc import Iterable, Sequence

from protocol_lib.errors import EncodeError
from protocol_lib.records.compression import Codec, compress
from protocol_lib.records.header import (
    BATCH_LENGTH_MIN,
    CONTROL,
    CRC,
    CRC_POSITION,
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
    "crc_matches",
    "read_batch_header",
    "read_batches",
    "read_magic",
]


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    base_timestamp: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
    leader_epoch: int = 0,
) -> bytes:
    """One batch of records, whose offsets are from `base_offset` on, in ascending order.

    With `log_append_time` readers give every record the largest timestamp among them.
    """
    listed = list(records)
    if not listed:
        raise EncodeError("a record batch without records")
    if base_timestamp is None:
        base_timestamp = listed[0].timestamp
    last_offset_delta = listed[-1].offset - base_offset
    if not len(listed) - 1 <= last_offset_delta <= SEQUENCE_MAX or listed[0].offset < base_offset:
        raise EncodeError(f"offsets {listed[0].offset} to {listed[-1].offset} in a batch of base offset {base_offset}")
    pieces: list[bytes] = []
    for record in listed:
        write_record(record, base_offset, base_timestamp, pieces)
    body = compress(codec, b"".join(pieces), level)
    batch = bytearray(HEADER_SIZE + len(body))
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        BATCH_LENGTH_MIN + len(body),
        leader_epoch,
        MAGIC,
        0,
        codec
        | (LOG_APPEND_TIME if log_append_time else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0),
        last_offset_delta,
        base_timestamp,
        max(record.timestamp for record in listed),
        producer_id,
        producer_epoch,
        base_sequence,
        len(listed),
    )
    batch[HEADER_SIZE:] = body
    CRC.pack_into(batch, CRC_POSITION, batch_crc(batch))
    return bytes(batch)


class BatchBuilder:
    """Collects the records of one batch, with offsets from 0 on, up to a size."""

    def __init__(self, *, codec: Codec = Codec.NONE, size_max: int = 2**31 - 1) -> None:
        self._codec = codec
        self._size_max = size_max
        self._records: list[Record] = []
        #: bytes of the batch so far, before compression
        self.size = HEADER_SIZE

    def __len__(self) -> int:
        return len(self._records)

    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
    ) -> Record | None:
        """Add a record; None when it does not fit any more. The first one always does."""
        record = Record(len(self._records), timestamp, key, value, tuple(headers))
        base_timestamp = self._records[0].timestamp if self._records else timestamp
        pieces: list[bytes] = []
        write_record(record, 0, base_timestamp, pieces)
        size = self.size + sum(map(len, pieces))
        if self._records and size > self._size_max:
            return None
        self._records.append(record)
        self.size = size
        return record

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytes:
        return build_batch(
            self._records,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
