"""Compaction as it runs: by itself, in a helper process, while the log is used."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from unittest.mock import ANY, Mock, call

import pytest
from crc32c import crc32c
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.cleaner import cleaner
from storage_svc.log.config import LogSettings
from storage_svc.log.disk import checkpoints
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.partition.partition_log import Origin, PartitionLog
from storage_svc.log.scrub import scrubber
from unit.storage_svc.log.compacting import COMPACT, NOW_MS, TOPIC_ID, append, make_cleanable, records_of, start, stop

from tests.support.waiting import until_async

SETTINGS = LogSettings(cleaner_backoff_ms=50)


def open_directory(path: Path, settings: LogSettings = SETTINGS) -> DataFolder:
    return DataFolder.open(path, settings, clock=lambda: NOW_MS)


def dirty_log(directory: DataFolder, topic: str = "t") -> PartitionLog:
    log = directory.create(topic, 0, TOPIC_ID, COMPACT)
    for number in range(60):
        append(log, (b"%d" % (number % 7), b"%d" % number * 40), (b"%d" % (number % 5), None))
    make_cleanable(directory, log)
    return log


def half_done(path: Path) -> list[str]:
    return [entry.name for entry in (path / "t-0").iterdir() if entry.suffix in (".cleaned", ".swap")]


async def test_a_dirty_log_is_compacted_by_itself(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = dirty_log(directory)
    other = directory.create("other", 0, TOPIC_ID, COMPACT)
    append(other, (b"a", b"1"))
    before = {record.key: record for record in records_of(log)}
    maintenance = start(directory)
    await until_async(lambda: log.compaction.cleaned_to == 120)
    directory.check_invariants()
    assert {record.key: record for record in records_of(log)} == before
    assert len(records_of(log)) == 7
    assert maintenance.cleaner.totals.runs == 1
    assert maintenance.cleaner.totals.records_removed == 113
    await stop(directory, maintenance)
    assert (tmp_path / checkpoints.CLEANED).read_text() == "0\n1\nt 0 120\n"
    assert half_done(tmp_path) == []
    directory = open_directory(tmp_path)
    assert directory.logs["t", 0].compaction.cleaned_to == 120
    directory.release()


async def test_what_cannot_be_cleaned_is_reported_once_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is as it was written, but whose records make no sense: no scrub finds damage.

    Once the log starts after the batch, it is cleaned again.
    """
    lines = Mock()
    monkeypatch.setattr(cleaner, "_log", lines)
    monkeypatch.setattr(scrubber, "_log", lines)
    directory = open_directory(tmp_path)
    log, sound = directory.create("t", 0, TOPIC_ID, COMPACT), dirty_log(directory, "sound")
    senseless = bytearray(build_batch([Record(0, NOW_MS, b"k", b"v")]))
    senseless[61] = 1  # a record of a negative length
    senseless[17:21] = crc32c(senseless[21:]).to_bytes(4, "big")
    assert log.append(bytes(senseless), origin=Origin.COORDINATOR).error_code == 0
    make_cleanable(directory, log)
    files = sorted(entry.name for entry in (tmp_path / "t-0").iterdir())
    maintenance = start(directory)
    await until_async(lambda: log.compaction.uncleanable and sound.compaction.cleaned_to)
    await until_async(lambda: maintenance.scrubber.totals.rounds)
    await asyncio.sleep(0.2)
    assert maintenance.cleaner.totals.failures == 1
    assert log.offline is None
    assert sorted(entry.name for entry in (tmp_path / "t-0").iterdir()) == files
    fault = "record 0: a record of -1 bytes where 8 are left"
    place = {"topic": "t", "partition": 0}
    uncleanable, unreadable = lines.error.call_args_list
    assert uncleanable == call("log uncleanable", log=log.folder, **place, reason=ANY)
    assert uncleanable.kwargs["reason"].startswith("the batch of offset 0 cannot be read: record 0: a record ")
    assert unreadable == call("unreadable batch", **place, offset=0, last_offset=0, reason=fault)
    append(log, (b"k", b"1"), (b"k", b"2"))
    append(log, (b"k", b"3"))
    make_cleanable(directory, log)
    log.raise_log_start(1)
    await until_async(lambda: log.compaction.cleaned_to == 4)
    assert [(record.offset, record.value) for record in records_of(log)] == [(3, b"3")]
    assert log.compaction.uncleanable is None
    await stop(directory, maintenance)


async def test_stopping_ends_a_cleaning_that_takes_long(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, LogSettings(cleaner_backoff_ms=50, cleaner_io_bytes_per_second=1))
    log = dirty_log(directory)
    maintenance = start(directory)
    await until_async(lambda: log.compaction.running)
    await asyncio.sleep(0.5)
    async with asyncio.timeout(30):
        await stop(directory, maintenance)
    assert log.compaction.cleaned_to is None
    assert half_done(tmp_path) == []
    directory = open_directory(tmp_path)
    assert len(records_of(directory.logs["t", 0])) == 120
    directory.release()


async def test_the_end_of_the_helper_is_not_the_end_of_the_log(tmp_path: Path) -> None:
    directory = open_directory(tmp_path, LogSettings(cleaner_backoff_ms=50, cleaner_io_bytes_per_second=1))
    log = dirty_log(directory)
    maintenance = start(directory)
    process = maintenance.cleaner._process
    await until_async(lambda: process._process is not None)
    assert process._process is not None
    process._process.kill()
    await until_async(lambda: log.compaction.uncleanable)
    assert log.compaction.uncleanable == "the cleaning process ended with status -9"
    append(log, (b"a", b"1"))
    assert len(records_of(log)) == 121
    await stop(directory, maintenance)


async def test_other_settings_are_in_force_at_once(tmp_path: Path) -> None:
    """A cleaning under a low rate is begun again, and a long pause ends."""
    slow = LogSettings(cleaner_backoff_ms=3_600_000, cleaner_io_bytes_per_second=1)
    directory = open_directory(tmp_path, slow)
    log = dirty_log(directory)
    maintenance = start(directory)
    await until_async(lambda: log.compaction.running)
    maintenance.configure(replace(slow, cleaner_io_bytes_per_second=0))
    await until_async(lambda: log.compaction.cleaned_to == 120)
    assert log.compaction.uncleanable is None
    other = dirty_log(directory, "other")
    maintenance.configure(replace(slow, cleaner_io_bytes_per_second=0, producer_id_expiration_ms=1))
    assert other.compaction.cleaned_to is None
    maintenance.configure(replace(slow, cleaner_io_bytes_per_second=0, cleaner_backoff_ms=50))
    await until_async(lambda: other.compaction.cleaned_to == 120)
    await stop(directory, maintenance)


@pytest.mark.parametrize("keys", [1, 2, 5, 1000])
def test_a_key_map_that_is_too_small_cleans_in_parts(tmp_path: Path, keys: int) -> None:
    """1024 slots are the least there are: three quarters of them take 768 keys."""
    directory = open_directory(tmp_path, LogSettings(cleaner_dedupe_buffer_bytes=0))
    log = directory.create("t", 0, TOPIC_ID, COMPACT)
    for first in range(0, 2000, 50):
        append(log, *((b"%d" % (number % keys), b"") for number in range(first, first + 50)))
    make_cleanable(directory, log)
    rounds = 0
    while log.compaction.cleaned_to != 2000:
        Maintenance(directory).cleaner.clean_now(log)
        rounds += 1
    assert rounds == (3 if keys == 1000 else 1)
    assert [record.offset for record in records_of(log)] == list(range(2000 - keys, 2000))
    directory.check_invariants()
    directory.release()
