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
from itertools import chain
from typing import Final

from protocol_lib.errors import DecodeError, MalformedRecord, TimestampOverflow
from protocol_lib.records.compression import DECOMPRESSED_BYTES_MAX, decompress
from protocol_lib.records.header import HEADER_SIZE, RECORD_SIZE_MIN, read_batch_header
from protocol_lib.records.walker import RecordWalker
from protocol_lib.varint import SIGNED_MAX, Buffer, write_signed

__all__ = [
    "KEY_ERRORS", "Header", "Record", "TimestampOverflow", "read_records", "read_slices", "walker_of", "write_record",
    "write_tail",
]  # fmt: skip

Header = tuple[str, bytes | None]

#: The error handler that keeps the bytes of a header's key which are not UTF-8.
KEY_ERRORS: Final = "surrogateescape"

_NULL: Final = write_signed(-1)
_ATTRIBUTES: Final = b"\0"
_NO_HEADERS: Final = write_signed(0)
#: Records that are read at once, or headers; those that are passed over, and bytes that are searched.
_STEPS: Final = 64
_STEPS_PASSED: Final = 2000
_SEARCHED_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Record:
    """One record; its timestamp is in milliseconds since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def read_records(batch: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """Return the records of one whole batch, in order. Raises DecodeError at once, or at a malformed record.

    The CRC is not checked here. `limit` bounds the bytes that a compressed batch may become.
    """
    return chain.from_iterable(_slices(walker_of(batch, limit=limit)))


def walker_of(
    batch: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX, latest: int = SIGNED_MAX, faults_max: int = 1
) -> RecordWalker:
    """Return a walker at the first record of one whole batch. Raises DecodeError.

    The CRC is not checked here. `limit` bounds the bytes that a compressed batch may become. `latest` and `faults_max`
    are for `check`: see protocol_lib.records.walker.
    """
    header = read_batch_header(batch)
    if header.size != len(batch):
        raise DecodeError(f"a record batch of {header.size} bytes in {len(batch)}")
    body = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], limit)
    count = header.records_count
    if not 0 <= count <= len(body) // RECORD_SIZE_MIN:
        raise DecodeError(f"{count} records in {len(body)} bytes")
    append_time = header.max_timestamp if header.is_log_append_time else None
    return RecordWalker(
        body, count, header.base_offset, header.base_timestamp, append_time, latest=latest, faults_max=faults_max
    )


def read_slices(
    batch: Buffer, *, limit: int = DECOMPRESSED_BYTES_MAX, wanted: bytes = b"", skip: int = 0
) -> Iterator[tuple[int, list[Record]]]:
    """Return the records of one whole batch in slices, each of some milliseconds at most: how many were passed over,
    and those that follow. Raises DecodeError as `read_records` does.

    The first `skip` records are passed over. After them, no record is that has the bytes `wanted` in its key, its value
    or a header; others may be returned.
    """
    return _passing(walker_of(batch, limit=limit), wanted, skip)


def _passing(walker: RecordWalker, wanted: bytes, skip: int) -> Iterator[tuple[int, list[Record]]]:
    """Yield the slices. A step walks a record or less, so that the walk stops between two records."""
    while (passed := walker.index) < skip and not walker.is_over:
        walker.pass_over(SIGNED_MAX, min(skip - passed, _STEPS_PASSED))
        yield walker.index - passed, []
    if wanted:
        yield from _search(walker, wanted)
    else:
        for records in _slices(walker):
            yield 0, records


def _slices(walker: RecordWalker) -> Iterator[list[Record]]:
    """Yield the records that a walker reads; raise MalformedRecord at a malformed one."""
    is_left = True
    while is_left:
        records: list[Record] = []
        try:
            is_left = walker.read(Record, records, _STEPS)
        except MalformedRecord:
            yield records
            raise
        yield records


def _search(walker: RecordWalker, wanted: bytes) -> Iterator[tuple[int, list[Record]]]:
    """Yield the records in whose bytes others are found. The bytes before `searched` do not begin a find."""
    searched = 0
    while not walker.is_over:
        start = max(walker.position, searched)
        window = start + _SEARCHED_BYTES
        found = walker.find(wanted, start, window + len(wanted) - 1)
        searched = window if found < 0 else found
        passed = walker.index
        while walker.pass_over(searched, _STEPS_PASSED):
            yield walker.index - passed, []
            passed = walker.index
        is_read = found < 0
        while not (is_read or walker.is_over):  # by steps, to stop after the record and its headers
            records: list[Record] = []
            walker.read(Record, records, 1)
            yield walker.index - passed - len(records), records
            is_read, passed = bool(records), walker.index
        yield walker.index - passed, []


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
