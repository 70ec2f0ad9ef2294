"""A swap cut off at any call of the file layer leaves all that a reader needs, and nothing that is in the way."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.cleaner.choice import cleanable
from storage_svc.log.cleaner.cleaner import _job
from storage_svc.log.cleaner.job import Cleaning
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Buffer, Files
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import NotNow, StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import drop_oldest
from storage_svc.log.partition.segment_swap import CleanedGroup, Outdated, carry_out, carry_out_now, swap
from storage_svc.log.partition.transaction_end import end_transaction
from storage_svc.log.recovery.quarantine import write_sound
from unit.storage_svc.log.compacting import COMPACT, NOW_MS, TOPIC_ID, append, make_cleanable, records_of

# Segments [0, 2), [2, 4), [4, 6); the rest of the first two ends with offset 2, a gap before the next segment.
PAIRS = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3" * 400), (b"a", b"4" * 400), (b"b", b"5" * 400), (b"a", b"6")]
LAST = [2, 4, 5]


class Death(BaseException):
    """The process ends."""


class FailingFiles(Files):
    """Real files; the call of that number does not happen, nor do the later ones if it was the end of the process."""

    def __init__(self) -> None:
        self.calls = 0
        self.fail_at = -1
        self.failure: BaseException = Death()

    def _count(self) -> None:
        if self.calls == self.fail_at or (self.fail_at >= 0 and self.calls > self.fail_at and self._dead()):
            self.calls += 1
            raise self.failure
        self.calls += 1

    def _dead(self) -> bool:
        return isinstance(self.failure, Death)

    def append(self, descriptor: int, parts: list[Buffer], position: int, size: int) -> None:
        self._count()
        super().append(descriptor, parts, position, size)

    def sync_queue(self) -> None:
        return None  # every sync goes through `sync`

    def sync(self, descriptor: int) -> None:
        self._count()
        super().sync(descriptor)

    def sync_path(self, path: str) -> None:
        self._count()
        super().sync_path(path)

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)


def make_log(directory: DataFolder) -> PartitionLog:
    log = directory.create("t", 0, TOPIC_ID, COMPACT)
    for index, pair in enumerate(PAIRS):
        append(log, pair)
        if index % 2:
            log.roll(NOW_MS)
    make_cleanable(directory, log)
    assert log.segments.bases == [0, 2, 4, 6]
    return log


def cleaned(folders: Any, path: Path, fail_at: int, failure: BaseException) -> tuple[DataFolder, PartitionLog, int]:
    """Return a log that was cleaned with a failure at that call, and the number of calls."""
    files = FailingFiles()
    directory = folders.open(path, files=files)
    log = make_log(directory)
    files.calls, files.fail_at, files.failure = 0, fail_at, failure
    with contextlib.suppress(Death, StorageFailure):
        Maintenance(directory).cleaner.clean_now(log)
    files.fail_at = -1
    return directory, log, files.calls


def left_over(path: Path) -> list[str]:
    return [name.name for name in (path / "t-0").iterdir() if name.name.endswith((".cleaned", ".swap"))]


def test_the_process_may_end_at_any_call(folders: Any, tmp_path: Path) -> None:
    directory, log, calls = cleaned(folders, tmp_path / "whole", -1, Death())
    assert [record.offset for record in records_of(log)] == LAST
    assert log.segments.bases == [0, 4, 6]
    assert calls > 30
    outcomes = set()
    for call in range(calls):
        path = tmp_path / str(call)
        directory, _, _ = cleaned(folders, path, call, Death())
        directory.release()
        directory = folders.open(path)
        log = directory.create("t", 0, TOPIC_ID, COMPACT)
        offsets = tuple(record.offset for record in records_of(log))
        assert offsets[-1] == 5
        assert set(LAST) <= set(offsets)
        outcomes.add(offsets)
        assert left_over(path) == []
        make_cleanable(directory, log)
        Maintenance(directory).cleaner.clean_now(log)
        assert [record.offset for record in records_of(log)] == LAST
    assert outcomes == {(0, 1, 2, 3, 4, 5), (2, 4, 5)}


def test_the_disk_may_fail_at_any_call(folders: Any, tmp_path: Path) -> None:
    _, _, calls = cleaned(folders, tmp_path / "whole", -1, Death())
    offline = 0
    for call in range(calls):
        path = tmp_path / str(call)
        directory, log, _ = cleaned(folders, path, call, StorageFailure("cannot write: EIO"))
        offsets = [record.offset for record in records_of(log)]
        assert offsets[-1] == 5
        assert set(LAST) <= set(offsets)
        if log.offline is not None:
            offline += 1
        else:
            assert left_over(path) == [] or log.compaction.uncleanable
            assert log.append(b"").error_code != 0
        directory.release()
        log = folders.open(path).create("t", 0, TOPIC_ID, COMPACT)
        assert set(LAST) <= {record.offset for record in records_of(log)}
        assert left_over(path) == []
    assert offline > 5


def test_readers_go_on_between_the_steps(folders: Any, tmp_path: Path) -> None:
    directory = folders.open(tmp_path)
    log = make_log(directory)
    job = _job(cleanable(log, NOW_MS), NOW_MS, directory.settings)
    old = log.segments[0]
    span = log.spans(0, 100, min_one=True)[0]
    before = span.segment.read(span.position, span.length)
    inodes = []
    for group in Cleaning(directory.files, job).run():
        for path in swap(log, group, NOW_MS):
            assert path == log.folder
            assert set(LAST) <= {record.offset for record in records_of(log)}
            segment = log.spans(2, 10, min_one=True)[0].segment
            assert (tmp_path / segment.relative_path).stat().st_ino == segment.file_id
            inodes.append(segment.file_id)
    assert old not in log.segments
    assert len(set(inodes)) == 2
    assert before[:8] == bytes(8)


@pytest.mark.parametrize("step", [0, 1])
def test_a_log_that_lost_segments_during_a_cleaning_keeps_the_others(folders: Any, tmp_path: Path, step: int) -> None:
    directory = folders.open(tmp_path)
    log = make_log(directory)
    group = next(Cleaning(directory.files, _job(cleanable(log, NOW_MS), NOW_MS, directory.settings)).run())
    steps = swap(log, group, NOW_MS)
    if step:
        next(steps)
    drop_oldest(log, [DeletionReason.TIME])
    start = log.log_start_offset
    with pytest.raises(Outdated):
        next(steps)
    assert left_over(tmp_path) == []
    assert [record.offset for record in records_of(log)] == list(range(start, 6))


@pytest.mark.parametrize("steps_done", [0, 1, 2])
def test_a_topic_may_be_deleted_and_made_again_between_the_steps(folders: Any, tmp_path: Path, steps_done: int) -> None:
    directory = folders.open(tmp_path)
    log = make_log(directory)
    group = next(Cleaning(directory.files, _job(cleanable(log, NOW_MS), NOW_MS, directory.settings)).run())
    steps = swap(log, group, NOW_MS)
    for _ in range(steps_done):
        next(steps)
    directory.delete("t", 0)
    again = directory.create("t", 0, bytes(range(1, 17)), COMPACT)
    append(again, (b"new", b"1"))
    try:
        list(steps)
    except Outdated:
        assert steps_done < 2
    assert [record.key for record in records_of(again)] == [b"new"]
    assert sorted(path.name for path in (tmp_path / "t-0").glob("*0.*")) == ["00000000000000000000.log"]


def test_the_new_segment_has_the_age_of_the_last_old_one(folders: Any, tmp_path: Path) -> None:
    directory = folders.open(tmp_path)
    log = make_log(directory)
    for index, segment in enumerate(log.segments):
        directory.files.set_modified_ms(segment.path, NOW_MS + index)
    Maintenance(directory).cleaner.clean_now(log)
    assert [directory.files.modified_ms(segment.path) - NOW_MS for segment in log.segments] == [1, 2, 3]


def test_a_sync_under_way_meets_a_segment_that_was_replaced(folders: Any, tmp_path: Path) -> None:
    directory = folders.open(tmp_path)
    log = make_log(directory)
    for segment in log.segments.older_segments():
        segment.release()
    log.sync_again(log.recovery_point)
    target = log.sync_target()
    assert target is not None
    Maintenance(directory).cleaner.clean_now(log)
    target.run(directory.files)
    log.synced(target)
    assert (target.failure, log.offline) == (None, None)
    directory.check_invariants()


def aborted_log(directory: DataFolder) -> PartitionLog:
    """Return a log with three segments, the first of which holds an aborted transaction."""
    log = directory.create("t", 0, TOPIC_ID, LogConfig(file_delete_delay_ms=0))
    for number in range(3):
        batch = [Record(0, NOW_MS, b"k", b"%d" % number)]
        sent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number, "transactional": True}
        assert log.append(build_batch(batch, **sent)).error_code == 0
        assert end_transaction(log, 7, 0, commit=number > 0, coordinator_epoch=0).error_code == 0
        log.roll(NOW_MS)
    log.request_sync()
    directory.flusher.sync_now()
    return log


def aborted(log: PartitionLog) -> list[tuple[int, int]]:
    return log.transactions.aborted(0, log.spans(0, 1 << 20, min_one=True, committed=True))


@pytest.mark.parametrize("is_death", [True, False], ids=["the process ends", "the disk fails"])
def test_aborted_records_stay_aborted_after_any_call(folders: Any, tmp_path: Path, is_death: bool) -> None:
    """A repaired segment has a transaction index, unlike a compacted one."""
    failure = Death() if is_death else StorageFailure("cannot write: EIO")

    def swapped(path: Path, fail_at: int) -> tuple[DataFolder, PartitionLog, int]:
        files = FailingFiles()
        directory = folders.open(path, files=files)
        log = aborted_log(directory)
        assert aborted(log) == [(7, 0)]
        directory.checkpoints.store_all()
        size = write_sound(files, log.segments[0], [], [], log.config)
        files.calls, files.fail_at, files.failure = 0, fail_at, failure
        with contextlib.suppress(Death, StorageFailure):
            carry_out_now(swap(log, CleanedGroup((0,), size), NOW_MS), files.sync_path)
        files.fail_at = -1
        return directory, log, files.calls

    _, _, calls = swapped(tmp_path / "whole", -1)
    assert calls > 12
    for call in range(calls):
        directory, log, _ = swapped(tmp_path / str(call), call)
        if not is_death and log.offline is None:
            assert aborted(log) == [(7, 0)]
            assert left_over(tmp_path / str(call)) == []
        directory.release()
        log = folders.open(tmp_path / str(call)).logs["t", 0]
        assert aborted(log) == [(7, 0)], call
        assert left_over(tmp_path / str(call)) == []


@pytest.mark.parametrize("failing", [1, 2, 3])
async def test_a_failed_sync_ends_the_swap_in_a_known_state(folders: Any, tmp_path: Path, failing: int) -> None:
    directory = folders.open(tmp_path)
    log = aborted_log(directory)
    old = log.segments[0]
    size = write_sound(directory.files, old, [], [], log.config)
    synced = []

    def sync(path: str) -> None:
        synced.append(path)
        if len(synced) == failing:
            raise StorageFailure("cannot sync: EIO")

    with pytest.raises(StorageFailure, match="EIO"):
        await carry_out(swap(log, CleanedGroup((0,), size), NOW_MS), sync, Threads("swap", 1))
    assert len(synced) == failing
    assert (log.segments[0] is old, log.offline is None) == (failing == 1, failing == 1)
    assert left_over(tmp_path) == [] or failing == 2
    assert aborted(log) == [(7, 0)]


async def test_a_sync_that_the_system_refuses_to_begin_is_tried_again(folders: Any, tmp_path: Path) -> None:
    directory = folders.open(tmp_path)
    log = aborted_log(directory)
    size = write_sound(directory.files, log.segments[0], [], [], log.config)
    synced = []

    def sync(path: str) -> None:
        synced.append(path)
        if len(synced) == 2:
            raise NotNow("cannot sync: too many open files")

    await carry_out(swap(log, CleanedGroup((0,), size), NOW_MS), sync, Threads("swap", 1))
    assert (len(synced), log.offline, left_over(tmp_path)) == (4, None, [])
