"""The checks before a batch is appended: Kafka's, in Kafka's order (ProduceRequest, UnifiedLog, LogValidator).

`shape_refusal` has the checks of Kafka's request layer, which come first; `admit` has those of its log on a header.
Both read the 61 bytes and the CRC. `admit` has few, plain records checked by one call, others by record_checks.py.

docs/guarantees.md has the differences from Apache Kafka 4.3.0, with their reasons.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c
from protocol_lib.errors import ErrorCode
from protocol_lib.records.compression import Codec
from protocol_lib.records.header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    RECORD_SIZE_MIN,
)
from protocol_lib.records.walker import NOT_SOUND, largest_timestamp
from service_chassis.time_slices import TimeSlices

from storage_svc.log.batch.header import CRC_START, RawHeader, unpack_header
from storage_svc.log.batch.record_checks import checked, decompressed_bytes_max
from storage_svc.log.batch.room import QUICK_STEPS, Room
from storage_svc.log.batch.rules import RECORD_ERRORS_MAX, Refusal, Rules

#: The smallest batch length field of any format.
_LENGTH_MIN: Final = 14
_CODEC_MAX: Final = 4
#: The attributes that a rewritten header keeps.
_MEANINGFUL: Final = 0x7F
_SPECIAL: Final = LOG_APPEND_TIME | CONTROL
#: The first Produce version that may carry zstd (KIP-110).
ZSTD_SINCE_VERSION: Final = 7


def shape_refusal(view: memoryview, version: int) -> Refusal | None:
    """Return the reason why these bytes, from a Produce request of this version, are not exactly one batch of format
    v2.
    """
    size = len(view)
    if size < MAGIC_AT + 1:
        if size >= LOG_OVERHEAD and (fault := _frame_fault(view)) is not None:
            return fault
        return Refusal(ErrorCode.INVALID_RECORD, f"{size} bytes are not a record batch")
    if (fault := _frame_fault(view)) is not None:
        return fault
    batch_size = LOG_OVERHEAD + int.from_bytes(view[8:12], "big", signed=True)
    if batch_size > size:
        return Refusal(ErrorCode.INVALID_RECORD, f"a batch of {batch_size} bytes is cut off at {size}")
    magic = view[MAGIC_AT]
    if magic != MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD, f"record format v{magic} where v2 must be")
    if version < ZSTD_SINCE_VERSION and view[ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD:
        return Refusal(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {ZSTD_SINCE_VERSION} or later"
        )
    if size > batch_size:
        rest = view[batch_size:]
        if len(rest) >= LOG_OVERHEAD and (fault := _frame_fault(rest)) is not None:
            return fault
        return Refusal(ErrorCode.INVALID_RECORD, f"{len(rest)} bytes after the one batch that a partition may have")
    return None


def _frame_fault(view: memoryview) -> Refusal | None:
    """Return a fault that every record format has in these bytes, up to the magic; None without one."""
    length = int.from_bytes(view[8:12], "big", signed=True)
    if length < _LENGTH_MIN:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"batch length {length}")
    if len(view) > MAGIC_AT and view[MAGIC_AT] > MAGIC:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"unknown record format {view[MAGIC_AT]}")
    return None


def admit(
    view: memoryview, rules: Rules, now_ms: int, slices: TimeSlices | None = None, *, room: Room | None = None
) -> tuple[memoryview, RawHeader] | Refusal:
    """Return a client's batch as it is to be stored, with its header, or its refusal.

    In a thread, `slices` gives the event loop its turns. On the event loop, `room` is what may still be checked there.
    A batch that is more has the result TOO_SLOW: the caller then calls it again in a thread.
    """
    size = len(view)
    if size < HEADER_SIZE:
        return shape_refusal(view, ZSTD_SINCE_VERSION) or _short(view, rules)
    header: RawHeader = unpack_header(view)
    base, length, _, magic, crc, attributes, last_delta, first_ms, max_ms, producer_id, _, sequence, count = header
    if length + LOG_OVERHEAD != size or magic != MAGIC:
        refusal = shape_refusal(view, ZSTD_SINCE_VERSION)
        assert refusal is not None
        return refusal
    if base:
        return Refusal(ErrorCode.INVALID_RECORD, f"the base offset of a produced batch is 0, not {base}")
    if size > rules.bytes_max:
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes, max.message.bytes is {rules.bytes_max}")
    if crc32c(view[CRC_START:]) != crc:  # mutant: produce-crc
        return Refusal(ErrorCode.CORRUPT_MESSAGE, "the batch's CRC does not match its bytes")
    if attributes & CODEC_MASK > _CODEC_MAX:
        return Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {attributes & CODEC_MASK}")
    if last_delta + 1 != count or count <= 0:
        return Refusal(ErrorCode.INVALID_RECORD, f"{count} records announced, last offset delta {last_delta}")
    if producer_id >= 0 and sequence < 0:
        return Refusal(ErrorCode.INVALID_RECORD, f"producer id {producer_id} without a sequence")
    if attributes & _SPECIAL:
        return _special(attributes, count)
    if rules.opens_every or not rules.believes(header, now_ms):  # mutant: records-checked
        if not (  # few, plain records in which nothing is wrong, as nearly all small batches have
            rules.keeps_plain
            and count <= QUICK_STEPS
            and not attributes & CODEC_MASK
            and max_ms > NOT_SOUND  # mutant: no-header-says-not-sound
            and largest_timestamp(
                view,
                HEADER_SIZE,
                count,
                first_ms,
                now_ms,
                rules.timestamp_before_max_ms,
                rules.timestamp_after_max_ms,
                rules.keys_required,
                QUICK_STEPS,
            )
            == max_ms
        ):
            outcome = checked(view, header, rules, now_ms, slices, room)
            if isinstance(outcome, Refusal):
                return outcome
            view, header = outcome
            size = len(view)
    elif count * RECORD_SIZE_MIN > size - HEADER_SIZE and (overcount := _overcount(header, rules)) is not None:
        return overcount
    return (view, header) if size <= rules.segment_bytes else _too_large_for_segment(size, rules)


def _too_large_for_segment(size: int, rules: Rules) -> Refusal:
    detail = f"batch of {size} bytes, segment.bytes is {rules.segment_bytes}"
    return Refusal(ErrorCode.RECORD_LIST_TOO_LARGE, detail)


def _overcount(header: RawHeader, rules: Rules) -> Refusal | None:
    """Return the refusal of more records than the batch has room for, or than it may decompress to."""
    length, attributes, count = header[1], header[5], header[12]
    room = length + LOG_OVERHEAD - HEADER_SIZE
    if attributes & CODEC_MASK and room:
        room = decompressed_bytes_max(rules)
    if count * RECORD_SIZE_MIN <= room:  # mutant: record-count-bounded
        return None
    return Refusal(ErrorCode.INVALID_RECORD, f"{count} records announced in {room} bytes")


def _short(view: memoryview, rules: Rules) -> Refusal:
    """Return the refusal of a batch that is of format v2 by its shape, and shorter than the header."""
    if any(view[:8]):
        return Refusal(ErrorCode.INVALID_RECORD, "the base offset of a produced batch is not 0")
    if len(view) > rules.bytes_max:
        return Refusal(
            ErrorCode.MESSAGE_TOO_LARGE, f"batch of {len(view)} bytes, max.message.bytes is {rules.bytes_max}"
        )
    return Refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch of {len(view)} bytes is shorter than its header")


def _special(attributes: int, count: int) -> Refusal:
    if attributes & CONTROL:
        return Refusal(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    message = "the producer may not set the timestamp type LogAppendTime"
    errors: list[tuple[int, str | None]] = [(index, message) for index in range(min(count, RECORD_ERRORS_MAX))]
    return Refusal(ErrorCode.INVALID_TIMESTAMP, message, errors)


def stamped(view: memoryview, header: RawHeader, now_ms: int) -> tuple[bytes, memoryview]:
    """Return the batch (header, records) with all its records appended at `now_ms`: attributes, maxTimestamp, CRC."""
    _, _, _, _, _, attributes, *rest = header
    last_delta, first_ts, _, *tail = rest
    fields = [attributes & _MEANINGFUL | LOG_APPEND_TIME, last_delta, first_ts, now_ms, *tail]
    head = bytearray(HEADER_SIZE)
    HEADER.pack_into(head, 0, *header[:4], 0, *fields)
    records = view[HEADER_SIZE:]
    crc = crc32c(records, crc32c(head[CRC_START:]))
    HEADER.pack_into(head, 0, *header[:4], crc, *fields)
    return bytes(head), records
