"""Few open segments for many partitions: unused ones give their descriptors back, and nobody notices."""

from __future__ import annotations

import random
import resource
import subprocess
import sys

import pytest
from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DiskFull
from storage_svc.log.segment.open_segments import OpenSegments
from unit.storage_svc.log.conftest import descriptors

LIMIT = 6
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=200)


def test_forty_partitions_are_written_and_read_with_six_open_segments(tmp_path, folders, fill, read_all):
    """The records and files are the same as if every segment stayed open."""
    chance = random.Random(3)
    steps = [(chance.randrange(40), chance.randint(1, 4), chance.randint(10, 300)) for _ in range(400)]
    plenty = folders.open(tmp_path / "plenty")
    logs = plenty.create_many("t", range(40), bytes(16), CONFIG)
    for partition, count, size in steps:
        fill(logs[partition], [count], size=size)
    expected = [read_all(log) for log in logs]
    folders.stop(plenty)
    assert descriptors(tmp_path) == 0
    few = folders.open(tmp_path / "few", settings={"open_segments_max": LIMIT})
    logs = few.create_many("t", range(40), bytes(16), CONFIG)
    for step, (partition, count, size) in enumerate(steps):
        fill(logs[partition], [count], size=size)
        if step % 10 == 0:
            few.flusher.sync_now()
        other = chance.randrange(40)
        assert expected[other].startswith(read_all(logs[other]))
        limit = LIMIT + sum(segment.awaits_sync for log in logs for segment in log.segments)
        assert len(few.open_segments) <= limit <= LIMIT + 10
        assert 0 < descriptors(tmp_path) <= 1 + 3 * limit
    assert sum(len(log.segments) for log in logs) > 60
    folders.stop(few)
    for partition in range(40):
        made, wanted = (
            {path.name: path.read_bytes() for path in (tmp_path / name / f"t-{partition}").iterdir()}
            for name in ("few", "plenty")
        )
        assert made == wanted
    few = folders.open(tmp_path / "few", settings={"open_segments_max": LIMIT})
    assert 0 < descriptors(tmp_path) <= 1 + 3 * LIMIT
    assert [read_all(few.logs["t", partition]) for partition in range(40)] == expected


def test_a_segment_that_was_used_again_stays_open(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path, settings={"open_segments_max": 3})
    logs = directory.create_many("t", range(4), bytes(16), CONFIG)
    for log in (logs[1], logs[2], logs[3]):  # the first one is closed, the flags of the others are cleared
        log.append(make_batch(1))
    logs[1].append(make_batch(1))
    logs[0].append(make_batch(1))
    logs[1].append(make_batch(1))
    logs[2].append(make_batch(1))
    assert [log.segments.active.descriptor >= 0 for log in logs] == [True, True, True, False]


def test_segments_that_cannot_write_their_indexes_stay_open(tmp_path, folders, fill, read_all):
    class FullIndexes(Files):
        full = False

        def open(self, path, *, create):
            if self.full and path.endswith("index"):
                raise DiskFull("no space")
            return super().open(path, create=create)

    files = FullIndexes()
    directory = folders.open(tmp_path, settings={"open_segments_max": 1}, files=files)
    logs = directory.create_many("t", range(3), bytes(16), LogConfig(index_interval_bytes=200))
    files.full = True
    stored = [b"".join(batch for _, batch in fill(log, [3] * 20)) for log in logs]
    assert all(log.segments.active.descriptor >= 0 for log in logs)
    assert [read_all(log) for log in logs] == stored
    files.full = False
    directory.create("t", 3, bytes(16), CONFIG)
    assert len(directory.open_segments) == 1
    assert [read_all(log) for log in logs] == stored


async def test_a_segment_that_is_being_synced_is_not_closed(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path, FlushPolicy.GROUP, settings={"open_segments_max": 1})
    first, second = directory.create_many("t", range(2), bytes(16), CONFIG)
    first.append(make_batch(1))
    target = first.sync_target()
    assert target is not None
    second.append(make_batch(1))
    assert first.segments.active.descriptor >= 0
    target.run(directory.files)
    first.synced(target)
    assert first.high_watermark == 1


class UnsyncedCloses(Files):
    """Real files; `lost` are the paths of `.log` files that were closed with bytes that nobody had synced."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[int, str] = {}
        self.unsynced: set[str] = set()
        self.lost: list[str] = []

    def open(self, path, *, create):
        descriptor = super().open(path, create=create)
        self.paths[descriptor] = path
        return descriptor

    def append(self, descriptor, parts, position, size):
        super().append(descriptor, parts, position, size)
        self.unsynced.add(self.paths[descriptor])

    def sync(self, descriptor):
        super().sync(descriptor)
        self.unsynced.discard(self.paths[descriptor])

    def sync_queue(self):
        return None

    def close(self, descriptor):
        path = self.paths.pop(descriptor, "")
        if path.endswith(".log") and path in self.unsynced:
            self.lost.append(path)
        super().close(descriptor)


def test_no_segment_is_closed_before_its_records_are_synced(tmp_path, folders, make_batch):
    """Nobody hears of a failed write-back of a file that is closed. A sync lets the segments go."""
    chance, files = random.Random(7), UnsyncedCloses()
    directory = folders.open(tmp_path, FlushPolicy.GROUP, settings={"open_segments_max": LIMIT}, files=files)
    logs = directory.create_many("t", range(40), bytes(16), CONFIG)
    most = 0
    for _ in range(30):
        for log in chance.sample(logs, 12):
            log.append(make_batch(chance.randint(1, 4), size=chance.randint(10, 700)))
        most = max(most, len(directory.open_segments))
        directory.flusher.sync_now()
        logs[chance.randrange(40)].read_batches(0, 100)
    assert files.lost == []
    assert sum(len(log.segments) for log in logs) > 60
    assert most > LIMIT
    directory.create("u", 0, bytes(16), CONFIG)
    assert len(directory.open_segments) <= LIMIT


def test_segments_of_an_offline_log_are_closed(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path, FlushPolicy.GROUP, settings={"open_segments_max": 1})
    first, second, third = directory.create_many("t", range(3), bytes(16), CONFIG)
    first.append(make_batch(1))
    second.append(make_batch(1))
    assert len(directory.open_segments) == 2
    first.take_offline("the disk is gone")
    directory.flusher.sync_now()
    third.append(make_batch(1))
    assert first.segments.active.descriptor == -1
    assert (first.high_watermark, second.high_watermark) == (0, 1)


def test_many_segments_that_must_stay_open_cost_little(tmp_path):
    """An addition looks at a limited number of them, and the next one goes on from there."""

    class Kept:
        used = False
        looks = 0

        def release_unused(self):
            Kept.looks += 1
            return False

    ring = OpenSegments(1)
    for _ in range(1000):
        ring.add(Kept())
    assert len(ring) == 1000
    assert Kept.looks <= 16 * 1000


@pytest.mark.parametrize(("files_max", "segments_max"), [(100, 32), (1024, 128), (1 << 20, 16_384)])
def test_the_limit_follows_that_of_the_process(files_max, segments_max):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and files_max > hard:
        pytest.skip(f"this process may open {hard} files")
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files_max}, {hard}));"
        "from storage_svc.log.segment.open_segments import open_segments_max; print(open_segments_max())"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(child.stdout) == segments_max
