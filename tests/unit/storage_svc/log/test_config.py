"""Topic configs altered at run time: the behaviour of an open log from then on.

Those of compaction are in cleaner/test_choice.py, those of retention in partition/test_retention.py, those of syncs in
test_durability.py, and reasons for refusing or changing a batch in batch/test_admission.py.
"""

from __future__ import annotations

import asyncio
import os

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.retention import drop_oldest

from tests.support.waiting import until_async

NOW_MS = 1_700_000_000_000


@pytest.fixture
def log(tmp_path, folders):
    return folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())


def alter(log, **properties):
    log.configure(LogConfig.from_properties({name.replace("_", "."): value for name, value in properties.items()}))


def bases(log):
    return list(log.segments.bases)


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


async def test_file_delete_delay_ms(tmp_path, folders, fill):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    fill(log, [1])
    log.roll(NOW_MS)
    fill(log, [1])
    log.roll(NOW_MS)
    drop_oldest(log, [DeletionReason.TIME])
    alter(log, file_delete_delay_ms="0")
    drop_oldest(log, [DeletionReason.TIME])
    gone = tmp_path / "t-0" / "00000000000000000001.log.deleted"
    await until_async(lambda: not gone.exists())
    assert (tmp_path / "t-0" / "00000000000000000000.log.deleted").exists()
    await directory.close()
