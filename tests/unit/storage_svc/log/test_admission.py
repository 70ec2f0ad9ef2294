"""Every refusal of a produced batch, with its error code."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from protocol_lib.records.batch import build_batch, read_batch_header
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record, read_records
from storage_svc.log.config import LogConfig
from storage_svc.log.partition_log import Origin

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def edited(batch: bytes, at: int, layout: str, value: int, *, crc: bool = True) -> bytes:
    """The batch with one field changed, its CRC made right again unless told otherwise."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, at, value)
    if crc:
        struct.pack_into(">I", changed, 17, crc32c(changed[21:]))
    return bytes(changed)


CASES = {
    "nothing": (lambda b: b"", 87),
    "shorter than a magic byte": (lambda b: b[:16], 87),
    "cut off": (lambda b: b[:-1], 87),
    "two batches": (lambda b: b + b, 87),
    "trailing byte": (lambda b: b + b"\0", 87),
    "length 13": (lambda b: edited(b, 8, ">i", 13), 2),
    "length -1": (lambda b: edited(b, 8, ">i", -1), 2),
    "length 14": (lambda b: edited(b[:61], 8, ">i", 14), 2),
    "huge length": (lambda b: edited(b, 8, ">i", 2**31 - 1), 87),
    "magic 3": (lambda b: edited(b, 16, ">B", 3), 2),
    "magic 1": (lambda b: edited(b, 16, ">B", 1), 87),
    "magic 0": (lambda b: edited(b, 16, ">B", 0), 87),
    "base offset 1": (lambda b: edited(b, 0, ">q", 1), 87),
    "wrong crc": (lambda b: edited(b, 17, ">I", 1, crc=False), 2),
    "flipped byte": (lambda b: b[:-3] + bytes([b[-3] ^ 1]) + b[-2:], 2),
    "codec 5": (lambda b: edited(b, 21, ">h", 5), 76),
    "codec 7": (lambda b: edited(b, 21, ">h", 7), 76),
    "fewer records than offsets": (lambda b: edited(b, 57, ">i", 1), 87),
    "no records": (lambda b: edited(edited(b, 57, ">i", 0), 23, ">i", -1), 87),
    "control batch": (lambda b: edited(b, 21, ">h", 0x20), 87),
    "transactional": (lambda b: edited(edited(edited(b, 21, ">h", 0x10), 43, ">q", 1), 53, ">i", 0), 48),
    "log append time by the producer": (lambda b: edited(b, 21, ">h", 0x08), 32),
    "an hour and a moment ahead": (lambda b: edited(b, 35, ">q", NOW_MS + HOUR_MS + 1), 32),
    "producer id without a sequence": (lambda b: edited(b, 43, ">q", 1), 87),
}


@pytest.fixture
def log(tmp_path, folders):
    return folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())


@pytest.mark.parametrize("case", CASES)
def test_refused(log, make_batch, case):
    edit, code = CASES[case]
    appended = log.append(edit(make_batch(2)))
    assert (appended.error_code, appended.base_offset) == (code, -1)
    assert appended.error_message
    assert log.log_end_offset == 0


def test_an_hour_ahead_is_accepted(log, make_batch):
    assert log.append(edited(make_batch(1), 35, ">q", NOW_MS + HOUR_MS)).error_code == 0


def test_size_is_checked_before_the_crc(tmp_path, folders, make_batch):
    batch = make_batch(1)
    directory = folders.open(tmp_path)
    exact = directory.create("a", 0, bytes(16), LogConfig(max_message_bytes=len(batch)))
    assert exact.append(batch).error_code == 0
    below = directory.create("b", 0, bytes(16), LogConfig(max_message_bytes=len(batch) - 1))
    assert below.append(edited(batch, 17, ">I", 1, crc=False)).error_code == 10
    segment = directory.create("c", 0, bytes(16), LogConfig(segment_bytes=len(batch) - 1))
    assert segment.append(batch).error_code == 18


def test_too_old(tmp_path, folders, make_batch):
    config = LogConfig(message_timestamp_before_max_ms=1000)
    log = folders.open(tmp_path).create("t", 0, bytes(16), config)
    assert log.append(make_batch(1, timestamp=NOW_MS - 1001)).error_code == 32
    assert log.append(make_batch(1, timestamp=NOW_MS - 1000)).error_code == 0


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_not_for_clients(tmp_path, folders, make_batch, topic):
    log = folders.open(tmp_path).create(topic, 0, bytes(16), LogConfig())
    assert log.append(make_batch(1)).error_code == 17
    assert log.append(make_batch(1), origin=Origin.COORDINATOR).error_code == 0


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topics_need_keys(tmp_path, folders, policy):
    config = LogConfig.from_properties({"cleanup.policy": policy})
    log = folders.open(tmp_path).create("t", 0, bytes(16), config)
    records = [Record(n, 0, None if n in (1, 3) else b"k", b"v") for n in range(4)]
    appended = log.append(build_batch(records, codec=Codec.LZ4))
    assert appended.error_code == 87
    assert [index for index, _ in appended.record_errors] == [1, 3]
    assert log.append(build_batch([Record(0, 0, b"k", None)])).error_code == 0


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


def test_broken_compressed_records_where_they_must_be_opened(tmp_path, folders, make_batch):
    broken = edited(make_batch(1), 21, ">h", Codec.ZSTD)
    directory = folders.open(tmp_path)
    assert directory.create("a", 0, bytes(16), LogConfig(compression_type="gzip")).append(broken).error_code == 2
    compacted = LogConfig(cleanup_policy=frozenset(("compact",)))
    assert directory.create("b", 0, bytes(16), compacted).append(broken).error_code == 87
    assert directory.create("c", 0, bytes(16), LogConfig()).append(broken).error_code == 0  # not opened
