"""Message sets: records as Kafka kept them before 0.11, formats 0 and 1 (magic 0 and 1).

A message set is messages back to back, without a count. One message:

    0   offset i64
    8   size i32                bytes after this field
    12  crc u32                 CRC-32 of byte 16 to the end
    16  magic i8                0 or 1
    17  attributes i8           bits 0-2 codec (gzip, snappy, lz4), bit 3 LogAppendTime (format 1)
    18  timestamp i64           format 1 only, milliseconds since 1970, -1 for none
    ..  key length i32 (-1 null), key, value length i32 (-1 null), value

Compressed messages are wrapped: the value of a message with a codec and no key is a message set, compressed.

    format 0    the messages inside have their own offsets
    format 1    their offsets count from 0 inside; the wrapper's offset is that of the last one:
                wrapper 41 around 0, 1, 2 is 39, 40, 41 (librdkafka has sent 0 there: offsets inside stay as they are)

The wrapper's timestamp is the largest inside, or under LogAppendTime the time of every record inside.
The sources are Kafka's LegacyRecord and AbstractLegacyRecordBatch (3.9). A fetch answer may end in part of a message.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from protocol_lib.errors import DecodeError, EncodeError
from protocol_lib.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from protocol_lib.records.header import CODEC_MASK, LOG_APPEND_TIME
from protocol_lib.records.lz4_frame import with_old_checksum, with_right_checksum
from protocol_lib.records.record import Record
from protocol_lib.varint import SIGNED_MAX, Buffer

NO_TIMESTAMP: Final = -1

_OFFSET_AND_SIZE: Final = Struct(">qi")
_PREFIX_SIZE: Final = _OFFSET_AND_SIZE.size
_CRC: Final = Struct(">I")
_CRC_POSITION: Final = 12
#: Position of the attributes in a message of either format.
MESSAGE_ATTRIBUTES_AT: Final = 17
_CRC_FROM: Final = 16
#: The fields from the size to the key length, by magic.
_HEADERS: Final = (Struct(">Ibb"), Struct(">Ibbq"))
_LENGTH: Final = Struct(">i")
#: The `size` of a message without key and value, by magic.
_SIZES_MIN: Final = (14, 22)
_SIZE_MAX: Final = 2**31 - 1
#: Bytes of the smallest whole message.
MESSAGE_SIZE_MIN: Final = _PREFIX_SIZE + _SIZES_MIN[0]
#: The codecs these formats can have; zstd came with format 2 (KIP-110).
_CODECS: Final = frozenset({Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4})


class CorruptMessage(DecodeError):  # noqa: N818 (Kafka's own term)
    """A message without a clear end, or with another CRC than its bytes have (Kafka's error 2)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it stands in its set: a record, or a wrapper of compressed ones."""

    offset: int
    magic: int
    attributes: int
    #: milliseconds since 1970; NO_TIMESTAMP in format 0
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME)


def message_size(buffer: Buffer, position: int = 0) -> int:
    """Return the size of the whole message that starts at a position, whether or not they are all there."""
    if len(buffer) - position < _PREFIX_SIZE:
        raise CorruptMessage(f"a message of {len(buffer) - position} bytes")
    _, size = _OFFSET_AND_SIZE.unpack_from(buffer, position)
    if size < _SIZES_MIN[0]:
        raise CorruptMessage(f"a message of size {size}")
    return _PREFIX_SIZE + int(size)


def message_offset(buffer: Buffer, position: int = 0) -> int:
    """Return the offset of the message at a position: that of the last one inside, when it wraps others."""
    offset, _ = _OFFSET_AND_SIZE.unpack_from(buffer, position)
    return int(offset)


def read_message(buffer: Buffer, position: int = 0) -> tuple[Message, int]:
    """Return the message at a position, its CRC checked, and the position of the next one."""
    end = position + message_size(buffer, position)
    if end > len(buffer):
        raise CorruptMessage(f"a message of {end - position} bytes where {len(buffer) - position} are left")
    magic = buffer[position + _CRC_FROM]
    if magic >= len(_HEADERS):
        raise CorruptMessage(f"a message of format {magic}")
    if end - position - _PREFIX_SIZE < _SIZES_MIN[magic]:
        raise CorruptMessage(f"a message of {end - position} bytes in format {magic}")
    offset, _ = _OFFSET_AND_SIZE.unpack_from(buffer, position)
    header = _HEADERS[magic]
    crc, _, attributes, *timestamps = header.unpack_from(buffer, position + _PREFIX_SIZE)
    view = memoryview(buffer)
    if crc != zlib.crc32(view[position + _CRC_FROM : end]):
        raise CorruptMessage(f"the message of offset {offset} does not have the CRC it says")
    key, after = _read_bytes(view, position + _PREFIX_SIZE + header.size, end)
    value, after = _read_bytes(view, after, end)
    if after != end:
        raise CorruptMessage(f"{end - after} bytes after the value of a message")
    return Message(offset, magic, attributes, timestamps[0] if timestamps else NO_TIMESTAMP, key, value), end


def _read_bytes(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    if position + _LENGTH.size > end:
        raise CorruptMessage("a message is cut short")
    (length,) = _LENGTH.unpack_from(view, position)
    position += _LENGTH.size
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise CorruptMessage(f"a field of {length} bytes in a message that has {end - position} left")
    return bytes(view[position : position + length]), position + length


def read_messages(buffer: Buffer, *, partial: bool = False) -> Iterator[Message]:
    """Yield the messages of a set, wrapped ones inside their wrapper; `partial` skips part of a message at the end."""
    position, size = 0, len(buffer)
    while position < size:
        if partial and (size - position < _PREFIX_SIZE or message_size(buffer, position) > size - position):
            return
        message, position = read_message(buffer, position)
        yield message


def message_records(message: Message, *, limit: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """Return the record a message is, or the records it wraps, as `walk_message_records` yields them."""
    return list(walk_message_records(message, limit=limit))


def walk_message_records(message: Message, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield the record a message is, or the records it wraps, with their offsets and timestamps in the log.

    `limit` bounds the bytes that a wrapper may decompress to, which happens when the first record is asked for.

    Raises:
        DecodeError: the wrapper is malformed.
    """
    if message.codec == Codec.NONE:
        yield Record(message.offset, message.timestamp, message.key, message.value)
    else:
        yield from _wrapped(message, _body(message, limit))


def read_message_set(buffer: Buffer, *, partial: bool = False, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Yield the records of a message set, in order; raise DecodeError where it is malformed.

    `partial` skips part of a message at the end, `limit` bounds the bytes all its wrappers decompress to.
    """
    for message in read_messages(buffer, partial=partial):
        if message.codec == Codec.NONE:
            yield Record(message.offset, message.timestamp, message.key, message.value)
        else:
            body = _body(message, limit)
            limit -= len(body)
            yield from _wrapped(message, body)


def _body(message: Message, limit: int) -> Buffer:
    """Return the message set that a wrapper holds."""
    if message.codec not in _CODECS:
        raise DecodeError(f"a message of format {message.magic} with codec {message.codec}")
    if message.value is None:
        raise DecodeError("a compressed message without a value")
    value: Buffer = message.value
    if message.codec == Codec.LZ4 and message.magic == 0:
        value = with_right_checksum(value)
    return decompress(message.codec, value, limit)


def _wrapped(wrapper: Message, body: Buffer) -> Iterator[Record]:
    """Yield the records inside a wrapper; in format 1 with their offsets in the log, and its time when that rules."""
    append_time = wrapper.timestamp if wrapper.is_log_append_time else None
    base_offset = _base_offset(wrapper, body)
    if base_offset < 0:
        for _ in _inside(wrapper, body):
            pass
        last_offset = wrapper.offset - base_offset
        raise DecodeError(f"a wrapper of offset {wrapper.offset} around a message of offset {last_offset}")
    for inner in _inside(wrapper, body):
        offset = base_offset + inner.offset
        if offset > SIGNED_MAX:
            raise DecodeError(f"a message of offset {offset}")
        yield Record(offset, inner.timestamp if append_time is None else append_time, inner.key, inner.value)


def _inside(wrapper: Message, body: Buffer) -> Iterator[Message]:
    found = False
    for inner in read_messages(body):
        if inner.magic != wrapper.magic:
            raise DecodeError(f"a message of format {inner.magic} inside one of format {wrapper.magic}")
        if inner.codec != Codec.NONE:
            raise DecodeError("a compressed message inside a compressed message")
        found = True
        yield inner
    if not found:
        raise DecodeError("a compressed message with no message inside")


def _base_offset(wrapper: Message, body: Buffer) -> int:
    """Return the number to add to the offsets inside a wrapper: in format 1 its own offset is that of the last one.

    The sizes lead to the last message. Where they do not, the reading of the messages finds the fault.
    """
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    position = last = 0
    try:
        while position < len(body):
            last = position
            position += message_size(body, position)
        return wrapper.offset - message_offset(body, last) if body else 0
    except CorruptMessage:
        return 0


def build_message_set(
    records: Iterable[Record], *, magic: int, codec: Codec = Codec.NONE, log_append_time: int | None = None
) -> bytes:
    """Return a message set of format 0 or 1 that holds the records, one wrapper of them all when there is a codec.

    Headers have no place in these formats and are left out, as are timestamps in format 0. `log_append_time` is the
    time of every record in format 1, in milliseconds since 1970. The records are read once.
    """
    if magic >= len(_HEADERS) or magic < 0:
        raise EncodeError(f"a message set of format {magic}")
    if codec not in _CODECS:
        raise EncodeError(f"a message set of format {magic} with codec {codec.name}")
    relative = magic == 1 and codec is not Codec.NONE
    attributes = LOG_APPEND_TIME if magic == 1 and log_append_time is not None else 0
    body = bytearray()
    base_offset = last_offset = max_timestamp = 0
    for record in records:
        if not body:
            base_offset, max_timestamp = record.offset if relative else 0, record.timestamp
        max_timestamp, last_offset = max(max_timestamp, record.timestamp), record.offset
        timestamp = record.timestamp if log_append_time is None else log_append_time
        body += write_message(
            Message(record.offset - base_offset, magic, attributes, timestamp, record.key, record.value)
        )
    if not body:
        raise EncodeError("a message set without records")
    if codec is Codec.NONE:
        return bytes(body)
    value = compress(codec, body)
    if codec is Codec.LZ4 and magic == 0:
        value = with_old_checksum(value)
    timestamp = max_timestamp if log_append_time is None else log_append_time
    return write_message(Message(last_offset, magic, attributes | codec, timestamp, None, value))


def write_message(message: Message) -> bytes:
    """Return one message, its CRC computed."""
    header = _HEADERS[message.magic]
    timestamps = (message.timestamp,) if message.magic else ()
    key, value = message.key or b"", message.value or b""
    size = header.size + 2 * _LENGTH.size + len(key) + len(value)
    if size > _SIZE_MAX:
        raise EncodeError(f"a message of {size} bytes")
    data = bytearray(
        b"".join(
            (
                _OFFSET_AND_SIZE.pack(message.offset, size),
                header.pack(0, message.magic, message.attributes, *timestamps),
                _LENGTH.pack(-1 if message.key is None else len(key)),
                key,
                _LENGTH.pack(-1 if message.value is None else len(value)),
                value,
            )
        )
    )
    _CRC.pack_into(data, _CRC_POSITION, zlib.crc32(memoryview(data)[_CRC_FROM:]))
    return bytes(data)
