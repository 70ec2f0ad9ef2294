"""Conversion between message sets (formats 0 and 1) and record batches (format 2), as Kafka 3.9 did it.

Up, for Produce 0-2: a message set becomes one batch. Offsets count from 0 (the log assigns the real ones), records of
format 0 have timestamp -1, the codec and LogAppendTime are kept. A set that is compressed is one wrapper and nothing
else; formats are not mixed (LogValidator).

Down, for Fetch 0-1 (to format 0) and 2-3 (to format 1): headers and the producer's ids are left out, control batches
are skipped, the codec and LogAppendTime are kept, and each batch becomes messages of the same offsets. Messages of the
requested format, or of an older one, stay as they are. These formats have no Zstandard: records in zstd become gzip,
which every client of that age reads. Kafka 3.9 ended the answer before them (RecordsUtil.downConvert).

Records pass through one at a time: memory holds the bytes of a set, never a million objects. A caller may see each of
them go by (`each`), to pause or to stop.
"""

from collections.abc import Callable, Iterator

from protocol_lib.errors import DecodeError, EncodeError
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import DECOMPRESSED_BYTES_MAX, Codec, DecompressedTooLarge
from protocol_lib.records.header import LOG_APPEND_TIME, MAGIC, MAGIC_AT, read_batch_header, read_magic
from protocol_lib.records.legacy import (
    MESSAGE_ATTRIBUTES_AT,
    CorruptMessage,
    Message,
    build_message_set,
    message_size,
    read_message,
    read_messages,
    walk_message_records,
)
from protocol_lib.records.record import Record, read_records
from protocol_lib.varint import Buffer

#: A function that sees each record before it is written. An exception ends the conversion.
Each = Callable[[Record], None]


def _ignore(_record: Record) -> None:
    """Let the record pass."""


def up_convert(
    message_set: Buffer, *, partial: bool = False, limit: int = DECOMPRESSED_BYTES_MAX, each: Each = _ignore
) -> bytes:
    """Return one record batch of the records of a message set; empty when the set is.

    `partial` skips part of a message at the end, which Kafka did for Produce as well. `limit` bounds the bytes a
    wrapper decompresses to.

    Raises:
        CorruptMessage: a message has another CRC than its bytes have.
        DecompressedTooLarge: a wrapper reaches the limit.
        DecodeError: the set breaks the rules above.
    """
    messages = read_messages(message_set, partial=partial)
    first = next(messages, None)
    if first is None:
        return b""
    if first.codec:
        for message in messages:
            _refuse_neighbours(first, message, messages)
        records = walk_message_records(first, limit=limit)
    else:
        records = _plain_records(first, messages)
    log_append_time = first.is_log_append_time or (not first.codec and _has_log_append_time(message_set))
    try:
        return build_batch(_numbered(records, each), codec=Codec(first.codec), log_append_time=log_append_time)
    except EncodeError as fault:  # timestamps whose difference takes more than 64 bits
        raise DecodeError(f"messages that no batch can hold: {fault}") from fault


def _has_log_append_time(message_set: Buffer) -> bool:
    """Return whether a message of format 1 has the bit of LogAppendTime, as far as messages follow each other."""
    position = 0
    while position + MESSAGE_ATTRIBUTES_AT < len(message_set):
        if message_set[position + MAGIC_AT] and message_set[position + MESSAGE_ATTRIBUTES_AT] & LOG_APPEND_TIME:
            return True
        try:
            position += message_size(message_set, position)
        except CorruptMessage:  # the conversion meets it
            return False
    return False


def _plain_records(first: Message, messages: Iterator[Message]) -> Iterator[Record]:
    """Yield the records of messages that wrap nothing."""
    yield from walk_message_records(first)
    for message in messages:
        if message.magic != first.magic or message.codec:
            _refuse_neighbours(first, message, messages)
        yield from walk_message_records(message)


def _refuse_neighbours(first: Message, second: Message, rest: Iterator[Message]) -> None:
    """Raise for a set of such messages. A corrupt one among the rest comes first, as all CRCs are checked first."""
    mixed = [message.magic != first.magic for message in (second, *rest)]
    raise DecodeError("messages of both formats in one set" if any(mixed) else "a compressed message next to others")


def _numbered(records: Iterator[Record], each: Each) -> Iterator[Record]:
    for offset, record in enumerate(records):
        each(record)
        record.offset = offset
        yield record


def down_convert(
    batches: Buffer,
    magic: int,
    *,
    first_offset: int = 0,
    limit: int = DECOMPRESSED_BYTES_MAX,
    each: Each = _ignore,
) -> bytes:
    """Return message sets of a format, 0 or 1, for whole batches and messages of any format, back to back.

    Uncompressed records before `first_offset` (the one that was asked for) are left out. The outcome is empty when only
    control batches were there. `limit` bounds the bytes each batch may decompress to. A batch beyond it ends the answer
    before it; `each` ends it in the same way by raising DecompressedTooLarge.

    Raises:
        DecompressedTooLarge: the first batch is beyond the limit.
        DecodeError: the batches are malformed.
    """
    pieces: list[bytes] = []
    view = memoryview(batches)
    position, size = 0, len(view)
    while position < size:
        if read_magic(view, position) < MAGIC:
            message, end = read_message(view, position)
            if message.magic <= magic:
                pieces.append(bytes(view[position:end]))
                position = end
                continue
            codec, log_append_time = message.codec, message.is_log_append_time
            records = walk_message_records(message, limit=limit)
        else:
            header = read_batch_header(view, position)
            end = position + header.size
            if end > size:
                raise DecodeError(f"a record batch of {header.size} bytes where {size - position} are left")
            codec, log_append_time = header.codec, header.is_log_append_time
            if header.is_control:
                position = end
                continue
            if codec == Codec.ZSTD:
                codec = Codec.GZIP
            records = None
        try:
            if records is None:
                records = read_records(view[position:end], limit=limit)
            piece = _down(records, magic, Codec(codec), first_offset, log_append_time=log_append_time, each=each)
        except DecompressedTooLarge:
            if not pieces:
                raise
            break
        if piece:
            pieces.append(piece)
        position = end
    return b"".join(pieces)


def _down(
    records: Iterator[Record], magic: int, codec: Codec, first_offset: int, *, log_append_time: bool, each: Each
) -> bytes:
    """Return one batch's records as messages; empty if none are left."""
    passing = _passing(records, first_offset if codec is Codec.NONE else 0, each)
    first = next(passing, None)
    if first is None:
        return b""
    time = first.timestamp if log_append_time else None
    return build_message_set(_again(first, passing), magic=magic, codec=codec, log_append_time=time)


def _passing(records: Iterator[Record], first_offset: int, each: Each) -> Iterator[Record]:
    for record in records:
        each(record)
        if record.offset >= first_offset:
            yield record


def _again(first: Record, rest: Iterator[Record]) -> Iterator[Record]:
    yield first
    yield from rest
