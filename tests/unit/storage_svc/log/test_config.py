"""Topic configs altered at run time: the behaviour of an open log from then on.

Those of compaction are in cleaner/test_choice.py, flush.policy is in test_durability.py, reasons for refusing a batch
are in batch/test_admission.py.
"""

from __future__ import annotations

import asyncio
import os

import pytest
from protocol_lib.records.batch import read_batch_header
from protocol_lib.records.compression import Codec
from storage_svc.log.config import LogConfig
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.retention import apply_retention

NOW_MS = 1_700_000_000_000


@pytest.fixture
def log(tmp_path, folders):
    return folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())


def alter(log, **properties):
    log.configure(LogConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()}))


def bases(log):
    return list(log.segments.bases)


def test_segment_bytes(log, fill):
    fill(log, [1] * 10)
    alter(log, segment_bytes="300")
    fill(log, [1] * 4)
    assert bases(log) == [0, 10, 13]


def test_segment_ms(log, make_batch):
    log.append(make_batch(1, timestamp=NOW_MS - 1000))
    log.append(make_batch(1, timestamp=NOW_MS))
    alter(log, segment_ms="999")
    log.append(make_batch(1, timestamp=NOW_MS))
    assert bases(log) == [0, 2]


def test_segment_jitter_ms(log, make_batch):
    log.append(make_batch(1, timestamp=NOW_MS - 1000))
    alter(log, segment_ms="1000")
    log.append(make_batch(1, timestamp=NOW_MS))
    assert bases(log) == [0]
    # The jitter is a share of this, drawn for each segment: nearly always more than nothing.
    for base in range(2, 40):
        alter(log, segment_ms="1000", segment_jitter_ms="1000")
        log.append(make_batch(1, timestamp=NOW_MS + base * 999))
    assert len(bases(log)) > 20


def entries(log):
    """Return how many entries each segment's offset index file has, all segments being complete."""
    log.roll(NOW_MS)
    return [os.path.getsize(f"{log.folder}/{base:020d}.index") // 8 for base in log.segments.bases[:-1]]


def test_index_interval_bytes(log, fill):
    fill(log, [1] * 10)
    alter(log, index_interval_bytes="0")
    fill(log, [1] * 10)
    assert entries(log) == [10]


def test_segment_index_bytes(log, fill):
    """From the next segment on, as in Kafka."""
    alter(log, segment_index_bytes="24", index_interval_bytes="0")
    fill(log, [1] * 10)
    log.roll(NOW_MS)
    fill(log, [1] * 7)
    assert max(entries(log)[1:]) <= 3
    assert len(bases(log)) > 3


def test_max_message_bytes(log, make_batch):
    batch = make_batch(1)
    alter(log, max_message_bytes=str(len(batch) - 1))
    assert log.append(batch).error_code == 10
    alter(log, max_message_bytes=str(len(batch)))
    assert log.append(batch).error_code == 0


def test_message_timestamp_type(log, make_batch):
    assert log.append(make_batch(1, timestamp=5)).log_append_time_ms == -1
    alter(log, message_timestamp_type="LogAppendTime")
    assert log.append(make_batch(1, timestamp=5)).log_append_time_ms == NOW_MS


def test_message_timestamp_bounds(log, make_batch):
    old, new = make_batch(1, timestamp=NOW_MS - 10), make_batch(1, timestamp=NOW_MS + 10)
    assert [log.append(each).error_code for each in (old, new)] == [0, 0]
    alter(log, message_timestamp_before_max_ms="9")
    assert [log.append(each).error_code for each in (old, new)] == [32, 0]
    alter(log, message_timestamp_after_max_ms="9")
    assert [log.append(each).error_code for each in (old, new)] == [0, 32]


def test_compression_type(log, make_batch):
    log.append(make_batch(1))
    alter(log, compression_type="lz4")
    log.append(make_batch(1))
    assert [read_batch_header(log.read_batches(offset, 1)).codec for offset in (0, 1)] == [Codec.NONE, Codec.LZ4]


def test_cleanup_policy(log, make_batch):
    alter(log, cleanup_policy="compact")
    assert log.append(make_batch(1, key=None)).error_code == 87
    alter(log, cleanup_policy="delete")
    assert log.append(make_batch(1, key=None)).error_code == 0


def test_retention(log, fill):
    alter(log, segment_bytes="300")
    fill(log, [1] * 6)
    assert apply_retention(log, NOW_MS) == 0
    size = log.segments.size_bytes
    alter(log, segment_bytes="300", retention_bytes=str(size - 1))
    assert apply_retention(log, NOW_MS) == 0  # the oldest segment is larger than the surplus
    alter(log, segment_bytes="300", retention_bytes=str(size - log.segments[0].size))
    assert apply_retention(log, NOW_MS) > 0
    assert log.log_start_offset == 3
    alter(log, segment_bytes="300", retention_ms="1000")
    assert apply_retention(log, NOW_MS + 1000) == 0
    assert apply_retention(log, NOW_MS + 2000) > 0
    assert log.log_start_offset == 6


async def test_file_delete_delay_ms(tmp_path, folders, fill):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    fill(log, [1])
    log.roll(NOW_MS)
    fill(log, [1])
    log.roll(NOW_MS)
    log.drop_oldest([DeletionReason.TIME])
    alter(log, file_delete_delay_ms="0")
    log.drop_oldest([DeletionReason.TIME])
    gone = tmp_path / "t-0" / "00000000000000000001.log.deleted"
    for _ in range(1000):
        if not gone.exists():
            break
        await asyncio.sleep(0.01)
    assert not gone.exists()
    assert (tmp_path / "t-0" / "00000000000000000000.log.deleted").exists()
    await directory.close()


async def test_flush_messages_and_flush_ms(tmp_path, folders, fill):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())

    async def synced_to(offset):
        for _ in range(1000):
            if log.recovery_point >= offset:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(log.recovery_point)

    fill(log, [1] * 3)
    await asyncio.sleep(0.05)
    assert log.recovery_point == 0
    alter(log, flush_messages="5")
    fill(log, [1])
    await asyncio.sleep(0.05)
    assert log.recovery_point == 0
    fill(log, [1])
    await synced_to(5)
    alter(log, flush_ms="1")
    fill(log, [1])
    await synced_to(6)
    await directory.close()
