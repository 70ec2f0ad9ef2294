"""The second check of a produced batch, if its records must be opened: one by one, and rewritten where Kafka would.

Two kinds of batches are opened. First those of topics whose settings speak of records: keys under compaction, a bound
on how old records may be, a `compression.type` that differs from the batch's. Second those whose header cannot be right
or is out of bounds. They get Kafka's checks of records (LogValidator, DefaultRecord). The header of every other batch
is believed, since walking the records costs a hundred times as much as the rest of an append.

As little as possible is rewritten: a wrong maxTimestamp in the header, or the compressed block when the codec differs.
Records are rewritten one by one only where inner offsets are not 0, 1, 2, … under compression, as old clients wrote
them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crc32c import crc32c
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec, DecompressedTooLarge, compress, decompress
from protocol_lib.records.header import CODEC_MASK, HEADER, HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL
from protocol_lib.records.record import Record, TimestampOverflow, read_records, walk_records
from service_chassis.time_slices import TimeSlices

from storage_svc.log.batch.header import CRC_START, RawHeader, unpack_header
from storage_svc.log.batch.rules import RECORD_ERRORS_MAX, Refusal, Rules
from storage_svc.log.config import FOREVER

#: A batch may decompress to ten times `max.message.bytes`, or to this, whichever is more.
_DECOMPRESSED_BYTES_MIN: Final = 16 << 20
_NO_TIMESTAMP: Final = -1


#: A batch of more records, or of more bytes once it is decompressed, is opened in a thread.
SLOW_RECORDS: Final = 500
SLOW_BYTES: Final = 128 << 10
#: The same for a batch that is compressed again, which takes ten times as long.
SLOW_BYTES_RECOMPRESSED: Final = 8 << 10
#: Records between two readings of the clock.
_RECORDS_A_TURN: Final = 64


class _Walked(NamedTuple):
    """A summary of a batch's records."""

    max_timestamp: int
    #: Whether the records' offsets are 0, 1, 2, …
    in_order: bool


class _MalformedRecordError(Exception):
    def __init__(self, index: int, fault: str) -> None:
        super().__init__(fault)
        self.index = index


def decompressed_bytes_max(rules: Rules) -> int:
    """Return the most bytes that the records of a batch may decompress to."""
    return max(_DECOMPRESSED_BYTES_MIN, 10 * rules.bytes_max)


def is_slow(view: memoryview, header: RawHeader, rules: Rules) -> bool:
    """Return whether opening a batch would hold up the event loop, at the cost of decompressing SLOW_BYTES at most."""
    if header[12] > SLOW_RECORDS or len(view) > SLOW_BYTES:
        return True
    codec = header[5] & CODEC_MASK
    most = SLOW_BYTES if rules.codec in (None, codec) else SLOW_BYTES_RECOMPRESSED
    if codec == Codec.NONE:
        return len(view) > most
    try:
        decompress(codec, view[HEADER_SIZE:], most)
    except DecompressedTooLarge:
        return True  # mutant: slow-to-open
    except DecodeError:  # opening it ends there as well
        return False
    return False


def opened(
    view: memoryview, header: RawHeader, rules: Rules, now_ms: int, slices: TimeSlices
) -> tuple[memoryview, RawHeader] | Refusal:
    """Return the batch as it is to be stored, after checking its records, or its refusal."""
    codec = Codec(header[5] & CODEC_MASK)
    limit = decompressed_bytes_max(rules)
    try:
        body = bytes(decompress(codec, view[HEADER_SIZE:], limit))
    except DecompressedTooLarge as error:
        return Refusal(ErrorCode.INVALID_RECORD, str(error))
    except DecodeError as error:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"the records cannot be decompressed: {error}")
    try:
        walked = _walk(body, header, rules, now_ms, slices)
    except _MalformedRecordError as error:
        fault = f"malformed record: {error}"
        return Refusal(ErrorCode.INVALID_RECORD, fault, [(error.index, fault)] if error.index < header[12] else None)
    if isinstance(walked, Refusal):
        return walked
    target = codec if rules.codec is None else rules.codec
    rewritten: bytes | bytearray
    if (target or codec) and not walked.in_order:
        rewritten = _renumbered(view, header, target, rules.level, limit)
    elif target != codec:
        rewritten = _with_records(header, target, compress(target, body, rules.level), walked.max_timestamp)
    elif walked.max_timestamp != header[8] and not rules.log_append_time:
        rewritten = _with_records(header, codec, view[HEADER_SIZE:], walked.max_timestamp)
    else:
        return view, header
    if len(rewritten) > rules.bytes_max:
        fault = f"batch of {len(rewritten)} bytes after recompression, max.message.bytes is {rules.bytes_max}"
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, fault)
    return memoryview(rewritten), unpack_header(rewritten)


def _walk(body: bytes, header: RawHeader, rules: Rules, now_ms: int, slices: TimeSlices) -> _Walked | Refusal:
    """Check every record's shape, key and timestamp; return a summary of them, or the refusal.

    Raises:
        _MalformedRecordError: a record contradicts its lengths.
    """
    base_timestamp, count = header[7], header[12]
    earliest, latest = -(2**63), 2**63
    if not rules.log_append_time:
        latest = now_ms + rules.timestamp_after_max_ms
        if rules.timestamp_before_max_ms != FOREVER:
            earliest = now_ms - rules.timestamp_before_max_ms
    keyless: list[tuple[int, str | None]] = []
    mistimed: list[tuple[int, str | None]] = []
    max_timestamp, in_order = _NO_TIMESTAMP, True
    index = 0
    try:
        for record in walk_records(body, count, 0, base_timestamp):
            timestamp = record.timestamp
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if record.offset != index:
                in_order = False
            if rules.keys_required and record.key is None:
                keyless.append((index, "a compacted topic takes no record without a key"))
            elif timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest:
                mistimed.append((index, f"timestamp {timestamp} is not between {earliest} and {latest}"))
            if len(keyless) + len(mistimed) >= RECORD_ERRORS_MAX:
                break
            index += 1
            if index % _RECORDS_A_TURN == 0:
                slices.turn()
    except TimestampOverflow as overflow:
        mistimed.append((index, str(overflow)))
    except DecodeError as error:
        raise _MalformedRecordError(index, str(error)) from error
    if mistimed:  # wins over records without a key, as in Kafka
        errors = sorted(keyless + mistimed)
        return Refusal(
            ErrorCode.INVALID_TIMESTAMP, f"timestamps out of bounds, or keys missing, in {len(errors)} records", errors
        )
    if keyless:
        return Refusal(ErrorCode.INVALID_RECORD, f"{len(keyless)} records without a key for a compacted topic", keyless)
    return _Walked(max_timestamp, in_order)


def _with_records(header: RawHeader, codec: Codec, records: bytes | memoryview, max_timestamp: int) -> bytearray:
    """Return the batch with these bytes as its records; the fields that describe their order stay."""
    attributes = header[5] & ~CODEC_MASK | codec
    batch = bytearray(HEADER_SIZE + len(records))
    batch[HEADER_SIZE:] = records
    length = len(batch) - LOG_OVERHEAD
    fields = (attributes, *header[6:8], max_timestamp, *header[9:])
    HEADER.pack_into(batch, 0, header[0], length, header[2], header[3], 0, *fields)
    crc = crc32c(memoryview(batch)[CRC_START:])
    HEADER.pack_into(batch, 0, header[0], length, header[2], header[3], crc, *fields)
    return batch


def _renumbered(view: memoryview, header: RawHeader, codec: Codec, level: int | None, limit: int) -> bytes:
    """Return the batch with its records' offsets from 0 on."""
    records = [
        Record(index, record.timestamp, record.key, record.value, record.headers)
        for index, record in enumerate(read_records(view, limit=limit))
    ]
    return build_batch(
        records,
        base_timestamp=header[7],
        codec=codec,
        level=level,
        producer_id=header[9],
        producer_epoch=header[10],
        base_sequence=header[11],
        transactional=bool(header[5] & TRANSACTIONAL),
    )
