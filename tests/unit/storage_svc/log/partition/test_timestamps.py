"""Offsets by timestamp against a walk over every record."""

from __future__ import annotations

import random

import pytest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from storage_svc.log.config import LogConfig
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.retention import drop_oldest

from tests.unit.storage_svc.log.looking_up import by_timestamps


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
    assert by_timestamps(log, wanted) == [*map(expected, wanted), expected(largest)]
    drop_oldest(log, [DeletionReason.TIME] * 2)
    records = [(t, offset) for t, offset in records if offset >= log.log_start_offset]
    largest = max(t for t, _ in records)
    assert by_timestamps(log, wanted) == [*map(expected, wanted), expected(largest)]
    folders.stop(directory)
    log = folders.open(tmp_path).logs["t", 0]
    assert by_timestamps(log, wanted) == [*map(expected, wanted), expected(largest)]


def test_records_without_timestamps(tmp_path, folders):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    log.append(build_batch([Record(0, -1, b"k", b"v")]))
    assert by_timestamps(log, [0]) == [None, None]


def test_empty_log(tmp_path, folders):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    assert by_timestamps(log, [0]) == [None, None]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_before_the_log_start_are_not_found(tmp_path, folders, codec):
    """The log start lies inside a batch, and records before it are as young as the wanted one."""
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    times = [10] * 1500 + [30, 50, 40, 60, 20]
    log.append(build_batch([Record(i, t, b"k", b"v") for i, t in enumerate(times)], codec=codec))
    wanted = [10, 45, 50, 55, 61]
    assert by_timestamps(log, wanted) == [(10, 0), (50, 1501), (50, 1501), (60, 1503), None, (60, 1503)]
    log.raise_log_start(1502)
    assert by_timestamps(log, wanted) == [(40, 1502), (60, 1503), (60, 1503), (60, 1503), None, (60, 1503)]
