"""Records inside a batch: broken ones, and limits of a batch."""

import contextlib
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec, compress
from protocol_lib.records.header import HEADER
from protocol_lib.records.record import Record, TimestampOverflow, read_records, write_record
from protocol_lib.varint import write_signed

NOW = 1_700_000_000_000
RECORDS = [
    Record(100, NOW, None, None, (("h", b"x"), ("größe", None), ("h", b""))),
    Record(101, NOW + 4, b"key-1", bytes(7)),
    Record(102, NOW + 8, b"key-2", bytes(300)),
    Record(103, NOW + 1, None, b""),
]
CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)


def batch_of(body: bytes, count: int, *, attributes: int = 0, base_offset: int = 0, base_timestamp: int = NOW) -> bytes:
    """Put a header around any body. Its CRC is not looked at by readers of records."""
    last_delta, size = max(0, count - 1), 49 + len(body)
    fields = base_offset, size, 0, 2, 0, attributes, last_delta, base_timestamp, NOW, -1, -1, -1, count
    return HEADER.pack(*fields) + body


@pytest.mark.parametrize(
    ("body", "count", "says"),
    [
        ("", 1, "1 records in 0 bytes"),
        ("0c 00 00 00 01 01 00", 2, "2 records in 7 bytes"),
        ("0c 00 00 00 01 01 00", -1, "-1 records"),
        ("0c 00 00 00 01 01 00", 0, "7 bytes after the last record"),
        ("0c 00 00 00 01 01 00 00", 1, "1 bytes after the last record"),
        ("0e 00 00 00 01 01 00", 1, "a record of 7 bytes where 6 are left"),
        ("0a 00 00 00 01 01 00", 1, "not as long as it says"),
        ("01 00 00 00 01 01 00", 1, "a record of -1 bytes"),
        ("0e 00 00 00 01 01 00 00", 1, "not as long as it says"),
        ("0c 00 00 00 03 01 00", 1, "a field of -2 bytes"),
        ("0c 00 00 00 06 01 00", 1, "the bytes end inside of it"),
        ("0c 00 00 00 01 10 00", 1, "the bytes end inside of it"),
        ("0c 00 00 00 01 01 02", 1, "1 record headers in 0 bytes"),
        ("0c 00 00 00 01 01 01", 1, "-1 record headers"),
        ("10 00 00 00 01 01 02 01 01", 1, "a record header without a key"),
        ("0c 00 80 80 80 80 80", 1, "record 0: the bytes end inside of it"),
        ("14 00 00 80 80 80 80 10 01 01 00", 1, "a varint of more than 32 bits"),
    ],
)
def test_what_is_wrong_with_records(body, count, says):
    with pytest.raises(DecodeError, match=says):
        list(read_records(batch_of(bytes.fromhex(body), count)))


@given(st.binary(max_size=12))
@example(b"\xff\xfe\xfd\xfc")
@example("größe".encode())
@example(b"\xed\xb3\xbf")  # U+DCFF itself, which UTF-8 does not have
def test_the_key_of_a_header_keeps_any_bytes(key):
    header = b"\2" + write_signed(len(key)) + key + b"\1"
    fields = b"\0\0\0\1\1" + header
    body = write_signed(len(fields)) + fields
    (record,) = read_records(batch_of(body, 1, base_timestamp=0))
    ((name, content),) = record.headers
    assert (name, content) == (key.decode(errors="surrogateescape"), None)
    pieces: list[bytes] = []
    write_record(record, 0, 0, pieces)
    assert b"".join(pieces) == body


@pytest.mark.parametrize(
    ("base_offset", "base_timestamp", "offset_delta", "timestamp_delta"),
    [(2**63 - 1, 0, 1, 0), (-(2**63), 0, -1, 0), (0, 2**63 - 1, 0, 1), (0, -(2**63), 0, -1)],
)
def test_what_counts_on_beyond_64_bits_is_no_record(base_offset, base_timestamp, offset_delta, timestamp_delta):
    pieces: list[bytes] = []
    for deltas in ((0, 0), (offset_delta, timestamp_delta)):
        write_record(Record(*deltas, None, b""), 0, 0, pieces)
    body = b"".join(pieces)
    records = read_records(batch_of(body, 2, base_offset=base_offset, base_timestamp=base_timestamp))
    assert next(records) == Record(base_offset, base_timestamp, None, b"")
    error, text = (
        (DecodeError, f"of offset {base_offset + offset_delta}$")
        if offset_delta
        else (TimestampOverflow, f"of timestamp {base_timestamp + timestamp_delta}$")
    )
    with pytest.raises(error, match=text):
        next(records)


def test_a_batch_must_be_whole_and_alone():
    batch = build_batch(RECORDS, base_offset=100)
    for wrong in (batch[:-1], batch + b"\0"):
        with pytest.raises(DecodeError, match=f"of {len(batch)} bytes in {len(wrong)}"):
            list(read_records(wrong))


def test_a_compressed_bomb_is_bounded_by_the_limit():
    batch = batch_of(compress(Codec.ZSTD, bytes(50_000_000)), 1, attributes=Codec.ZSTD)
    assert len(batch) < 10_000
    with pytest.raises(DecodeError, match="more than 1000000 bytes"):
        list(read_records(batch, limit=1_000_000))


@CODECS
def test_tampered_batches_are_records_or_decode_errors(codec):
    draw = random.Random(codec)
    batch = build_batch(RECORDS, base_offset=100, codec=codec)
    for _ in range(500):
        broken = bytearray(batch)
        for _ in range(draw.randrange(1, 4)):
            broken[draw.randrange(21, len(broken))] = draw.randrange(256)
        with contextlib.suppress(DecodeError):
            assert all(isinstance(record, Record) for record in read_records(broken, limit=100_000))
