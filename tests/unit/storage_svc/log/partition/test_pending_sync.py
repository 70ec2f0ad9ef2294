"""One sync covers everything that was noted before it, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.pending_sync import PendingSync
from storage_svc.log.segment.segment import Segment


class SyncedPaths(Files):
    """Real files; the paths that are synced are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def sync_path(self, path: str) -> None:
        super().sync_path(path)
        self.paths.append(path)


def segment(path: Path, base_offset: int) -> Segment:
    return Segment.create(Files(), str(path), base_offset, LogConfig(), 0)


@pytest.fixture
def segments(tmp_path: Path) -> list[Segment]:
    return [segment(tmp_path, base_offset) for base_offset in (0, 10, 20)]


def test_nothing_noted_is_nothing_to_sync(segments: list[Segment]) -> None:
    assert PendingSync().take(segments[2], 25, 0) is None


def test_the_active_segment_is_synced_up_to_the_end(segments: list[Segment]) -> None:
    unsynced = PendingSync()
    unsynced.records = 5
    unsynced.include(segments[2])
    target = unsynced.take(segments[2], 25, 0)
    assert target is not None
    assert (target.segments, target.recovery_point, target.end_offset) == ([segments[2]], 25, 25)
    assert (unsynced.records, unsynced.take(segments[2], 25, 0)) == (0, None)


def test_older_segments_are_synced_up_to_the_active_one(segments: list[Segment]) -> None:
    unsynced = PendingSync()
    unsynced.records = 5
    unsynced.add_segments(*segments[:2])
    unsynced.forget_segments(segments[:1])
    target = unsynced.take(segments[2], 25, 0)
    assert target is not None
    assert (target.segments, target.recovery_point, unsynced.records) == ([segments[1]], 20, 5)
    assert target.descriptors() == [segments[1].descriptor]


def test_paths_are_synced_in_order_and_once(tmp_path: Path, segments: list[Segment]) -> None:
    unsynced, files = PendingSync(), SyncedPaths()
    (tmp_path / "folder").mkdir()
    for name in ("folder", "gone", "folder"):
        unsynced.add_paths(str(tmp_path / name))
    target = unsynced.take(segments[2], 25, 0)
    assert target is not None
    assert target.descriptors() is None
    target.run(files)
    assert (files.paths, target.failure) == ([str(tmp_path / "folder")], None)
