"""May this batch be appended? The checks of kafka-semantics.md §1.3, steps 4 to 18, in Kafka's order.

Only the 61-byte header and the CRC are looked at, except where a topic's settings need the records: compacted topics
refuse records without a key, and a topic's own compression type means rebuilding the batch.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c
from protocol_lib.errors import DecodeError, ErrorCode, ProtocolError
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.header import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)
from protocol_lib.records.record import read_records

from storage_svc.log.batches import CRC_START, unpack_header
from storage_svc.log.config import FOREVER, LogConfig

_CORRUPT_MESSAGE: Final = int(ErrorCode.CORRUPT_MESSAGE)
_INVALID_RECORD: Final = int(ErrorCode.INVALID_RECORD)
_INVALID_TIMESTAMP: Final = int(ErrorCode.INVALID_TIMESTAMP)
_INVALID_TXN_STATE: Final = int(ErrorCode.INVALID_TXN_STATE)
_MESSAGE_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
_RECORD_LIST_TOO_LARGE: Final = int(ErrorCode.RECORD_LIST_TOO_LARGE)
_UNSUPPORTED_COMPRESSION: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

# The smallest batch length field of any format, and where the magic byte of every format is.
_LENGTH_MIN: Final = 14
_MAGIC_AT: Final = 16
_CODEC_MAX: Final = 4
_SPECIAL: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
# A batch's record errors are for people: the first few say what is wrong.
_RECORD_ERRORS_MAX: Final = 20

RawHeader = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


class Refusal:
    """Why a batch is not appended."""

    __slots__ = ("error_code", "message", "record_errors")

    def __init__(
        self, error_code: int, message: str, record_errors: list[tuple[int, str | None]] | None = None
    ) -> None:
        self.error_code = error_code
        self.message = message
        self.record_errors = record_errors or []


class Rules:
    """What a topic's settings demand of a batch, in the form the checks use."""

    __slots__ = (
        "bytes_max",
        "codec",
        "keys_required",
        "log_append_time",
        "segment_bytes",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(self, config: LogConfig) -> None:
        self.bytes_max = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.keys_required = config.compacted
        self.log_append_time = config.log_append_time
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self.timestamp_before_max_ms = config.message_timestamp_before_max_ms
        self.codec = None if config.compression_type == "producer" else _CODECS[config.compression_type]


_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def admit(view: memoryview, rules: Rules, now_ms: int) -> RawHeader | Refusal:
    """The header of a client's batch that may be appended, or why it may not."""
    size = len(view)
    if size < HEADER_SIZE:
        return _misshapen(view)
    header: RawHeader = unpack_header(view)
    base, length, _, magic, crc, attributes, last_delta, first_ts, max_ts, producer_id, _, sequence, count = header
    if length + LOG_OVERHEAD != size or magic != MAGIC:
        return _misshapen(view)
    if base:
        return Refusal(_INVALID_RECORD, f"the base offset of a produced batch is 0, not {base}")
    if size > rules.bytes_max:
        return Refusal(_MESSAGE_TOO_LARGE, f"batch of {size} bytes, max.message.bytes is {rules.bytes_max}")
    if crc32c(view[CRC_START:]) != crc:
        return Refusal(_CORRUPT_MESSAGE, "the batch's CRC does not match its bytes")
    if attributes & CODEC_MASK > _CODEC_MAX:
        return Refusal(_UNSUPPORTED_COMPRESSION, f"unknown compression codec {attributes & CODEC_MASK}")
    if last_delta + 1 != count or count <= 0:
        return Refusal(_INVALID_RECORD, f"{count} records announced, last offset delta {last_delta}")
    if producer_id >= 0 and sequence < 0:
        return Refusal(_INVALID_RECORD, f"producer id {producer_id} without a sequence")
    if attributes & _SPECIAL and (refusal := _special(attributes, rules)):
        return refusal
    if not rules.log_append_time and (
        max_ts > now_ms + rules.timestamp_after_max_ms
        or (rules.timestamp_before_max_ms != FOREVER and 0 <= first_ts < now_ms - rules.timestamp_before_max_ms)
    ):
        return Refusal(_INVALID_TIMESTAMP, f"timestamps {first_ts} to {max_ts} are out of the accepted range")
    if rules.keys_required and (refusal := _keyless(view)):
        return refusal
    if size > rules.segment_bytes:
        return Refusal(_RECORD_LIST_TOO_LARGE, f"batch of {size} bytes, segment.bytes is {rules.segment_bytes}")
    return header


def _special(attributes: int, rules: Rules) -> Refusal | None:
    if attributes & CONTROL:
        return Refusal(_INVALID_RECORD, "clients may not write control batches")
    if attributes & LOG_APPEND_TIME and not rules.log_append_time:
        return Refusal(_INVALID_TIMESTAMP, "the producer may not set the timestamp type LogAppendTime")
    if attributes & TRANSACTIONAL:
        return Refusal(_INVALID_TXN_STATE, "transactions are not served")
    return None


def _misshapen(view: memoryview) -> Refusal:
    """What is wrong with bytes that are not exactly one batch of format v2."""
    size = len(view)
    if size < _MAGIC_AT + 1:
        return Refusal(_INVALID_RECORD, f"{size} bytes are not a record batch")
    length = int.from_bytes(view[8:12], "big", signed=True)
    magic = view[_MAGIC_AT]
    if length < _LENGTH_MIN or magic > MAGIC:
        return Refusal(_CORRUPT_MESSAGE, f"batch length {length}, magic {magic}")
    if LOG_OVERHEAD + length > size:
        return Refusal(_INVALID_RECORD, f"a batch of {LOG_OVERHEAD + length} bytes is cut off at {size}")
    if magic != MAGIC:
        return Refusal(_INVALID_RECORD, f"record format v{magic} where v2 must be")
    if LOG_OVERHEAD + length < HEADER_SIZE:
        return Refusal(_CORRUPT_MESSAGE, f"a batch of {LOG_OVERHEAD + length} bytes is shorter than its header")
    return Refusal(_INVALID_RECORD, "more than one batch for a partition")


def _keyless(view: memoryview) -> Refusal | None:
    """A refusal if a record has no key, as compaction needs one."""
    errors: list[tuple[int, str | None]] = []
    try:
        for index, record in enumerate(read_records(view)):
            if record.key is None and len(errors) < _RECORD_ERRORS_MAX:
                errors.append((index, "compacted topics need a key"))
    except DecodeError as error:
        return Refusal(_INVALID_RECORD, f"malformed records: {error}")
    return Refusal(_INVALID_RECORD, "a record without a key for a compacted topic", errors) if errors else None


def recompressed(view: memoryview, header: RawHeader, codec: Codec) -> bytes | Refusal:
    """The same batch with its records in another codec."""
    _, _, _, _, _, attributes, _, first_ts, _, producer_id, producer_epoch, sequence, _ = header
    try:
        batch = build_batch(
            list(read_records(view)),
            base_offset=0,
            base_timestamp=first_ts,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=bool(attributes & TRANSACTIONAL),
        )
    except ProtocolError as error:
        return Refusal(_CORRUPT_MESSAGE, f"cannot decompress the batch: {error}")
    return batch


def stamped(view: memoryview, header: RawHeader, now_ms: int) -> tuple[bytes, memoryview]:
    """The batch (header, records) with all its records appended at `now_ms`: attributes, maxTimestamp, CRC."""
    _, _, _, _, _, attributes, *rest = header
    last_delta, first_ts, _, *tail = rest
    fields = [attributes | LOG_APPEND_TIME, last_delta, first_ts, now_ms, *tail]
    head = bytearray(HEADER_SIZE)
    HEADER.pack_into(head, 0, *header[:4], 0, *fields)
    records = view[HEADER_SIZE:]
    crc = crc32c(records, crc32c(head[CRC_START:]))
    HEADER.pack_into(head, 0, *header[:4], crc, *fields)
    return bytes(head), records
