"""Every change of the records that readers may see moves the log's number in Revisions; nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import drop_oldest
from storage_svc.log.segment.segment import Segment

TOPIC_ID = bytes(range(16))


@pytest.fixture
def directory(folders: Any, tmp_path: Path, fill: Callable[..., Any]) -> DataFolder:
    """With a log of two segments, of two batches each."""
    directory: DataFolder = folders.open(tmp_path)
    log = directory.create("t", 0, TOPIC_ID, LogConfig())
    fill(log, [1, 1])
    log.roll(log.now_ms())
    fill(log, [1, 1])
    return directory


def rewritten(log: PartitionLog) -> tuple[list[Segment], Segment]:
    old = log.segments[0]
    return [old], Segment(log.files, log.folder, 0, log.config, log.now_ms())


CHANGES: dict[str, Callable[[DataFolder, PartitionLog, Any], Any]] = {
    "append": lambda directory, log, batch: log.append(batch),
    "deleted records": lambda directory, log, batch: log.raise_log_start(1),
    "retention": lambda directory, log, batch: drop_oldest(log, [DeletionReason.TIME]),
    "compaction": lambda directory, log, batch: log.replace_segments(*rewritten(log)),
    "deleted topic": lambda directory, log, batch: directory.delete("t", 0),
    "configs": lambda directory, log, batch: log.configure(LogConfig(compression_type="zstd")),
    "offline": lambda directory, log, batch: log.take_offline("a test"),
    "withheld": lambda directory, log, batch: log.withhold("a test"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_moves_the_number_once(directory: DataFolder, make_batch: Callable[..., bytes], change: str) -> None:
    log = directory.logs["t", 0]
    slot, number = log.current_revision()
    assert log.current_revision() == (slot, number)
    CHANGES[change](directory, log, make_batch())
    assert directory.revisions[slot] > number


@pytest.mark.parametrize("same", ["roll", "deleted before", "no reader ahead"])
def test_a_step_that_readers_cannot_see_leaves_the_number(
    directory: DataFolder, make_batch: Callable[..., bytes], same: str
) -> None:
    log = directory.logs["t", 0]
    if same != "no reader ahead":
        log.current_revision()
    slot = log._state.read_ahead.slot
    number = directory.revisions[slot]
    if same == "roll":
        log.roll(log.now_ms())
    elif same == "deleted before":
        log.raise_log_start(0)
    else:
        log.append(make_batch())
    assert directory.revisions[slot] == number


def test_every_log_has_its_slot(directory: DataFolder, make_batch: Callable[..., bytes]) -> None:
    log, other = directory.logs["t", 0], directory.create("u", 0, TOPIC_ID, LogConfig())
    revision = other.current_revision()
    log.current_revision()
    log.append(make_batch())
    assert other.current_revision() == revision
