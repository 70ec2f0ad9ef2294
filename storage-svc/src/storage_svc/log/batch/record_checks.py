"""The second check of a produced batch: its records, one by one, as Kafka's LogValidator and DefaultRecord do it.

By default every batch is opened. With `millrace.record.validation=header` a batch is if its header cannot be right or
is out of bounds, or if its topic's settings speak of records. These are keys under compaction, a bound on how old
records may be, and a `compression.type` that differs from the batch's. Plain records are walked where they lie.

As little as possible is rewritten: a wrong maxTimestamp in the header, or the compressed block when the codec differs.
Records are rewritten one by one, in a thread, only where their offsets are not 0, 1, 2, …, as old clients wrote them.
Consumers pass over a record whose offset is below that of the one before, and compaction gives its log up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from crc32c import crc32c
from protocol_lib.errors import DecodeError, ErrorCode, MalformedRecord, TimestampOverflow
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import DECOMPRESSED_BYTES_MAX, Codec, DecompressedTooLarge, compress, decompress
from protocol_lib.records.header import CODEC_MASK, DELETE_HORIZON, HEADER, HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL
from protocol_lib.records.lz4_frame import for_java
from protocol_lib.records.record import Record, read_records
from protocol_lib.records.walker import RecordWalker
from protocol_lib.varint import Buffer
from service_chassis.time_slices import TimeSlices

from storage_svc.log.batch.header import CRC_START, RawHeader, unpack_header
from storage_svc.log.batch.room import BATCH_BYTES, RECOMPRESSED_BATCH_BYTES, STEPS, STEPS_A_SLICE, Room
from storage_svc.log.batch.rules import Refusal, Rules

#: The result for a batch that would hold up the event loop if it were opened: no refusal of it.
TOO_SLOW: Final = Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch was not opened")

#: A batch may decompress to ten times `max.message.bytes`, or to this, whichever is more, as far as readers go.
_DECOMPRESSED_BYTES_MIN: Final = 16 << 20
#: Records that are rewritten between two readings of the clock.
_REWRITTEN_A_SLICE: Final = 250
_TIME_MIN: Final = -(2**63)
_TIME_MAX: Final = 2**63 - 1
#: Attributes that a rewritten header keeps, apart from the codec.
_ATTRIBUTES: Final = TRANSACTIONAL | DELETE_HORIZON


def decompressed_bytes_max(rules: Rules) -> int:
    """Return the most bytes that the records of a batch may decompress to."""
    # mutant: readers-limit
    return min(max(_DECOMPRESSED_BYTES_MIN, 10 * rules.bytes_max), DECOMPRESSED_BYTES_MAX)


def checked(
    view: memoryview, header: RawHeader, rules: Rules, now_ms: int, slices: TimeSlices | None, room: Room | None
) -> tuple[memoryview, RawHeader] | Refusal:
    """Return the batch as it is to be stored, after checking its records, or its refusal.

    With a `room`, which is the event loop's, it may be TOO_SLOW.
    """
    codec = header[5] & CODEC_MASK
    target = codec if rules.codec is None else rules.codec
    if codec or target:
        return _checked_stream(view, header, rules, now_ms, target, slices, room)
    body = view[HEADER_SIZE:]
    if room is None:
        walked = _walked(body, header, rules, now_ms, slices or TimeSlices())
    elif room.seconds <= 0 or header[12] > STEPS:
        return TOO_SLOW
    else:
        started = time.perf_counter()
        walked = _walked(body, header, rules, now_ms, None)
        room.note(started)
    if isinstance(walked, Refusal):
        return walked
    if not walked.in_order:  # mutant: offsets-of-plain-batch
        return TOO_SLOW if room is not None else _renumbered(view, header, Codec.NONE, rules, slices or TimeSlices())
    if walked.max_timestamp == header[8] or rules.log_append_time:  # mutant: largest-timestamp-of-plain-batch
        return view, header
    rewritten = _with_records(header, codec, body, walked.max_timestamp)
    return memoryview(rewritten), unpack_header(rewritten)


def _checked_stream(
    view: memoryview,
    header: RawHeader,
    rules: Rules,
    now_ms: int,
    target: int,
    slices: TimeSlices | None,
    room: Room | None,
) -> tuple[memoryview, RawHeader] | Refusal:
    """Return a batch that is compressed, or is to be stored in the codec `target`, or its refusal."""
    if room is None:
        return _opened(view, header, rules, now_ms, target, slices or TimeSlices(), None)
    most = BATCH_BYTES if target == header[5] & CODEC_MASK else RECOMPRESSED_BATCH_BYTES
    if room.seconds <= 0 or header[12] > STEPS or len(view) > most:
        return TOO_SLOW
    started = time.perf_counter()
    outcome = _opened(view, header, rules, now_ms, target, None, most)
    room.note(started)
    return outcome


def _opened(
    view: memoryview,
    header: RawHeader,
    rules: Rules,
    now_ms: int,
    target: int,
    slices: TimeSlices | None,
    quick_bytes: int | None,
) -> tuple[memoryview, RawHeader] | Refusal:
    """Return such a batch after decompression.

    Without `slices`, which a thread has, it is TOO_SLOW if it decompresses to more than `quick_bytes`.
    """
    codec = header[5] & CODEC_MASK
    body: Buffer = view[HEADER_SIZE:]
    if codec:
        decompressed = _decompressed(codec, body, rules, quick_bytes)
        if isinstance(decompressed, Refusal):
            return decompressed
        body = decompressed
    elif len(body) > DECOMPRESSED_BYTES_MAX:
        fault = f"{len(body)} bytes of records are too many to be compressed and read again"
        return Refusal(ErrorCode.INVALID_RECORD, fault)
    walked = _walked(body, header, rules, now_ms, slices)
    if isinstance(walked, Refusal):
        return walked
    if not walked.in_order:
        # mutant: renumbered-off-loop
        return TOO_SLOW if slices is None else _renumbered(view, header, Codec(target), rules, slices)
    if target != codec:
        block = compress(Codec(target), body, rules.level)
        rewritten = _with_records(header, target, block, walked.max_timestamp)
    elif walked.max_timestamp != header[8] and not rules.log_append_time:  # mutant: largest-timestamp-made-right
        rewritten = _with_records(header, codec, view[HEADER_SIZE:], walked.max_timestamp)
    else:
        return view, header
    return _fitting(rewritten, rules)


def _fitting(rewritten: bytes | bytearray, rules: Rules) -> tuple[memoryview, RawHeader] | Refusal:
    """Return a rewritten batch, or its refusal if it has become too large."""
    if len(rewritten) > rules.bytes_max:
        fault = f"batch of {len(rewritten)} bytes after it was rewritten, max.message.bytes is {rules.bytes_max}"
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, fault)
    return memoryview(rewritten), unpack_header(rewritten)


def _decompressed(codec: int, block: Buffer, rules: Rules, quick_bytes: int | None) -> Buffer | Refusal:
    """Return the records' bytes, or the refusal of a block that Kafka's readers do not take."""
    limit = decompressed_bytes_max(rules)
    most = limit if quick_bytes is None else min(limit, quick_bytes)  # mutant: slow-to-open
    try:
        if codec == Codec.LZ4:
            block = for_java(block)  # mutant: lz4-for-java
        return decompress(codec, block, most)
    except DecompressedTooLarge as error:
        return TOO_SLOW if most < limit else Refusal(ErrorCode.INVALID_RECORD, str(error))
    except DecodeError as error:
        # Not 2 (CORRUPT_MESSAGE), which clients send again until they time out.
        # mutant: broken-stream
        return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"the records cannot be decompressed: {error}")


def _walked(
    body: Buffer, header: RawHeader, rules: Rules, now_ms: int, slices: TimeSlices | None
) -> RecordWalker | Refusal:
    """Check every record's shape, key and timestamp; return the walker at their end, or the refusal."""
    append_time, earliest, latest = None, _TIME_MIN, _TIME_MAX
    if rules.log_append_time:
        append_time = now_ms
    else:
        latest = min(_TIME_MAX, now_ms + rules.timestamp_after_max_ms)  # mutant: too-new-refused
        earliest = now_ms - rules.timestamp_before_max_ms  # mutant: too-old-refused
    count, first_ms, keys = header[12], header[7], rules.keys_required
    try:
        walker = RecordWalker(
            body, count, 0, first_ms, append_time, earliest=earliest, latest=latest, keys_required=keys
        )
        if slices is None:
            if walker.check(STEPS):
                return TOO_SLOW
        else:
            while walker.check(STEPS_A_SLICE):
                slices.turn()
    except TimestampOverflow as overflow:
        return Refusal(ErrorCode.INVALID_TIMESTAMP, str(overflow), [(overflow.index, str(overflow))])
    except MalformedRecord as error:
        return Refusal(ErrorCode.INVALID_RECORD, f"malformed: {error}")
    if walker.mistimed or walker.keyless:  # mutant: faulty-records-refused
        return _refused(walker, earliest, latest)
    return walker


def _refused(walker: RecordWalker, earliest: int, latest: int) -> Refusal:
    """Return the refusal of a batch with keys missing or timestamps out of bounds, which win, as in Kafka."""
    no_key = "a compacted topic takes no record without a key"
    errors: list[tuple[int, str | None]] = [(index, no_key) for index in walker.keyless]
    errors += [
        (index, f"timestamp {timestamp} is not between {earliest} and {latest}")
        for index, timestamp, _ in walker.mistimed
    ]
    errors.sort()
    if walker.mistimed:  # mutant: times-before-keys
        message = f"timestamps out of bounds, or keys missing, in {len(errors)} records"
        return Refusal(ErrorCode.INVALID_TIMESTAMP, message, errors)
    return Refusal(ErrorCode.INVALID_RECORD, f"{len(errors)} records without a key for a compacted topic", errors)


def _with_records(header: RawHeader, codec: int, records: Buffer, max_timestamp: int) -> bytearray:
    """Return the batch with these bytes as its records; the fields that describe their order stay."""
    attributes = codec | header[5] & (TRANSACTIONAL if codec != header[5] & CODEC_MASK else _ATTRIBUTES)
    batch = bytearray(HEADER_SIZE + len(records))
    batch[HEADER_SIZE:] = records
    length = len(batch) - LOG_OVERHEAD
    fields = (attributes, *header[6:8], max_timestamp, *header[9:])
    HEADER.pack_into(batch, 0, header[0], length, header[2], header[3], 0, *fields)
    crc = crc32c(memoryview(batch)[CRC_START:])
    HEADER.pack_into(batch, 0, header[0], length, header[2], header[3], crc, *fields)
    return batch


def _renumbered(
    view: memoryview, header: RawHeader, codec: Codec, rules: Rules, slices: TimeSlices
) -> tuple[memoryview, RawHeader] | Refusal:
    """Return the batch in this codec with its records' offsets from 0 on, or its refusal."""

    def numbered() -> Iterator[Record]:
        for index, record in enumerate(read_records(view, limit=decompressed_bytes_max(rules))):
            if index % _REWRITTEN_A_SLICE == 0:
                slices.turn()
            record.offset = index
            yield record

    batch = build_batch(
        numbered(),
        base_timestamp=header[7],
        codec=codec,
        level=rules.level,
        producer_id=header[9],
        producer_epoch=header[10],
        base_sequence=header[11],
        transactional=bool(header[5] & TRANSACTIONAL),
    )
    return _fitting(batch, rules)
