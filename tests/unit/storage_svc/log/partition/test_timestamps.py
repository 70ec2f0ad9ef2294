"""Offsets by timestamp against a walk over every record."""

from __future__ import annotations

import random

from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from storage_svc.log.config import LogConfig
from storage_svc.log.partition.timestamps import find_largest, find_timestamp, first_record


def found(batch):
    record = None if batch is None else first_record(batch)
    return None if record is None else (record.timestamp, record.offset)


def test_agrees_with_a_full_walk(tmp_path, folders):
    chance = random.Random(5)
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), LogConfig(segment_bytes=1500, index_interval_bytes=100))
    records: list[tuple[int, int]] = []  # (timestamp, offset), timestamps out of order
    for n in range(80):
        count = chance.randint(1, 6)
        times = [10_000 + n * 10 + chance.randint(-200, 200) for _ in range(count)]
        codec = chance.choice([Codec.NONE, Codec.LZ4, Codec.GZIP])
        base = log.append(build_batch([Record(i, t, b"k", b"v") for i, t in enumerate(times)], codec=codec)).base_offset
        records += [(t, base + i) for i, t in enumerate(times)]
    assert len(log.segments.bases) > 3

    def expected(timestamp: int) -> tuple[int, int] | None:
        return next(((t, offset) for t, offset in records if t >= timestamp), None)

    largest = max(t for t, _ in records)
    wanted = [0, 1, largest - 1, largest, largest + 1, *(chance.randint(9_700, 11_100) for _ in range(200))]
    for timestamp in wanted:
        assert found(find_timestamp(log, timestamp, log.log_start_offset)) == expected(timestamp), timestamp
    assert found(find_largest(log)) == expected(largest)
    log.drop_oldest(2)
    records = [(t, offset) for t, offset in records if offset >= log.log_start_offset]
    for timestamp in wanted:
        assert found(find_timestamp(log, timestamp, log.log_start_offset)) == expected(timestamp), timestamp
    folders.stop(directory)
    log = folders.open(tmp_path).logs["t", 0]
    for timestamp in wanted:
        assert found(find_timestamp(log, timestamp, log.log_start_offset)) == expected(timestamp), timestamp


def test_records_without_timestamps(tmp_path, folders):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    log.append(build_batch([Record(0, -1, b"k", b"v")]))
    assert find_largest(log) is None
    assert find_timestamp(log, 0, log.log_start_offset) is None


def test_empty_log(tmp_path, folders):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    assert (find_largest(log), find_timestamp(log, 0, log.log_start_offset)) == (None, None)
