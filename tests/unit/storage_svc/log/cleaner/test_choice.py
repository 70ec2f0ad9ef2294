"""Which part of a log may be compacted, and when it is time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from storage_svc.log.cleaner.choice import Cleanable, cleanable, dirtiest
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import drop_oldest
from unit.storage_svc.log.compacting import COMPACT, NOW_MS, TOPIC_ID, append


@pytest.fixture
def log(folders: Any, tmp_path: Path) -> PartitionLog:
    """A log of segments [0, 2), [2, 4), [4, 6) and an active one of one record; timestamps rise by a minute."""
    directory = folders.open(tmp_path)
    log: PartitionLog = directory.create("t", 0, TOPIC_ID, COMPACT)
    for segment in range(3):
        append(log, (b"a", b"1"), (b"b", b"2"), timestamp=NOW_MS + segment * 60_000)
        log.roll(NOW_MS)
    append(log, (b"a", b"3"), timestamp=NOW_MS + 180_000)
    log.request_sync()
    directory.flusher.sync_now()
    return log


def bounds(found: Cleanable) -> tuple[int, int]:
    return found.dirty_from, found.end_offset


def test_all_but_the_active_segment(log: PartitionLog) -> None:
    found = cleanable(log, NOW_MS)
    assert bounds(found) == (0, 6)
    assert found.clean_bytes == 0
    assert found.dirty_bytes == sum(segment.size for segment in log.segments.older_segments())
    assert found.due


def test_what_was_cleaned_counts_as_clean(log: PartitionLog) -> None:
    log.compaction.cleaned_to = 4
    found = cleanable(log, NOW_MS)
    assert bounds(found) == (4, 6)
    assert found.dirty_ratio == pytest.approx(1 / 3)
    assert not found.due
    log.configure(replace(COMPACT, min_cleanable_dirty_ratio=0.3))
    assert cleanable(log, NOW_MS).due
    log.compaction.cleaned_to = 6
    assert (cleanable(log, NOW_MS).dirty_bytes, cleanable(log, NOW_MS).due) == (0, False)


@pytest.mark.parametrize("cleaned_to", [1, 99])
def test_a_checkpoint_out_of_the_log_means_all_is_dirty(log: PartitionLog, cleaned_to: int) -> None:
    drop_oldest(log, [DeletionReason.TIME])
    log.compaction.cleaned_to = cleaned_to
    assert bounds(cleanable(log, NOW_MS)) == (2, 6)


def test_nothing_after_the_synced_part(log: PartitionLog) -> None:
    log.sync_again(5)
    assert bounds(cleanable(log, NOW_MS)) == (0, 4)


def test_not_younger_than_the_least_lag(log: PartitionLog) -> None:
    log.configure(replace(COMPACT, min_compaction_lag_ms=100_000))
    assert bounds(cleanable(log, NOW_MS + 100_001 + 60_000)) == (0, 4)
    assert bounds(cleanable(log, NOW_MS + 99_999)) == (0, 0)


def test_a_record_older_than_the_largest_lag_is_due(log: PartitionLog) -> None:
    log.compaction.cleaned_to = 4
    log.configure(replace(COMPACT, max_compaction_lag_ms=1000))
    batch_ms = NOW_MS + 120_001
    assert not cleanable(log, batch_ms + 1000).due
    assert cleanable(log, batch_ms + 1001).due


def test_the_dirtiest_comes_first(log: PartitionLog) -> None:
    found = [Cleanable(log, 0, 6, clean, dirty, False) for clean, dirty in ((50, 60), (10, 60), (50, 40))]
    assert dirtiest(found) is found[1]
    assert dirtiest(found[2:]) is None
