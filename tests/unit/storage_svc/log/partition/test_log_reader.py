"""A reader that follows a log is answered without a look at its files, as long as the noted positions are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.read_positions import ReadPositions

TOPIC_ID = bytes(range(16))


class CountingFiles(Files):
    def __init__(self) -> None:
        self.reads = 0

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        self.reads += 1
        return super().read(descriptor, length, position)


def found(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int, int]]:
    return [(each.base_offset, at, length) for each, at, length in log.spans(offset, max_bytes, min_one=True)]


def test_following_the_end_reads_no_file(folders: Any, tmp_path: Path, fill: Callable[..., Any]) -> None:
    files = CountingFiles()
    log = folders.open(tmp_path, files=files).create("t", 0, TOPIC_ID, LogConfig())
    sizes = [len(batch) for _, batch in fill(log, [2] * 10)]
    files.reads = 0
    for number in range(10):
        assert found(log, 2 * number) == [(0, sum(sizes[:number]), sum(sizes[number:]))]
    assert files.reads == 0
    assert found(log, 3) == [(0, sizes[0], sum(sizes[1:]))]  # in the middle of a batch
    assert files.reads > 0


def test_reading_on_reads_only_where_it_ends(folders: Any, tmp_path: Path, fill: Callable[..., Any]) -> None:
    files = CountingFiles()
    directory = folders.open(tmp_path, files=files)
    log = directory.create("t", 0, TOPIC_ID, LogConfig(index_interval_bytes=100))
    stored = fill(log, [2] * 100)
    size = len(stored[0][1])
    for number in range(10):
        files.reads = 0
        assert found(log, 20 * number, 10 * size + 5) == [(0, 10 * number * size, 10 * size)]
        assert files.reads <= (1 if number else 2)
    assert found(log, 20, 5) == [(0, 10 * size, size)]  # at least one


def test_a_position_at_the_end_of_a_segment_is_in_the_next(
    folders: Any, tmp_path: Path, fill: Callable[..., Any], small: LogConfig
) -> None:
    log = folders.open(tmp_path).create("t", 0, TOPIC_ID, small)
    fill(log, [2] * 5)
    size = log.segments.active.size
    found(log, 0, size)
    log.roll(0)
    assert found(log, 10) == []
    fill(log, [2])
    assert found(log, 10) == [(10, 0, log.segments.active.size)]
    assert found(log, 0)[0] == (0, 0, size)


def test_a_position_without_a_batch_is_not_known(folders: Any, tmp_path: Path, fill: Callable[..., Any]) -> None:
    """The next offsets may have been compacted away: the search must go on in the next segment."""
    log = folders.open(tmp_path).create("t", 0, TOPIC_ID, LogConfig())
    segment, positions = log.segments.active, ReadPositions()
    positions.note(0, segment, 0)
    assert positions.find(0, segment) is None
    fill(log, [2])
    assert positions.find(0, segment) == 0
    for offset in range(1, 40):
        positions.note(offset, segment, 0)
    assert positions.find(0, segment) is None
    assert positions.find(39, segment) == 0
