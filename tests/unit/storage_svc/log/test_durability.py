"""The moment when records count as durable, and the records that retention and deletion remove."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from faults.disk_model import Nothing
from faults.simulated_disk import SimulatedDisk
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Files
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import Origin
from storage_svc.log.partition.retention import apply_retention

from tests.support.waiting import until_async

NOW_MS = 1_700_000_000_000


class GatedFiles(Files):
    """Real files whose syncs wait until the test lets them through; finished syncs are noted."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.syncs: list[int] = []
        self.paths: list[str] = []

    def sync_queue(self):
        return None  # every sync goes through `sync`

    def sync(self, descriptor):
        if threading.current_thread() is not threading.main_thread():  # a roll syncs on the event loop
            self.gate.wait(60)
        self.syncs.append(descriptor)
        super().sync(descriptor)

    def sync_path(self, path):
        self.paths.append(path)
        super().sync_path(path)


async def test_high_watermark_follows_the_syncs(tmp_path, folders, make_batch):
    files = GatedFiles()
    directory = folders.open(tmp_path, FlushPolicy.GROUP, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    files.paths.clear()
    files.gate.clear()
    log.append(make_batch(2))
    waiting = asyncio.create_task(log.durable(2))
    await asyncio.sleep(0.05)
    assert (log.high_watermark, log.log_end_offset, waiting.done()) == (0, 2, False)
    assert log.spans(0, 1000, min_one=True) == []
    # While that sync runs three more batches arrive: one more sync carries them all.
    for _ in range(3):
        log.append(make_batch(1))
    files.gate.set()
    assert await waiting == 0
    assert await log.durable(5) == 0
    assert len(files.syncs) == 2
    root = str(tmp_path)
    assert files.paths == [f"{root}/t-0/partition.metadata", f"{root}/t-0", root, f"{root}/t-0/leader-epoch-checkpoint"]
    assert await log.durable(5) == 0
    await directory.close()


async def test_one_sync_round_for_many_logs(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    logs = directory.create_many("t", range(20), bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    for log in logs:
        log.append(make_batch(1))
    assert await asyncio.gather(*(log.durable(1) for log in logs)) == [0] * 20
    assert sum(directory.flusher.durations.counts) == 1
    await directory.close()


async def test_under_os_the_write_is_enough(tmp_path, folders, make_batch):
    files = GatedFiles()
    directory = folders.open(tmp_path, FlushPolicy.OS, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    log.append(make_batch(2))
    assert (log.high_watermark, await log.durable(2)) == (2, 0)
    await asyncio.sleep(0.05)
    assert files.syncs == []
    assert log.recovery_point == 0
    await directory.close()
    assert len(files.syncs) == 1
    assert log.recovery_point == 2


@pytest.mark.parametrize("config", [LogConfig(flush_messages=3), LogConfig(flush_ms=300)])
async def test_topics_may_ask_for_earlier_syncs(tmp_path, folders, make_batch, config):
    files = GatedFiles()
    directory = folders.open(tmp_path, FlushPolicy.OS, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig())
    log.configure(config)
    directory.start(asyncio.get_running_loop())
    log.append(make_batch(2))
    await asyncio.sleep(0)
    assert files.syncs == []
    log.append(make_batch(1))
    await until_async(lambda: log.recovery_point)
    assert (log.recovery_point, len(files.syncs)) == (3, 1)
    await directory.close()


async def test_roll_during_a_sync(tmp_path, folders, make_batch, small):
    files = GatedFiles()
    directory = folders.open(tmp_path, FlushPolicy.GROUP, files=files)
    log = directory.create("t", 0, bytes(16), small)
    directory.start(asyncio.get_running_loop())
    for _ in range(60):
        files.gate.clear()
        log.append(make_batch(5))
        await asyncio.sleep(0)
        files.gate.set()
    assert await log.durable(300) == 0
    assert len(log.segments.bases) > 5
    assert log.high_watermark == log.recovery_point == 300
    directory.check_invariants()
    await directory.close()


async def test_waiters_are_called_in_order_of_their_offsets(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    log = directory.create("t", 0, bytes(16), LogConfig())
    log.append(make_batch(5))
    called: list[tuple[int, int]] = []
    for offset in (5, 3, 5, 1, 6):
        log.on_durable(offset, lambda code, offset=offset: called.append((offset, code)))
    directory.start(asyncio.get_running_loop())
    assert await log.durable(5) == 0
    assert called == [(1, 0), (3, 0), (5, 0), (5, 0)]
    directory.delete("t", 0)
    assert called[4:] == [(6, 3)]
    await directory.close()


async def test_deleted_partition(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    log = directory.create("t", 0, bytes(16), LogConfig(file_delete_delay_ms=20))
    directory.start(asyncio.get_running_loop())
    log.append(make_batch(1))
    waiting = asyncio.create_task(log.durable(9))
    await asyncio.sleep(0)
    directory.delete("t", 0)
    assert not (tmp_path / "t-0").exists()
    assert len(list(tmp_path.glob("t-0.*-delete"))) == 1
    assert await waiting == 3
    assert log.append(make_batch(1)).error_code == 3
    assert directory.create("t", 0, bytes(16), LogConfig()).log_end_offset == 0
    await until_async(lambda: not list(tmp_path.glob("*-delete")))
    await directory.close()


def test_retention_by_time_takes_the_active_segment_too(tmp_path, folders, fill, small):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), small)
    fill(log, [5] * 40)  # record n has timestamp NOW_MS + n
    bases = list(log.segments.bases)
    assert apply_retention(log, NOW_MS + 7 * 86_400_000) == 0
    # Everything that ends before the third segment is older than a week now.
    freed = apply_retention(log, NOW_MS + bases[2] - 1 + 7 * 86_400_000 + 1)
    assert (log.segments.bases, log.log_start_offset) == (bases[2:], bases[2])
    suffixes = (".index", ".log", ".timeindex")
    expected = {f"{base:020d}{suffix}.deleted" for base in bases[:2] for suffix in suffixes}
    found = {each.name for each in (tmp_path / "t-0").glob("*.deleted")}
    assert found == expected | {f"{bases[1]:020d}.snapshot.deleted"}
    assert freed == sum((tmp_path / "t-0" / f"{base:020d}.log.deleted").stat().st_size for base in bases[:2])
    assert apply_retention(log, NOW_MS + 500 + 7 * 86_400_000) > 0
    assert (log.segments.bases, log.log_start_offset, log.log_end_offset) == ([200], 200, 200)
    directory.check_invariants()
    folders.crash(directory)
    log = folders.open(tmp_path).logs["t", 0]
    assert (log.log_start_offset, log.log_end_offset) == (200, 200)
    assert list((tmp_path / "t-0").glob("*.deleted")) == []


def test_retention_leaves_what_is_not_durable(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    log = directory.create("t", 0, bytes(16), LogConfig(segment_bytes=500, retention_ms=1))
    for _ in range(20):
        log.append(make_batch(3))
    assert apply_retention(log, NOW_MS + 86_400_000) == 0
    directory.flusher.sync_now()
    assert apply_retention(log, NOW_MS + 86_400_000) > 0
    assert log.log_start_offset == log.log_end_offset == 60


def test_roll_by_age_of_the_records(tmp_path, folders, make_batch):
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig(segment_ms=1000))
    for age in (0, 500, 1000, 1001, 1002, 2002):
        log.append(make_batch(1, timestamp=NOW_MS + age))
    assert log.segments.bases == [0, 3, 5]


def test_roll_when_an_index_is_full(tmp_path, folders, make_batch):
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=24)
    log = folders.open(tmp_path).create("t", 0, bytes(16), config)
    for n in range(7):
        log.append(make_batch(1, timestamp=NOW_MS + n))
    # Two time index entries fit into 24 bytes, and the last slot is kept: full after one.
    assert log.segments.bases == [0, 2, 4, 6]


def test_segments_roll_at_different_times_when_jitter_is_set(tmp_path, folders, make_batch):
    config = LogConfig(segment_ms=1000, segment_jitter_ms=400)
    logs = folders.open(tmp_path).create_many("t", range(60), bytes(16), config)
    rolled = {}
    for age in (0, 600, 800, 1001):
        for log in logs:
            log.append(make_batch(1, timestamp=NOW_MS + age))
        rolled[age] = sum(len(log.segments) > 1 for log in logs)
    assert (rolled[0], rolled[600], rolled[1001]) == (0, 0, 60)
    assert 0 < rolled[800] < 60


def test_what_rolls_does_not_depend_on_what_arrives_together(tmp_path, folders, make_batch):
    """Timestamps and index entries of batches that are staged and not written yet count as well."""
    config = LogConfig(segment_ms=1000, index_interval_bytes=1, segment_index_bytes=60)
    one, together = folders.open(tmp_path).create_many("t", range(2), bytes(16), config)
    for ages in ((0, 900, 1100, 1200), (1900, 1910, 1920, 1930, 1940, 1950, 1960, 3400)):
        for age in ages:
            one.append(make_batch(1, timestamp=NOW_MS + age))
            together.stage(memoryview(make_batch(1, timestamp=NOW_MS + age)), Origin.CLIENT, NOW_MS)
        together.write_staged()
    assert together.segments.bases == one.segments.bases == [0, 2, 7, 11]


async def test_a_topics_flush_policy_comes_before_the_brokers(tmp_path, folders, make_batch):
    for broker in FlushPolicy:
        files = GatedFiles()
        directory = folders.open(tmp_path / broker, broker, files=files)
        own = LogConfig(flush_policy=FlushPolicy.GROUP), LogConfig(flush_policy=FlushPolicy.OS), LogConfig()
        group, os, default = (
            directory.create(name, 0, bytes(16), config) for name, config in zip("god", own, strict=True)
        )
        directory.start(asyncio.get_running_loop())
        files.gate.clear()
        for log in (group, os, default):
            log.append(make_batch(1))
        assert [log.high_watermark for log in (group, os, default)] == [0, 1, int(broker is FlushPolicy.OS)]
        files.gate.set()
        assert await group.durable(1) == 0
        await directory.close()


async def test_a_flush_policy_may_change_while_records_are_not_synced(tmp_path, folders, make_batch):
    files = GatedFiles()
    directory = folders.open(tmp_path, FlushPolicy.GROUP, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    files.gate.clear()
    log.append(make_batch(1))
    log.configure(LogConfig(flush_policy=FlushPolicy.OS))
    assert log.high_watermark == 0
    log.append(make_batch(1))
    assert log.high_watermark == 0  # the batch before it waits for its sync
    files.gate.set()
    assert await log.durable(2) == 0
    files.gate.clear()
    log.append(make_batch(1))
    assert (log.high_watermark, await log.durable(3)) == (3, 0)
    log.configure(LogConfig(flush_policy=FlushPolicy.GROUP))
    log.append(make_batch(1))
    assert log.high_watermark == 3
    files.gate.set()
    assert await log.durable(4) == 0
    assert log.recovery_point == 4
    await directory.close()


async def test_syncs_that_nobody_waits_for_hold_up_nobody(tmp_path, folders, make_batch):
    class OneSlowFile(Files):
        slow = -1
        released = threading.Event()

        def sync_queue(self):
            return None  # every sync goes through `sync`

        def sync(self, descriptor):
            if descriptor == self.slow:
                self.released.wait(60)
            super().sync(descriptor)

    files = OneSlowFile()
    directory = folders.open(tmp_path, FlushPolicy.OS, files=files)
    slow = directory.create("slow", 0, bytes(16), LogConfig(flush_messages=1))
    quick = directory.create("quick", 0, bytes(16), LogConfig(flush_policy=FlushPolicy.GROUP))
    directory.start(asyncio.get_running_loop())
    files.slow = slow.segments.active.descriptor
    slow.append(make_batch(1))
    await asyncio.sleep(0.05)
    quick.append(make_batch(1))
    assert await asyncio.wait_for(quick.durable(1), 20) == 0
    assert slow.recovery_point == 0
    files.released.set()
    await directory.close()
    assert slow.recovery_point == 1


def test_after_a_crash_what_a_log_promises_is_synced_before_it_is_served(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path)
    for name in ("group", "os"):
        directory.create(name, 0, bytes(16), LogConfig()).append(make_batch(1))
    folders.crash(directory)
    directory = folders.open(tmp_path)
    group, os = directory.logs["group", 0], directory.logs["os", 0]
    assert (group.recovery_point, os.recovery_point) == (0, 0)
    group.configure(LogConfig(flush_policy=FlushPolicy.GROUP))
    directory.sync_recovered()
    assert (group.recovery_point, os.recovery_point) == (1, 0)


async def test_recovery_points_are_stored_while_they_move(tmp_path, folders, make_batch):
    """The next start after a crash checks the records after them."""
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    log = directory.create("t", 0, bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())
    log.append(make_batch(2))
    await log.durable(2)
    directory.checkpoints.freshen_recovery_points()
    assert await directory.checkpoints.store(checkpoints.LOG_START)  # comes after it
    assert (tmp_path / checkpoints.RECOVERY_POINT).read_text() == "0\n1\nt 0 2\n"
    await directory.close()


def test_the_indexes_of_a_finished_segment_are_on_the_disk_with_it(make_batch):
    """Without their last entries they may agree with the log by chance: younger records lie before older ones."""
    disk = SimulatedDisk()
    settings = LogSettings(flush_policy=FlushPolicy.GROUP)
    directory = DataFolder.open(Path("/simulated/data"), settings, files=disk, clock=lambda: NOW_MS)
    log = directory.create("t", 0, bytes(16), LogConfig(index_interval_bytes=100))
    for number in range(40):
        log.append(make_batch(size=100, timestamp=NOW_MS + number))
    log.append(make_batch(size=1, timestamp=NOW_MS))
    paths = log.segments.active.index_paths()
    directory.flusher.sync_now()
    log.roll(NOW_MS)
    expected = [disk.read_file(path) for path in paths]
    directory.flusher.sync_now()
    assert log.recovery_point == 41
    disk.cut()
    disk.restart(Nothing())
    assert [disk.read_file(path) for path in paths] == expected
    assert all(expected)
