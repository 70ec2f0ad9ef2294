"""Record batches: exact bytes, other libraries' readers and writers, broken ones."""

import struct

import pytest
from crc32c import crc32c
from protocol_lib.errors import DecodeError, EncodeError
from protocol_lib.records.batch import (
    HEADER_SIZE,
    BatchBuilder,
    BatchHeader,
    UnsupportedMagic,
    add_to_sequence,
    assign,
    batch_size,
    build_batch,
    build_batch_of_tails,
    build_empty_batch,
    crc_matches,
    read_batch_header,
    read_batches,
    read_magic,
)
from protocol_lib.records.compression import Codec
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch, read_marker
from protocol_lib.records.record import Record, read_records, write_tail
from support.late import Late

aiokafka_batches = Late("aiokafka.record.default_records")
aiokafka_records = Late("aiokafka.record.memory_records")
kafka_python_records = Late("kafka.record.memory_records")

NOW = 1_700_000_000_000
RECORDS = [
    Record(
        offset=100 + index,
        timestamp=NOW + (index * 37) % 11,
        key=None if index % 3 == 0 else f"key-{index}".encode(),
        value=None if index % 5 == 0 else bytes(index * 7),
        headers=(("h", b"x"), ("größe", None), ("h", b"")) if index % 4 == 0 else (),
    )
    for index in range(50)
]
CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
HEADER = struct.Struct(">qiibIhiqqqhii")


def batch_with(body: bytes, count: int) -> bytes:
    """Build a batch with a correct header around any body."""
    start = HEADER.pack(0, 49 + len(body), 0, 2, 0, 0, max(0, count - 1), NOW, NOW, -1, -1, -1, count)
    crc = crc32c(start[21:] + body)
    return start[:17] + struct.pack(">I", crc) + start[21:] + body


@pytest.mark.parametrize("count", [1, 2, 64, 65, 200])
def test_a_batch_of_tails_is_the_batch_of_their_records(count: int):
    given = [(b"k" * number or None, b"v" * (number * 7) or None) for number in range(count)]
    records = [Record(offset, NOW, *pair) for offset, pair in enumerate(given)]
    assert build_batch_of_tails([write_tail(*pair) for pair in given], NOW) == build_batch(records)


def test_a_batch_of_no_tails():
    with pytest.raises(EncodeError):
        build_batch_of_tails([], NOW)


def test_exact_bytes():
    batch = build_batch([Record(0, NOW, b"k", b"v", (("h", None),))], leader_epoch=3)
    assert batch == bytes.fromhex(
        "0000000000000000 0000003d 00000003 02 ecc46c11 0000 00000000 0000018bcfe56800 0000018bcfe56800"
        "ffffffffffffffff ffff ffffffff 00000001"
        "16 00 00 00 02 6b 02 76 02 02 68 01"
    )


def test_the_header():
    batch = build_batch(
        RECORDS,
        base_offset=100,
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=2,
        base_sequence=2**31 - 10,
        transactional=True,
        leader_epoch=5,
    )
    header = read_batch_header(b"xx" + batch, 2)
    assert header == BatchHeader(
        base_offset=100,
        batch_length=len(batch) - 12,
        partition_leader_epoch=5,
        magic=2,
        crc=crc32c(batch[21:]),
        attributes=0x14,
        last_offset_delta=49,
        base_timestamp=NOW,
        max_timestamp=NOW + 10,
        producer_id=7,
        producer_epoch=2,
        base_sequence=2**31 - 10,
        records_count=50,
    )
    assert (header.size, header.last_offset, header.codec) == (len(batch), 149, Codec.ZSTD)
    assert header.last_sequence == 39
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert not header.has_delete_horizon
    assert batch_size(batch) == len(batch)
    assert read_magic(batch) == 2


def test_sequences_wrap_to_zero():
    assert add_to_sequence(2**31 - 1, 1) == 0
    assert add_to_sequence(2**31 - 1, 0) == 2**31 - 1
    assert add_to_sequence(5, 7) == 12


@CODECS
def test_what_is_built_is_read(codec):
    batch = build_batch(RECORDS, base_offset=100, codec=codec)
    assert crc_matches(batch)
    assert list(read_records(batch)) == RECORDS
    assert list(read_records(memoryview(batch))) == RECORDS


@CODECS
def test_other_libraries_read_what_is_built(codec):
    batch = build_batch(RECORDS, base_offset=100, codec=codec)
    readers = (
        [aiokafka_records.MemoryRecords]
        if codec > Codec.GZIP
        else [aiokafka_records.MemoryRecords, kafka_python_records.MemoryRecords]
    )
    for reader in readers:  # kafka-python needs more packages for the other codecs
        read = reader(batch).next_batch()
        assert read.validate_crc()
        got = [Record(r.offset, r.timestamp, r.key, r.value, tuple((n, v) for n, v in r.headers)) for r in read]
        assert got == RECORDS


@CODECS
def test_what_aiokafka_builds_is_read(codec):
    builder = aiokafka_batches.DefaultRecordBatchBuilder(2, codec, True, 9, 4, 77, 1_000_000)
    for index, record in enumerate(RECORDS):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = read_batch_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 4, 77)
    assert (header.codec, header.is_transactional, header.records_count) == (codec, True, 50)
    assert crc_matches(batch)
    expected = [Record(r.offset - 100, r.timestamp, r.key, r.value, r.headers) for r in RECORDS]
    assert list(read_records(batch)) == expected


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=lambda codec: codec.name)
def test_what_kafka_python_builds_is_read(codec):
    builder = kafka_python_records.MemoryRecordsBuilder(2, codec, 1_000_000)
    for record in RECORDS:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    batch = bytes(builder.buffer())
    assert crc_matches(batch)
    expected = [Record(r.offset - 100, r.timestamp, r.key, r.value, r.headers) for r in RECORDS]
    assert list(read_records(batch)) == expected


def test_uncompressed_batches_are_aiokafka_s_byte_for_byte():
    builder = aiokafka_batches.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1_000_000)
    for index, record in enumerate(RECORDS):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    ours = [Record(r.offset - 100, r.timestamp, r.key, r.value, r.headers) for r in RECORDS]
    theirs = bytearray(builder.build())
    assign(theirs, 0, 0)
    assert build_batch(ours) == bytes(theirs)


def test_the_builder_counts_from_zero_and_stops_at_its_size():
    builder = BatchBuilder(size_max=HEADER_SIZE + 40)
    assert builder.append(NOW, b"k", bytes(100)) == Record(0, NOW, b"k", bytes(100))
    assert builder.append(NOW + 1, None, None) is None
    assert len(builder) == 1
    assert builder.size == len(builder.build())
    builder = BatchBuilder(codec=Codec.LZ4)
    for index in range(3):
        builder.append(NOW + index, None, b"v", [("h", b"x")])
    batch = builder.build(producer_id=1, producer_epoch=0, base_sequence=5)
    assert [record.offset for record in read_records(batch)] == [0, 1, 2]
    assert read_batch_header(batch).last_sequence == 7


def test_assigning_a_place_leaves_the_crc_right():
    batch = bytearray(build_batch(RECORDS, base_offset=100))
    assign(batch, 5_000_000_000, 12)
    assert crc_matches(batch)
    header = read_batch_header(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.size) == (5_000_000_000, 12, len(batch))
    assert next(read_records(batch)).offset == 5_000_000_000


def test_gaps_in_offsets_are_kept():
    sparse = [Record(10, NOW, None, b"a"), Record(17, NOW - 5, None, b"b"), Record(30, NOW, None, b"c")]
    batch = build_batch(sparse, base_offset=8)
    assert read_batch_header(batch).last_offset == 30
    assert list(read_records(batch)) == sparse


def test_under_log_append_time_every_record_has_the_batch_s_time():
    batch = bytearray(build_batch(RECORDS[:3], base_offset=100))
    struct.pack_into(">h", batch, 21, 0x08)
    struct.pack_into(">q", batch, 35, NOW + 999)
    assert {record.timestamp for record in read_records(batch)} == {NOW + 999}


def test_an_empty_batch_of_a_compacted_log_is_read():
    assert list(read_records(batch_with(b"", 0))) == []


def test_what_compaction_leaves_keeps_its_place_and_its_horizon():
    kept = [Record(103, NOW, b"k", None), Record(107, NOW + 9, b"k", b"v")]
    batch = build_batch(
        kept,
        base_offset=100,
        last_offset=149,
        delete_horizon_ms=NOW + 86_400_000,
        producer_id=7,
        producer_epoch=1,
        base_sequence=30,
        codec=Codec.GZIP,
    )
    header = read_batch_header(batch)
    assert header.has_delete_horizon
    assert (header.base_offset, header.last_offset, header.last_sequence) == (100, 149, 79)
    assert (header.base_timestamp, header.max_timestamp) == (NOW + 86_400_000, NOW + 9)
    assert list(read_records(batch)) == kept
    read = aiokafka_records.MemoryRecords(batch).next_batch()
    assert [(record.offset, record.timestamp) for record in read] == [(103, NOW), (107, NOW + 9)]
    with pytest.raises(EncodeError, match="2 records in a batch of offsets 100 to 100"):
        build_batch([Record(100, NOW, None, None), Record(101, NOW, None, None)], base_offset=100, last_offset=100)


def test_an_emptied_batch_keeps_its_place_and_its_producer():
    full = build_batch(
        RECORDS,
        base_offset=100,
        codec=Codec.ZSTD,
        producer_id=7,
        producer_epoch=1,
        base_sequence=30,
        transactional=True,
        leader_epoch=4,
    )
    batch = build_empty_batch(read_batch_header(full))
    header, before = read_batch_header(batch), read_batch_header(full)
    assert crc_matches(batch)
    assert len(batch) == HEADER_SIZE
    assert list(read_records(batch)) == []
    assert (header.attributes, header.records_count) == (0x10, 0)
    assert (header.base_timestamp, header.max_timestamp) == (-1, NOW + 10)
    for kept in ("base_offset", "last_offset", "partition_leader_epoch", "producer_id", "producer_epoch"):
        assert getattr(header, kept) == getattr(before, kept)
    assert header.last_sequence == before.last_sequence == 79


def test_batches_back_to_back():
    first, second = build_batch(RECORDS[:2], base_offset=100), build_batch(RECORDS[2:5], base_offset=102)
    got = [(header.base_offset, header.records_count, bytes(batch)) for header, batch in read_batches(first + second)]
    assert got == [(100, 2, first), (102, 3, second)]
    for end in range(len(first) + 1, len(first) + len(second)):
        with pytest.raises(DecodeError):
            list(read_batches((first + second)[:end]))


def test_any_changed_byte_after_the_crc_is_noticed():
    batch = build_batch(RECORDS[:2], base_offset=100)
    for position in range(17, len(batch)):
        changed = bytearray(batch)
        changed[position] ^= 0x01
        assert not crc_matches(changed)
    for position in range(17):
        changed = bytearray(batch)
        changed[position] ^= 0x01
        assert crc_matches(changed)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_formats_are_named(magic):
    batch = bytearray(build_batch(RECORDS[:1], base_offset=100))
    batch[16] = magic
    with pytest.raises(UnsupportedMagic) as caught:
        read_batch_header(batch)
    assert caught.value.magic == magic


def test_a_short_or_impossible_header_is_refused():
    batch = build_batch(RECORDS[:1], base_offset=100)
    for end in range(HEADER_SIZE):
        with pytest.raises(DecodeError):
            read_batch_header(batch[:end])
    for length in (-1, 0, 48, -(2**31)):
        broken = batch[:8] + struct.pack(">i", length) + batch[12:]
        for read in (read_batch_header, batch_size):
            with pytest.raises(DecodeError, match=f"length {length}"):
                read(broken)
    with pytest.raises(DecodeError):
        batch_size(batch[:11])
    with pytest.raises(DecodeError):
        read_magic(batch[:16])


def test_a_batch_needs_records_in_order():
    with pytest.raises(EncodeError, match="without records"):
        build_batch([])
    with pytest.raises(EncodeError, match="offsets 5 to 5 in a batch of base offset 6"):
        build_batch([Record(5, NOW, None, None)], base_offset=6)
    with pytest.raises(EncodeError, match="offsets 0 to 0"):
        build_batch([Record(0, NOW, None, None), Record(0, NOW, None, None)])


@pytest.mark.parametrize("type_", [ControlType.ABORT, ControlType.COMMIT])
def test_markers(type_):
    marker = EndTransactionMarker(type_, coordinator_epoch=9)
    batch = build_marker_batch(marker, timestamp=NOW, producer_id=3, producer_epoch=1, base_offset=20)
    header = read_batch_header(batch)
    assert (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence) == (0x30, 3, 1, -1)
    (record,) = read_records(batch)
    assert (record.key, record.value) == (struct.pack(">hh", 0, type_), struct.pack(">hi", 0, 9))
    assert read_marker(record) == marker
    assert crc_matches(batch)


def test_control_records_of_other_kinds():
    assert read_marker(Record(0, NOW, struct.pack(">hh", 0, 2), b"anything")) is None
    newer = EndTransactionMarker(ControlType.COMMIT, 5)
    assert read_marker(Record(0, NOW, struct.pack(">hhb", 1, 1, 9), struct.pack(">hib", 1, 5, 9))) == newer
    for key, value in (
        (None, None),
        (b"\0\0\0", None),
        (struct.pack(">hh", -1, 1), struct.pack(">hi", 0, 5)),
        (struct.pack(">hh", 0, 1), None),
        (struct.pack(">hh", 0, 1), b"\0\0\0\0\0"),
    ):
        with pytest.raises(DecodeError):
            read_marker(Record(0, NOW, key, value))
