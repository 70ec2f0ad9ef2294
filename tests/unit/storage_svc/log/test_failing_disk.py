"""Full disks and failing disks: nothing half-written is seen, nothing false is acknowledged, reading goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys

import pytest
from broker_contract.data import Append, TopicIdPartition
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DiskFull, StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.partition_log import Origin, PartitionLog
from storage_svc.log.partition.retention import drop_oldest
from storage_svc.rpc.data import DataService
from support.scripted_transactions import NoTransactions

STORAGE_ERROR = 56


class FailingFiles(Files):
    """Real files, of which some calls can be made to fail."""

    def __init__(self) -> None:
        self.write_errno = 0
        self.partial = 0
        self.sync_errno = 0

    def append(self, descriptor, parts, position, size):
        if self.write_errno:
            os.pwrite(descriptor, b"".join(parts)[: self.partial], position)
            error = DiskFull if self.write_errno == errno.ENOSPC else StorageFailure
            raise error(os.strerror(self.write_errno))
        super().append(descriptor, parts, position, size)

    def sync_queue(self):
        return None  # every sync goes through `sync`

    def sync(self, descriptor):
        if self.sync_errno:
            raise StorageFailure(os.strerror(self.sync_errno))
        super().sync(descriptor)


class UnreadablePartition(Files):
    """No file of `t-1` can be opened."""

    def open(self, path, *, create):
        if "/t-1/" in path:
            raise StorageFailure(os.strerror(errno.EIO))
        return super().open(path, create=create)


@pytest.mark.parametrize("partitions", [2, 10])
def test_a_partition_that_cannot_be_read_is_offline_and_all_others_are_served(
    tmp_path, folders, fill, make_batch, read_all, partitions
):
    directory = folders.open(tmp_path)
    logs = directory.create_many("t", range(partitions), bytes(range(16)), LogConfig())
    stored = [b"".join(batch for _, batch in fill(log, [2, 3])) for log in logs]
    directory.checkpoints.store_all()
    folders.crash(directory)
    for _ in range(2):  # the checkpoints keep the offsets of the log
        directory = folders.open(tmp_path, files=UnreadablePartition())
        log = directory.logs["t", 1]
        assert (log.offline, log.withheld, log.checkpoint) == ("Input/output error", True, (0, 5))
        assert log.append(make_batch(1)).error_code == STORAGE_ERROR
        assert log.spans(0, 1 << 20, min_one=True) == []
        others = [directory.logs["t", number] for number in range(partitions) if number != 1]
        assert [read_all(each) for each in others] == [stored[0], *stored[2:]]
        assert others[0].append(make_batch(1)).error_code == 0
        stored[0] = read_all(others[0])
        directory.checkpoints.store_all()
        folders.crash(directory)
    log = folders.open(tmp_path).logs["t", 1]
    assert (log.offline, read_all(log), log.high_watermark) == (None, stored[1], 5)


def test_full_disk_leaves_no_trace_and_writing_goes_on_later(tmp_path, folders, fill, make_batch, read_all):
    files = FailingFiles()
    directory = folders.open(tmp_path, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig())
    stored = fill(log, [2, 3])
    size = log.segments.active.size
    files.write_errno, files.partial = errno.ENOSPC, 30
    failed = log.append(make_batch(4, producer_id=7, producer_epoch=0, base_sequence=0))
    assert (failed.error_code, failed.base_offset) == (STORAGE_ERROR, -1)
    assert (log.log_end_offset, log.high_watermark, os.stat(log.segments.active.path).st_size) == (5, 5, size)
    assert read_all(log) == b"".join(batch for _, batch in stored)
    directory.check_invariants()
    files.write_errno = 0
    # The producer sends it again: its first attempt left no producer state either.
    assert log.append(make_batch(4, producer_id=7, producer_epoch=0, base_sequence=0)).base_offset == 5


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_write_that_fails_on_the_way_to_a_roll_starts_no_segment(tmp_path, folders, make_batch, number):
    files = FailingFiles()
    directory = folders.open(tmp_path, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig(segment_bytes=200))
    files.write_errno = number
    staged = [log.stage(memoryview(make_batch(size=60)), Origin.CLIENT, 1_700_000_000_000) for _ in range(2)]
    log.write_staged()
    assert [each.error_code for each in staged] == [STORAGE_ERROR] * 2
    assert log.segments.bases == [0]
    files.write_errno = 0
    expected = (0, 0) if number == errno.ENOSPC else (STORAGE_ERROR, -1)
    appended = log.append(make_batch(size=60))
    assert (appended.error_code, appended.base_offset) == expected
    directory.check_invariants()


def test_segments_whose_files_cannot_be_renamed_are_gone_all_the_same(tmp_path, folders, fill, small, monkeypatch):
    files = FailingFiles()
    directory = folders.open(tmp_path, files=files)
    log = directory.create("t", 0, bytes(16), small)
    fill(log, [20] * 8)
    bases = list(log.segments.bases)

    def refuse(old, new):
        raise StorageFailure("read-only")

    monkeypatch.setattr(files, "rename", refuse)
    with pytest.raises(StorageFailure, match="read-only"):
        drop_oldest(log, [DeletionReason.TIME] * 2)
    monkeypatch.undo()
    assert (log.segments.bases, log.log_start_offset) == (bases[2:], bases[2])
    directory.check_invariants()


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("failing", ["at once", "in the middle"])
def test_segments_stay_as_long_as_only_they_tell_of_their_producers(
    tmp_path, folders, make_batch, monkeypatch, failing, synced
):
    files = FailingFiles()
    directory = folders.open(tmp_path, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig())
    log.append(make_batch(producer_id=7, producer_epoch=0, base_sequence=0))
    log.roll(0)
    log.append(make_batch(producer_id=8, producer_epoch=0, base_sequence=0))

    def refuse(path, data, **_):
        if failing == "in the middle":
            (tmp_path / path).write_bytes(data[: len(data) // 2])
        raise DiskFull("no space")

    monkeypatch.setattr(files, "write_file", refuse)
    log.roll(0)
    monkeypatch.undo()
    if synced:
        directory.flusher.sync_now()
        directory.background.sync_now()
    log.append(make_batch())
    assert log.segments.bases == [0, 1, 2]
    drop_oldest(log, [DeletionReason.TIME] * 2)
    assert log.segments.bases == [1, 2]
    assert drop_oldest(log, [DeletionReason.TIME]) == 0

    folders.crash(directory)
    (log,) = folders.open(tmp_path).logs.values()
    again = {"producer_epoch": 0, "base_sequence": 0}
    assert [log.append(make_batch(producer_id=each, **again)).base_offset for each in (7, 8)] == [0, 1]
    log.roll(0)
    drop_oldest(log, [DeletionReason.TIME] * 2)
    assert log.segments.bases == [3]


def test_a_segment_goes_with_its_log_file_first(tmp_path, folders, fill, small, monkeypatch):
    """Left with its log and without its transaction index, it would give aborted records to committed readers."""
    files = FailingFiles()
    directory = folders.open(tmp_path, files=files)
    log = directory.create("t", 0, bytes(16), small)
    fill(log, [20] * 8)
    renamed = []
    monkeypatch.setattr(files, "rename", lambda old, new: renamed.append(old.rpartition(".")[2]))
    drop_oldest(log, [DeletionReason.TIME])
    monkeypatch.undo()
    assert next(suffix for suffix in renamed if suffix != "tmp") == "log"
    assert "index" in renamed


def test_failing_roll(tmp_path, folders, fill, small, make_batch, monkeypatch):
    files = FailingFiles()
    directory = folders.open(tmp_path, files=files)
    log = directory.create("t", 0, bytes(16), small)
    fill(log, [20, 20])
    base = log.segments.active.base_offset

    def refuse(path, *, create):
        raise DiskFull("no space")

    monkeypatch.setattr(files, "open", refuse)
    assert log.append(make_batch(40)).error_code == STORAGE_ERROR
    monkeypatch.undo()
    appended = log.append(make_batch(40))
    assert (appended.error_code, appended.base_offset, log.segments.active.base_offset > base) == (0, 40, True)


async def test_failed_sync_is_never_acknowledged(tmp_path, folders, make_batch):
    """After a failed fsync the pages count as clean: a second sync that succeeds proves nothing."""
    files = FailingFiles()
    directory = folders.open(tmp_path, FlushPolicy.GROUP, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    log.append(make_batch(2))
    assert await log.durable(2) == 0
    files.sync_errno = errno.EIO
    log.append(make_batch(3))
    assert await asyncio.wait_for(log.durable(5), 20) == STORAGE_ERROR
    files.sync_errno = 0
    assert (log.high_watermark, log.log_end_offset) == (2, 5)
    assert log.append(make_batch(1)).error_code == STORAGE_ERROR
    assert await log.durable(5) == STORAGE_ERROR
    assert len(log.spans(0, 1000, min_one=True)) == 1
    directory.check_invariants()
    await directory.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("call", ["open", "read_file", "sync_path", "unlink", "size", "entries", "make_folder"])
def test_system_errors_are_translated(tmp_path, call):
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    options = {"create": False} if call == "open" else {}
    with pytest.raises(StorageFailure, match="file"):
        getattr(Files(), call)(str(blocked / "below"), **options)


def test_short_writes_are_completed(tmp_path, monkeypatch):
    files = Files()
    descriptor = files.open(str(tmp_path / "f"), create=True)
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: whole(fd, [b"".join(parts)[:7]], at))
    files.append(descriptor, [b"0123", b"4567", b"89"], 2, 10)
    assert files.read(descriptor, 100, 0) == b"\0\0" + b"0123456789"
    files.close(descriptor)


def test_more_parts_than_one_call_takes(tmp_path):
    files = Files()
    descriptor = files.open(str(tmp_path / "f"), create=True)
    parts = [n.to_bytes(2, "big") for n in range(3000)]
    files.append(descriptor, parts, 0, 6000)
    assert files.read(descriptor, 10_000, 0) == b"".join(parts)
    files.close(descriptor)


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from pathlib import Path
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
directory = DataFolder.open(Path(sys.argv[1]), LogSettings(flush_policy=FlushPolicy.GROUP))
log = directory.create("t", 0, bytes(16), LogConfig(segment_bytes=200))
batch = build_batch([Record(0, 0, None, b"x" * 100)])
connections = []
try:
    while True:
        connections.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
codes = []
for _ in range(60):
    codes.append(log.append(batch).error_code)
    directory.flusher.sync_now()
for each in connections:
    os.close(each)
directory.check_invariants()
print(*codes, log.offline, log.high_watermark, len(log.segments))
"""


def test_segments_begin_while_connections_hold_all_descriptors(tmp_path):
    child = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert child.stdout.split() == [*["0"] * 60, "None", "60", "60"], child.stderr


async def test_a_bug_in_one_request_leaves_no_other_one_without_an_answer(tmp_path, make_batch, monkeypatch):
    directory = DataFolder.open(tmp_path, LogSettings(flush_policy=FlushPolicy.GROUP))
    logs = directory.create_many("t", range(2), bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    service = DataService(directory, lambda _: None, NoTransactions())
    stage = PartitionLog.stage

    def broken(self, view, *arguments, **options):
        appended = stage(self, view, *arguments, **options)
        return appended if self is logs[1] else appended.no_such_field

    async def turn():
        answers = [asyncio.get_running_loop().create_future() for _ in range(3)]
        for partition, answer in zip((1, 0, 1), answers, strict=True):
            request = Append(1, "c", 9, -1, 1000, [TopicIdPartition("t", partition)], [make_batch()])
            service.append(request, answer.set_result)
        outcomes = [(await asyncio.wait_for(each, 20)).outcomes[0] for each in answers]
        return [(each.error_code, each.base_offset) for each in outcomes]

    monkeypatch.setattr(PartitionLog, "stage", broken)
    assert await turn() == [(0, 0), (-1, -1), (0, 1)]
    monkeypatch.undo()
    assert await turn() == [(0, 2), (0, 0), (0, 3)]
    await service.close()
    directory.check_invariants()
    await directory.close()
