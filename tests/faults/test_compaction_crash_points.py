"""A compaction, ended before each of its writes, syncs, renames and deletions in turn: no key loses its newest value.

Keys are written over and over, so that whole segments are superseded, some are deleted by tombstones, and the log is
cleaned twice. The checkpoints are as old as they can be: the start after the crash knows only the log's files.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from faults.simulated_disk import PowerCut, SimulatedDisk
from faults.test_crash_points import WAYS
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record, read_records
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.partition.partition_log import PartitionLog

NOW_MS = 1_700_000_000_000
COMPACT = LogConfig(
    cleanup_policy=frozenset(("compact",)),
    segment_bytes=1000,
    index_interval_bytes=200,
    delete_retention_ms=0,
    min_cleanable_dirty_ratio=0.0,
)


class Life:
    """One compacted log and the newest acknowledged value of each key."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.newest: dict[bytes, bytes | None] = {}
        self.offset = 0
        self.now_ms = NOW_MS
        self.directory: DataFolder

    def open(self) -> PartitionLog:
        settings = LogSettings(flush_policy=FlushPolicy.GROUP)
        self.directory = DataFolder.open(Path("/data"), settings, files=self.disk, clock=lambda: self.now_ms)
        return self.directory.create("c", 0, bytes(16), COMPACT)

    def write(self, log: PartitionLog, key: bytes, value: bytes | None) -> None:
        appended = log.append(build_batch([Record(0, self.now_ms, key, value)]))
        assert appended.error_code == 0
        self.directory.flusher.sync_now()
        assert log.high_watermark == log.log_end_offset
        self.newest[key] = value
        self.offset = log.log_end_offset

    def script(self) -> None:
        log = self.open()
        for number in range(24):
            self.write(log, b"often%d" % (number % 2), str(number).encode() * 90)
        self.write(log, b"once", b"once" * 50)
        self.write(log, b"gone", b"value")
        self.write(log, b"gone", None)
        for number in range(24, 34):
            self.write(log, b"often%d" % (number % 2), str(number).encode() * 90)
        Maintenance(self.directory).cleaner.clean_now(log)
        self.now_ms += 10_000
        for number in range(34, 44):
            self.write(log, b"often%d" % (number % 2), str(number).encode() * 90)
        Maintenance(self.directory).cleaner.clean_now(log)

    def check(self) -> int:
        """Check the log, and return the number of records that were compacted away."""
        log = self.open()
        assert log.offline is None
        assert log.log_end_offset >= self.offset
        found: list[Record] = []
        offset = 0
        while data := log.read_batches(offset, 1 << 20):
            for header, batch in read_batches(data):
                found += read_records(bytes(batch))
                offset = header.last_offset + 1
        assert [each.offset for each in found] == sorted(each.offset for each in found)
        last = {each.key: each.value for each in found if each.offset < self.offset}
        for key, value in self.newest.items():
            assert last.get(key) == value, key
        self.directory.check_invariants()
        self.write(log, b"after", b"the crash")
        return self.offset - len(found)


def _journal() -> list[tuple[str, str]]:
    life = Life()
    life.disk.journal = []
    life.script()
    return life.disk.journal


def _points(journal: list[tuple[str, str]]) -> list[int]:
    """Return all that the cleanings do, and a part of the appends before them."""
    swaps = [at for at, (call, path) in enumerate(journal) if call == "rename" and path.endswith(".log.cleaned")]
    assert len(swaps) > 2
    return [*range(0, swaps[0] - 30, 10), *range(swaps[0] - 30, len(journal))]


def _crash_at(points: Sequence[int], way: str) -> int:
    """Crash at each point; return the most records that were compacted away."""
    compacted = []
    for at in points:
        life = Life()
        life.disk.cut_at = at
        with pytest.raises(PowerCut):
            life.script()
        life.disk.restart(WAYS[way](random.Random(at)))
        compacted.append(life.check())
    assert max(compacted) > 20
    return max(compacted)


@pytest.mark.parametrize("way", WAYS)
def test_each_crash_point_of_a_compaction_in_one_way(way):
    """Every third point in each of the ways."""
    _crash_at(_points(_journal())[list(WAYS).index(way) :: len(WAYS)], way)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_every_crash_point_of_a_compaction(way, figures, scaled):
    points = _points(_journal())
    points = points[:: len(points) // scaled(len(points))]
    figures(f"{len(points)} crash points; up to {_crash_at(points, way)} records compacted away")
