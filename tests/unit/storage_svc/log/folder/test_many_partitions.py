"""The steps of a start and a stop for each partition: counted, since time depends on the machine."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk.files import Files
from storage_svc.log.folder.data_folder import DataFolder

PARTITIONS = 40
SETTINGS = LogSettings(flush_policy=FlushPolicy.GROUP)


class CountedFiles(Files):
    """Real files that count the calls which name a partition's folder, or use a file of it."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        for name in ("open", "read", "read_file", "map_file", "entries", "exists", "unlink", "write_file", "truncate",
                     "append", "rename", "modified_ms", "sync", "sync_path", "sync_queued"):  # fmt: skip
            setattr(self, name, self._counted(name, getattr(self, name)))

    def _counted(self, name, call):
        def counted(*arguments, **options):
            self.calls[name] += 1
            return call(*arguments, **options)

        return counted

    def taken(self) -> dict[str, int]:
        """Return the calls for each partition so far, and count from zero; those of the data folder do not show."""
        found = {name: count // PARTITIONS for name, count in self.calls.items() if count >= PARTITIONS}
        self.calls.clear()
        return found


@pytest.fixture
def filled(tmp_path: Path, make_batch) -> Path:
    directory = DataFolder.open(tmp_path, SETTINGS)
    for log in directory.create_many("t", range(PARTITIONS), bytes(range(16)), LogConfig()):
        log.append(make_batch(3))
    asyncio.run(directory.close())
    return tmp_path


def test_a_clean_start_reads_each_partition_once_and_its_stop_does_nothing(filled):
    files = CountedFiles()
    directory = DataFolder.open(filled, SETTINGS, files=files)
    # The epochs, the producers and the topic's id are in a file each.
    assert files.taken() == {"entries": 1, "read_file": 3, "open": 1, "read": 1, "modified_ms": 1}
    assert all(log.segments.active.descriptor < 0 for log in directory.logs.values())
    asyncio.run(directory.close())
    assert files.taken() == {}


def test_a_stop_completes_what_was_used_only(filled, make_batch):
    files = CountedFiles()
    directory = DataFolder.open(filled, SETTINGS, files=files)
    directory.logs["t", 0].append(make_batch(3))
    directory.sync_recovered()
    files.taken()
    asyncio.run(directory.close())
    assert files.taken() == {}
    assert sorted(path.name for path in (filled / "t-0").glob("*.snapshot")) == [f"{n:020d}.snapshot" for n in (3, 6)]
    assert [path.name for path in (filled / "t-1").glob("*.snapshot")] == [f"{3:020d}.snapshot"]


def test_a_start_after_a_crash_makes_and_removes_no_file(filled, make_batch):
    directory = DataFolder.open(filled, SETTINGS)
    for log in directory.logs.values():
        log.append(make_batch(3))
    directory.release()
    before = {path: path.read_bytes() for path in filled.glob("t-*/*")}
    files = CountedFiles()
    directory = DataFolder.open(filled, SETTINGS, files=files)
    done = files.taken()
    assert {name for name in done if name in ("unlink", "write_file", "truncate", "append", "rename")} == set()
    assert (done["entries"], done["open"]) == (1, 1)
    assert {path: path.read_bytes() for path in filled.glob("t-*/*")} == before
    assert {log.high_watermark for log in directory.logs.values()} == {6}
    directory.release()


def test_the_first_append_after_a_clean_start_continues_the_indexes(tmp_path, make_batch):
    config = LogConfig(index_interval_bytes=0)
    directory = DataFolder.open(tmp_path, SETTINGS)
    log = directory.create("t", 0, bytes(range(16)), config)
    for number in range(4):
        log.append(make_batch(1, timestamp=1000 + number))
    asyncio.run(directory.close())
    for number in range(4, 8):
        directory = DataFolder.open(tmp_path, SETTINGS, configs=lambda: {"t": config})
        log = directory.logs["t", 0]
        log.append(make_batch(1, timestamp=1000 + number))
        assert log.segments.active.first_timestamp == 1000
        asyncio.run(directory.close())
    written = [(tmp_path / "t-0" / f"{0:020d}{suffix}").read_bytes() for suffix in (".index", ".timeindex")]
    whole = DataFolder.open(tmp_path / "whole", SETTINGS)
    log = whole.create("t", 0, bytes(range(16)), config)
    for number in range(8):
        log.append(make_batch(1, timestamp=1000 + number))
    asyncio.run(whole.close())
    assert written[0] == (tmp_path / "whole" / "t-0" / f"{0:020d}.index").read_bytes()
    assert written[1][-12:] == (tmp_path / "whole" / "t-0" / f"{0:020d}.timeindex").read_bytes()[-12:]
