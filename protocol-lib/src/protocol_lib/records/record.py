"""Records inside a batch.

    length varint, attributes i8 (unused), timestamp delta varlong, offset delta varint,
    key length varint (-1 null), key, value length varint (-1 null), value,
    header count varint, then per header: key length varint, key UTF-8, value length varint (-1 null), value

Deltas are relative to the batch's base timestamp and base offset. Under LogAppendTime every record has the batch's
maximum timestamp. A record must take exactly the length it says, and the records the batch counts all of its bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from protocol_lib.errors import DecodeError
from protocol_lib.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from protocol_lib.records.header import HEADER_SIZE, read_batch_header
from protocol_lib.varint import Buffer, read_signed, write_signed

Header = tuple[str, bytes | None]

#: A record of no key, no value and no headers: seven fields of a byte each.
_RECORD_SIZE_MIN: Final = 7
_HEADER_SIZE_MIN: Final = 2
_NULL: Final = write_signed(-1)


@dataclass(slots=True)
class Record:
    """One record; its timestamp is in milliseconds since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def read_records(batch: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of one whole batch, in order; DecodeError where they turn out malformed.

    The CRC is not checked here. `limit` bounds the bytes the batch may decompress to.
    """
    header = read_batch_header(batch)
    if header.size != len(batch):
        raise DecodeError(f"a record batch of {header.size} bytes in {len(batch)}")
    body = bytes(decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit))
    if not 0 <= header.records_count <= len(body) // _RECORD_SIZE_MIN:
        raise DecodeError(f"{header.records_count} records in {len(body)} bytes")
    position = 0
    try:
        for _ in range(header.records_count):
            record, position = _read_record(body, position, header.base_offset, header.base_timestamp)
            if header.is_log_append_time:
                record.timestamp = header.max_timestamp
            yield record
    except (IndexError, UnicodeDecodeError) as fault:
        raise DecodeError(f"record: {fault}") from fault
    if position != len(body):
        raise DecodeError(f"{len(body) - position} bytes after the last record")


def _read_record(body: bytes, position: int, base_offset: int, base_timestamp: int) -> tuple[Record, int]:
    length, position = read_signed(body, position)
    end = position + length
    if length < _RECORD_SIZE_MIN - 1 or end > len(body):
        raise DecodeError(f"a record of {length} bytes where {len(body) - position} are left")
    timestamp_delta, position = read_signed(body, position + 1)
    offset_delta, position = read_signed(body, position)
    key, position = _read_bytes(body, position, end)
    value, position = _read_bytes(body, position, end)
    count, position = read_signed(body, position)
    if not 0 <= count <= max(0, end - position) // _HEADER_SIZE_MIN:
        raise DecodeError(f"{count} record headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(body, position, end)
        if name is None:
            raise DecodeError("a record header without a key")
        content, position = _read_bytes(body, position, end)
        headers.append((name.decode(), content))
    if position != end:
        raise DecodeError("a record is not as long as it says")
    return Record(base_offset + offset_delta, base_timestamp + timestamp_delta, key, value, tuple(headers)), end


def _read_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_signed(body, position)
    if length == -1:
        return None, position
    after = position + length
    if length < 0 or after > end:
        raise DecodeError(f"a field of {length} bytes in a record that has {end - position} left")
    return body[position:after], after


def write_record(record: Record, base_offset: int, base_timestamp: int, pieces: list[bytes]) -> None:
    """Add one record's bytes, the length first, to a list of pieces."""
    parts = [
        b"\0",
        write_signed(record.timestamp - base_timestamp),
        write_signed(record.offset - base_offset),
        *_sized(record.key),
        *_sized(record.value),
        write_signed(len(record.headers)),
    ]
    for name, content in record.headers:
        parts += _sized(name.encode())
        parts += _sized(content)
    pieces.append(write_signed(sum(map(len, parts))))
    pieces += parts


def _sized(data: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if data is None else (write_signed(len(data)), data)
