"""Every exit of the append pipeline, with its error code; nothing of a refused batch stays in the log."""

from __future__ import annotations

import zlib

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.records.batch import build_batch, read_batch_header
from protocol_lib.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from protocol_lib.records.record import Record, read_records
from protocol_lib.records.walker import NOT_SOUND
from protocol_lib.varint import write_signed
from storage_svc.log.batch.admission import admit
from storage_svc.log.batch.header import unpack_header
from storage_svc.log.batch.record_checks import checked, decompressed_bytes_max
from storage_svc.log.batch.rules import RECORD_ERRORS_MAX, Refusal, Rules
from storage_svc.log.config import LogConfig
from storage_svc.log.partition.partition_log import Origin
from support.crafted_batches import batch_of, edited, with_records

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


GOOD = batch_of((NOW_MS, b"k"), (NOW_MS + 1, b"k"))
ZSTD = batch_of((NOW_MS, b"k"), codec=Codec.ZSTD)
KEYLESS = batch_of((NOW_MS, b"k"), (NOW_MS, None), (NOW_MS, b""), (NOW_MS, None))
COMPACT = {"cleanup.policy": "compact"}
HEADER_ONLY = {"millrace.record.validation": "header"}
UNCOMPRESSED = {"compression.type": "uncompressed"}
GROWING = batch_of(*[(NOW_MS, b"k" * 20)] * 50, codec=Codec.ZSTD)
ODD_KEY = build_batch([Record(0, NOW_MS, b"k", b"v", (("\udcff\udcfe", b"1"),))])
STAMPED = edited(GOOD, 21, ">h", 0x08)
TOO_OLD = batch_of((NOW_MS, b"k"), (NOW_MS - 1001, b"k"), (-1, b"k"))
BOMB = zlib.compress(bytes(17 << 20), wbits=31)
ONE_RECORD = bytes(GOOD[61 : 61 + 1 + (GOOD[61] >> 1)])

#: A timestamp delta of 2**63 - 1 milliseconds, after a record of today.
OVERFLOW_RECORD = b"\0" + write_signed(2**63 - 1) + b"\2\2k\1\0"
TIME_OVERFLOW = with_records(ONE_RECORD + bytes([2 * len(OVERFLOW_RECORD)]) + OVERFLOW_RECORD, 2)


def produced(epoch: int, sequence: int, *, transactional: bool = False) -> bytes:
    """Return a batch of the producer whose first batch every case appends, under epoch 5 with sequence 0."""
    options = {"producer_id": 9, "producer_epoch": epoch, "base_sequence": sequence, "transactional": transactional}
    return batch_of((NOW_MS, b"k"), **options)


#: A case: the bytes to append, the topic's settings, the error code, and the indexes of the records that are blamed.
CASES: dict[str, tuple[bytes, dict[str, str], int, list[int]]] = {
    "4 nothing": (b"", {}, 87, []),
    "4 shorter than a length": (GOOD[:11], {}, 87, []),
    "4 shorter than a magic byte": (GOOD[:16], {}, 87, []),
    "4 cut off": (GOOD[:-1], {}, 87, []),
    "4 huge length": (edited(GOOD, 8, ">i", 2**31 - 1), {}, 87, []),
    "4 magic 0": (edited(GOOD, 16, ">B", 0), {}, 87, []),
    "4 magic 1": (edited(GOOD, 16, ">B", 1), {}, 87, []),
    "4 two batches": (GOOD + GOOD, {}, 87, []),
    "4 trailing byte": (GOOD + b"\0", {}, 87, []),
    "5 length 13": (edited(GOOD, 8, ">i", 13), {}, 2, []),
    "5 length 13 and no magic byte": (edited(GOOD[:16], 8, ">i", 13, crc=False), {}, 2, []),
    "5 length -1": (edited(GOOD, 8, ">i", -1), {}, 2, []),
    "5 magic 3": (edited(GOOD, 16, ">B", 3), {}, 2, []),
    "5 magic -1": (edited(GOOD, 16, ">b", -1), {}, 2, []),
    "5 second batch of length 13": (GOOD + edited(GOOD, 8, ">i", 13), {}, 2, []),
    "10 base offset 1": (edited(GOOD, 0, ">q", 1), {}, 87, []),
    "10 base offset before size": (edited(GOOD, 0, ">q", 1), {"max.message.bytes": "10"}, 87, []),
    "10 base offset of a batch shorter than a header": (edited(edited(GOOD[:40], 8, ">i", 28), 0, ">q", 1), {}, 87, []),
    "11 too large": (GOOD, {"max.message.bytes": str(len(GOOD) - 1)}, 10, []),
    "11 too large before crc": (edited(GOOD, 17, ">I", 1, crc=False), {"max.message.bytes": "70"}, 10, []),
    "12 wrong crc": (edited(GOOD, 17, ">I", 1, crc=False), {}, 2, []),
    "12 flipped byte": (GOOD[:-3] + bytes([GOOD[-3] ^ 1]) + GOOD[-2:], {}, 2, []),
    "12 shorter than a header": (edited(GOOD[:40], 8, ">i", 28), {}, 2, []),
    "13 codec 5": (edited(GOOD, 21, ">h", 5), {}, 76, []),
    "13 codec 7": (edited(GOOD, 21, ">h", 7), {}, 76, []),
    "14 broken zstd on a compacted topic": (edited(GOOD, 21, ">h", Codec.ZSTD), COMPACT, -1, []),
    "14 broken gzip to be recompressed": (edited(GOOD, 21, ">h", Codec.GZIP), {"compression.type": "lz4"}, -1, []),
    "14 decompresses to too much": (with_records(BOMB, 2, Codec.GZIP), COMPACT, 87, []),
    "15 fewer records than offsets": (edited(GOOD, 57, ">i", 1), {}, 87, []),
    "15 no records": (edited(edited(GOOD, 57, ">i", 0), 23, ">i", -1), {}, 87, []),
    "15 offsets run backwards": (edited(GOOD, 23, ">i", -2), {}, 87, []),
    "15 records without bytes": (with_records(b"", 5), {}, 87, []),
    "15 as many records as offsets in a segment": (with_records(b"", 2**31 - 1), {}, 87, []),
    "15 a record of 6 bytes": (with_records(bytes(6), 1), {}, 87, []),
    "15 a record more than the bytes have room for": (with_records(bytes(20), 3), HEADER_ONLY, 87, []),
    "15 compressed records without bytes": (with_records(b"", 1, Codec.GZIP), {}, -1, []),
    "15 a record more than may be decompressed": (
        with_records(b"\0", (16 << 20) // 7 + 1, Codec.GZIP),
        HEADER_ONLY,
        87,
        [],
    ),
    "15 control batch": (edited(GOOD, 21, ">h", 0x30), {}, 87, []),
    "15 producer id without a sequence": (edited(GOOD, 43, ">q", 1), {}, 87, []),
    "16 record without a key": (KEYLESS, COMPACT, 87, [1, 3]),
    "16 record without a key, compact,delete": (KEYLESS, {"cleanup.policy": "compact,delete"}, 87, [1, 3]),
    "16 record longer than the batch": (with_records(ONE_RECORD + b"\x30", 2), COMPACT, 87, []),
    "16 timestamp of more than 64 bits": (TIME_OVERFLOW, COMPACT, 32, [1]),
    "16 record of no length": (with_records(ONE_RECORD + b"\x00" * 9, 2), COMPACT, 87, []),
    "16 record cut off": (with_records(ONE_RECORD, 2), COMPACT, 87, []),
    "16 bytes behind the records": (with_records(ONE_RECORD + b"\x00", 1), COMPACT, 87, []),
    "16 key longer than the record": (with_records(b"\x0c\0\0\0\x20\0\0", 1), COMPACT, 87, []),
    "16 key length -2": (with_records(b"\x0c\0\0\0\x03\0\0", 1), COMPACT, 87, []),
    "16 more headers than bytes": (with_records(b"\x0c\0\0\0\0\0\x7e", 1), COMPACT, 87, []),
    "16 record header without a key": (with_records(b"\x10\0\0\0\0\0\x02\x01\0", 1), COMPACT, 87, []),
    "16 record shorter than its length": (with_records(b"\x0e\0\0\0\0\0\0\0", 1), COMPACT, 87, []),
    "17 too new": (batch_of((NOW_MS, b"k"), (NOW_MS + HOUR_MS + 1, b"k")), {}, 32, [1]),
    "17 too old": (TOO_OLD, {"message.timestamp.before.max.ms": "1000"}, 32, [1]),
    "17 newer than the topic allows": (
        batch_of((NOW_MS + 10, b"k")),
        {"message.timestamp.after.max.ms": "9"},
        32,
        [0],
    ),
    "17 older than any limit": (batch_of((NOW_MS - 2**63, b"k")), {}, 32, [0]),
    "17 wins over 16": (batch_of((NOW_MS, None), (NOW_MS + HOUR_MS + 1, b"k")), COMPACT | {}, 32, [0, 1]),
    "17 log append time by the producer": (STAMPED, {}, 32, [0, 1]),
    "17 log append time is the broker's": (STAMPED, {"message.timestamp.type": "LogAppendTime"}, 32, [0, 1]),
    "18 too large after recompression": (GROWING, UNCOMPRESSED | {"max.message.bytes": "500"}, 10, []),
    "18 larger than a segment": (GOOD, {"segment.bytes": str(len(GOOD) - 1)}, 18, []),
    "18 larger than a segment after recompression": (GROWING, UNCOMPRESSED | {"segment.bytes": "500"}, 18, []),
    "20 older epoch": (produced(4, 1), {}, 47, []),
    "21 gap in the sequence": (produced(5, 2), {}, 45, []),
    "21 new epoch, sequence not 0": (produced(6, 1), {}, 45, []),
    "22 transactional, no transaction": (produced(5, 1, transactional=True), {}, 48, []),
    "22 before the sequence": (produced(5, 7, transactional=True), {}, 48, []),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(tmp_path, folders, read_all, case):
    records, properties, code, blamed = CASES[case]
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    assert log.append(produced(5, 0)).error_code == 0
    before = read_all(log), log.producers.encode(), log.segments.active.size
    log.configure(LogConfig.from_properties(properties))
    appended = log.append(records, verified=False)
    assert (appended.error_code, appended.base_offset, appended.last_offset) == (code, -1, -1)
    assert appended.error_message
    assert [index for index, message in appended.record_errors if message] == blamed
    assert (log.log_end_offset, log.high_watermark) == (1, 1)
    log.configure(LogConfig())
    assert (read_all(log), log.producers.encode(), log.segments.active.size) == before
    assert [log.append(produced(5, 1)).base_offset for _ in range(2)] == [1, 1]


ACCEPTED: dict[str, tuple[bytes, dict[str, str]]] = {
    "max.message.bytes exactly": (GOOD, {"max.message.bytes": str(len(GOOD))}),
    "segment.bytes exactly": (GOOD, {"segment.bytes": str(len(GOOD))}),
    "an hour ahead": (batch_of((NOW_MS + HOUR_MS, b"k")), {}),
    "as old as may be": (batch_of((NOW_MS - 1000, b"k")), {"message.timestamp.before.max.ms": "1000"}),
    "no timestamp at all": (batch_of((-1, b"k")), {"message.timestamp.before.max.ms": "1000"}),
    "the broker's clock counts": (batch_of((NOW_MS + 2 * HOUR_MS, b"k")), {"message.timestamp.type": "LogAppendTime"}),
    "keys on a compacted topic": (batch_of((NOW_MS, b"k"), (NOW_MS, b"")), COMPACT),
    "opened for nothing": (ZSTD, COMPACT),
    "no key where none is needed": (KEYLESS, {}),
    "as many records as the bytes have room for": (with_records(bytes(21), 3), HEADER_ONLY),
    "as many records as may be decompressed": (with_records(b"\0", (16 << 20) // 7, Codec.GZIP), HEADER_ONLY),
    "a header's key in bytes that are not UTF-8": (ODD_KEY, COMPACT),
    "records nobody opens": (edited(GOOD, 21, ">h", Codec.ZSTD), HEADER_ONLY),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(tmp_path, folders, read_all, case):
    records, properties = ACCEPTED[case]
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig.from_properties(properties))
    appended = log.append(records)
    assert (appended.error_code, appended.base_offset, appended.error_message) == (0, 0, None)
    assert read_all(log)[61:] == records[61:]


def test_the_key_of_a_header_survives_another_compression(tmp_path, folders, read_all):
    config = LogConfig.from_properties({"compression.type": "gzip"})
    log = folders.open(tmp_path).create("t", 0, bytes(16), config)
    assert log.append(ODD_KEY).error_code == 0
    assert read_batch_header(read_all(log)).codec == Codec.GZIP
    assert list(read_records(read_all(log))) == list(read_records(ODD_KEY))


def test_an_answer_names_so_many_bad_records_and_no_more(tmp_path, folders):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig.from_properties(COMPACT))
    appended = log.append(batch_of(*[(NOW_MS, None)] * (RECORD_ERRORS_MAX + 5)))
    assert appended.error_code == 87
    assert [index for index, _ in appended.record_errors] == list(range(RECORD_ERRORS_MAX))


@pytest.mark.parametrize(
    ("stated", "records"),
    [
        (NOW_MS - 5, ((NOW_MS, b"k"), (NOW_MS + 7, b"k"))),
        (NOW_MS + 9 * HOUR_MS, ((NOW_MS + 7, b"k"), (NOW_MS, b"k"))),
        (NOW_MS + 8, ((NOW_MS + 7, b"k"),)),
    ],
    ids=["before the first record", "out of bounds", "another than the only record's"],
)
@pytest.mark.parametrize("validation", ["full", "header"])
def test_a_largest_timestamp_that_cannot_be_right_is_made_right(
    tmp_path, folders, read_all, stated, records, validation
):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig(millrace_record_validation=validation))
    right = batch_of(*records)
    assert log.append(edited(right, 35, ">q", stated)).error_code == 0
    assert read_all(log) == right


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("stated", [-1, NOW_MS, NOW_MS + 2000], ids=["none", "the first record's", "too large"])
def test_a_wrong_largest_timestamp_is_made_right_at_any_size(tmp_path, folders, read_all, codec, stated):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    right = batch_of(*[(NOW_MS + n, b"k") for n in range(1500)], codec=codec)
    assert log.append(edited(right, 35, ">q", stated)).error_code == 0
    assert read_all(log) == right


@pytest.mark.parametrize("stated", [-(2**63), -3, NOT_SOUND, -1, NOW_MS])
def test_no_largest_timestamp_of_a_header_makes_broken_records_sound(tmp_path, folders, stated):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    broken = edited(edited(batch_of((NOW_MS, b"k")), 61, ">b", 1), 35, ">q", stated)
    assert log.append(broken).error_code == ErrorCode.INVALID_RECORD


def test_headers_alone_are_believed_unless_they_say_no_largest_timestamp(tmp_path, folders, read_all):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig(millrace_record_validation="header"))
    right = batch_of(*[(NOW_MS + n, b"k") for n in range(1500)])
    believed = edited(right, 35, ">q", NOW_MS + 3)
    assert log.append(believed).error_code == 0
    assert log.append(edited(right, 35, ">q", -1)).error_code == 0
    assert read_all(log)[61 : len(right)] + read_all(log)[len(right) + 61 :] == right[61:] * 2
    assert [read_batch_header(read_all(log), at).max_timestamp for at in (0, len(right))] == [NOW_MS + 3, NOW_MS + 1499]


@pytest.mark.parametrize("codec", Codec)
def test_inner_offsets_of_old_clients_are_made_right(tmp_path, folders, read_all, codec):
    """Records that all say offset 0."""
    right = batch_of((NOW_MS, b"a"), (NOW_MS + 3, b"b"), codec=codec)
    body = bytearray().join(
        bytes((0x18, 0, 2 * delta, 0, 2)) + key + bytes((0x0A,)) + b"value" + bytes((0,))
        for delta, key in ((0, b"a"), (3, b"b"))
    )
    wrong = bytearray(edited(with_records(compress(codec, bytes(body)), 2, codec), 35, ">q", NOW_MS + 3))
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig.from_properties(COMPACT))
    assert log.append(bytes(wrong)).error_code == 0
    assert list(read_records(read_all(log))) == list(read_records(right))


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_not_for_clients(tmp_path, folders, make_batch, topic):
    log = folders.open(tmp_path).create(topic, 0, bytes(16), LogConfig())
    assert log.append(make_batch(1)).error_code == 17
    assert log.append(make_batch(1), origin=Origin.COORDINATOR).error_code == 0


def test_log_append_time(tmp_path, folders, make_batch, read_all):
    config = LogConfig(message_timestamp_type="LogAppendTime")
    log = folders.open(tmp_path).create("t", 0, bytes(16), config)
    batch = make_batch(3, timestamp=123, producer_id=1, producer_epoch=0, base_sequence=0)
    appended = log.append(batch)
    assert (appended.error_code, appended.log_append_time_ms) == (0, NOW_MS)
    stored = read_all(log)
    header = read_batch_header(stored)
    assert (header.is_log_append_time, header.max_timestamp, header.base_timestamp) == (True, NOW_MS, 123)
    assert crc32c(stored[21:]) == header.crc
    assert stored[61:] == batch[61:]
    assert [record.timestamp for record in read_records(stored)] == [NOW_MS] * 3
    assert log.append(batch).log_append_time_ms == NOW_MS  # the duplicate has the time of the first


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_topic_with_its_own_compression(tmp_path, folders, make_batch, read_all, codec):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig(compression_type=codec))
    batch = make_batch(5, size=200, codec=Codec.LZ4, producer_id=3, producer_epoch=1, base_sequence=8)
    assert log.append(batch).error_code == 0
    stored = read_all(log)
    header = read_batch_header(stored)
    assert header.codec == (Codec.NONE if codec == "uncompressed" else Codec[codec.upper()])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 8)
    assert list(read_records(stored)) == list(read_records(batch))


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_compression_levels(tmp_path, folders, make_batch, read_all, codec):
    sizes = {}
    for level in ("1", "9"):
        config = LogConfig.from_properties({"compression.type": codec, f"compression.{codec}.level": level})
        log = folders.open(tmp_path / level).create("t", 0, bytes(16), config)
        records = [Record(n, NOW_MS, b"%d" % (n * n), b"%d" % (n**5) * 3) for n in range(2000)]
        assert log.append(build_batch(records)).error_code == 0
        stored = read_all(log)
        assert list(read_records(stored)) == records
        sizes[level] = len(stored)
    assert sizes["9"] < sizes["1"]


BODY = b"".join(
    build_batch([Record(n, NOW_MS + n, key, value, headers)], base_offset=0, base_timestamp=NOW_MS)[61:]
    for n, (key, value, headers) in enumerate(
        [
            (b"key", b"value", ()),
            (b"", None, (("header", b"content"), ("another", None))),
            (None, b"v" * 100, (("\u00e9", b""),)),
            (b"k" * 70, b"", ()),
        ]
    )
)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), max_size=3), st.integers(0, 6))
def test_records_are_malformed_where_the_protocol_library_says_so(changes, cut):
    body = bytearray(BODY[: len(BODY) - cut])
    for at, value in changes:
        if at < len(body):
            body[at] = value
    batch = with_records(bytes(body), 4)
    try:
        list(read_records(batch))
        malformed = False
    except DecodeError:
        malformed = True
    admitted = admit(memoryview(batch), Rules(LogConfig.from_properties(COMPACT)), NOW_MS)
    refused_as_malformed = isinstance(admitted, Refusal) and "malformed" in admitted.message
    assert refused_as_malformed == malformed


def test_no_batch_may_become_more_than_readers_open():
    sizes = {1_048_588: 16 << 20, 5_000_000: 50_000_000, 2**31 - 1: DECOMPRESSED_BYTES_MAX}
    for largest, limit in sizes.items():
        assert decompressed_bytes_max(Rules(LogConfig(max_message_bytes=largest))) == limit
    plain = memoryview(bytes(61 + DECOMPRESSED_BYTES_MAX + 1))
    rules = Rules(LogConfig.from_properties({"compression.type": "zstd", "max.message.bytes": str(2**31 - 1)}))
    refusal = checked(plain, unpack_header(GOOD), rules, NOW_MS, None, None)
    assert isinstance(refusal, Refusal)
    assert (refusal.error_code, refusal.message.partition(" ")[0]) == (87, str(len(plain) - 61))
