"""Records inside a batch.

    length varint, attributes i8 (unused), timestamp delta varlong, offset delta varint,
    key length varint (-1 null), key, value length varint (-1 null), value,
    header count varint, then per header: key length varint, key UTF-8, value length varint (-1 null), value

Deltas are relative to the batch's base timestamp and base offset. Under LogAppendTime every record has the batch's
maximum timestamp. A record must take exactly the length it says, and the records the batch counts all of its bytes. Its
offset and its timestamp must be of 64 bits as those of the batch are.

Clients may send the key of a header in bytes that are not UTF-8. Such a byte is one of the characters U+DC80 to U+DCFF
here (Python's `surrogateescape`), and the same byte again when the record is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from protocol_lib.errors import DecodeError
from protocol_lib.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from protocol_lib.records.header import HEADER_SIZE, read_batch_header
from protocol_lib.varint import (
    SIGNED_MAX,
    SIGNED_MIN,
    UNSIGNED_MAX,
    Buffer,
    read_on,
    read_signed,
    unzigzag,
    write_signed,
)

Header = tuple[str, bytes | None]

#: The error handler that keeps the bytes of a header's key which are not UTF-8.
KEY_ERRORS: Final = "surrogateescape"

#: A record of no key, no value and no headers: seven fields of a byte each.
_RECORD_SIZE_MIN: Final = 7
_HEADER_SIZE_MIN: Final = 2
_NULL: Final = write_signed(-1)
_ATTRIBUTES: Final = b"\0"
_NO_HEADERS: Final = write_signed(0)
_NULL_LENGTH: Final = 1  # -1 before zig-zag is undone


@dataclass(slots=True)
class Record:
    """One record; its timestamp is in milliseconds since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class TimestampOverflow(DecodeError):  # noqa: N818 (it names the value, as Kafka's error code does)
    """A record's timestamp does not fit into 64 bits: Kafka's INVALID_TIMESTAMP, where others are INVALID_RECORD."""


def read_records(batch: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Return the records of one whole batch, in order. Raises DecodeError at once, or at a malformed record.

    The CRC is not checked here. `limit` bounds the bytes the batch may decompress to.
    """
    header = read_batch_header(batch)
    if header.size != len(batch):
        raise DecodeError(f"a record batch of {header.size} bytes in {len(batch)}")
    body = bytes(decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit))
    if not 0 <= header.records_count <= len(body) // _RECORD_SIZE_MIN:
        raise DecodeError(f"{header.records_count} records in {len(body)} bytes")
    append_time = header.max_timestamp if header.is_log_append_time else None
    return walk_records(body, header.records_count, header.base_offset, header.base_timestamp, append_time)


def walk_records(
    body: bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None = None,
    *,
    with_values: bool = True,
) -> Iterator[Record]:
    """Yield the records of uncompressed bytes, which hold nothing else; raise DecodeError at a malformed one.

    Each has the timestamp `append_time` if there is one. Without values, a value is checked and yielded as b"".

    Calls cost most here, so that varints of one byte are read in place. A length only moves the position, and a record
    must end where its length says: then all of its fields were inside.
    """
    new, size, position = object.__new__, len(body), 0
    try:
        for _ in range(count):
            length = body[position]
            position += 1
            if length > 0x7F:
                length, position = read_on(body, position, length)
            end = position + (length >> 1)
            if length & 1 or end > size:
                raise DecodeError(f"a record of {unzigzag(length)} bytes where {size - position} are left")
            delta = body[position + 1]
            position += 2
            if delta > 0x7F:
                delta, position = read_on(body, position, delta)
            record = new(Record)
            record.timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1)) if append_time is None else append_time
            delta = body[position]
            position += 1
            if delta > 0x7F:
                delta, position = read_on(body, position, delta)
                if delta > UNSIGNED_MAX:
                    raise DecodeError("an offset delta of more than 32 bits")
            record.offset = base_offset + ((delta >> 1) ^ -(delta & 1))
            if not SIGNED_MIN <= record.offset <= SIGNED_MAX:
                raise DecodeError(f"a record of offset {record.offset}")
            if not SIGNED_MIN <= record.timestamp <= SIGNED_MAX:
                raise TimestampOverflow(f"a record of timestamp {record.timestamp}")
            length = body[position]
            position += 1
            if length > 0x7F:
                length, position = read_on(body, position, length)
            if length & 1:
                _expect_null(length)
                record.key = None
            else:
                after = position + (length >> 1)
                record.key = body[position:after]
                position = after
            length = body[position]
            position += 1
            if length > 0x7F:
                length, position = read_on(body, position, length)
            if length & 1:
                _expect_null(length)
                record.value = None
            else:
                after = position + (length >> 1)
                record.value = body[position:after] if with_values else b""
                position = after
            if body[position]:
                record.headers, position = _read_headers(body, position, end)
            else:
                record.headers = ()
                position += 1
            if position != end:
                raise DecodeError("a record is not as long as it says")
            yield record
    except IndexError as fault:
        raise DecodeError(f"record: {fault}") from fault
    if position != size:
        raise DecodeError(f"{size - position} bytes after the last record")


def _expect_null(length: int) -> None:
    """Accept -1, the one negative length that has a meaning; DecodeError for others."""
    if length != _NULL_LENGTH:
        raise DecodeError(f"a field of {unzigzag(length)} bytes")


def _read_headers(body: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_signed(body, position)
    if not 0 <= count <= max(0, end - position) // _HEADER_SIZE_MIN:
        raise DecodeError(f"{count} record headers in {end - position} bytes")
    headers: list[Header] = []
    for _ in range(count):
        length = body[position]
        position += 1
        if length > 0x7F:
            length, position = read_on(body, position, length)
        if length & 1:
            raise DecodeError("a record header without a key")
        after = position + (length >> 1)
        name = body[position:after].decode(errors=KEY_ERRORS)
        length = body[after]
        position = after + 1
        if length > 0x7F:
            length, position = read_on(body, position, length)
        if length & 1:
            _expect_null(length)
            headers.append((name, None))
        else:
            after = position + (length >> 1)
            headers.append((name, body[position:after]))
            position = after
    return tuple(headers), position


def write_record(record: Record, base_offset: int, base_timestamp: int, pieces: list[bytes]) -> None:
    """Add one record's bytes, the length first, to a list of pieces."""
    key, value = record.key, record.value
    if record.headers:
        tail = [write_signed(len(record.headers))]
        for name, content in record.headers:
            encoded = name.encode(errors=KEY_ERRORS)
            tail += write_signed(len(encoded)), encoded
            tail += (_NULL,) if content is None else (write_signed(len(content)), content)
        headers = b"".join(tail)
    else:
        headers = _NO_HEADERS
    body = b"".join(
        (
            _ATTRIBUTES,
            write_signed(record.timestamp - base_timestamp),
            write_signed(record.offset - base_offset),
            _NULL if key is None else write_signed(len(key)),
            key or b"",
            _NULL if value is None else write_signed(len(value)),
            value or b"",
            headers,
        )
    )
    pieces += write_signed(len(body)), body


def write_tail(key: bytes | None, value: bytes | None) -> bytes:
    """Return a record without headers from its key's length on: the bytes that do not depend on its batch."""
    return b"".join(
        (
            _NULL if key is None else write_signed(len(key)),
            key or b"",
            _NULL if value is None else write_signed(len(value)),
            value or b"",
            _NO_HEADERS,
        )
    )
