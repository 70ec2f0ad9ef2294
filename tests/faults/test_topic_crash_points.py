"""Topics that are created or deleted together, cut off before each change of the disk, and around each of the catalog.

Whichever way it ends, each topic is either wholly there after the next start, with its records, or wholly gone, and its
name is free. Topics outside of the request keep everything.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest
from faults.simulated_disk import PowerCut, SimulatedDisk
from faults.test_crash_points import WAYS
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.recovery.partition_folder import is_partition
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogFile
from storage_svc.topics.configs import effective
from storage_svc.topics.registry import TopicRegistry

#: More partitions than a step of the event loop, in three topics.
TOGETHER = {"a": 1, "b": 9, "c": 1}
RECORD = build_batch([Record(0, 1_700_000_000_000, None, b"v")])


class CutCatalogFile(CatalogFile):
    """A catalog that may lose power before a transaction, and after it, before anybody learns that it is durable."""

    disk: SimulatedDisk

    def make(self, changes: Sequence[Callable[[], object]]) -> list[object]:
        self.disk._change("catalog", "before")
        outcomes = super().make(changes)
        self.disk._change("catalog", "after")
        return outcomes


class Life:
    """A data folder on the simulated disk, with its catalog and its topics."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.disk = SimulatedDisk()

    async def begin(self) -> None:
        await self.open()
        await self.registry.create("kept", 2, {})

    async def open(self) -> None:
        settings = LogSettings(flush_policy=FlushPolicy.GROUP)
        self.folder = DataFolder.open(Path("/data"), settings, files=self.disk, clock=lambda: 1_700_000_000_000)
        file = CutCatalogFile.open(self.path)
        file.disk = self.disk
        file._connection.execute("PRAGMA synchronous=OFF")  # the machine of this test has power
        self.catalog = Catalog(file)
        self.registry = TopicRegistry(
            self.catalog, self.folder, lambda own: LogConfig.from_properties(effective(own, {}))
        )
        await self.registry.reconcile(self.catalog.read())
        for log in self.folder.logs.values():
            log.check_invariants()

    def write(self) -> None:
        for log in self.folder.logs.values():
            assert log.append(RECORD).error_code == 0
        self.folder.flusher.sync_now()

    async def create(self) -> None:
        topics = [self.registry.announce(name, count, {}) for name, count in TOGETHER.items()]
        assert await self.registry.create_announced(topics) == {}

    async def delete(self) -> None:
        topics = [topic for name in TOGETHER if (topic := self.registry.get(name)) is not None]
        assert await self.registry.delete(topics) == topics

    def check(self, records: int) -> list[str]:
        """Check every topic, and return the names of those that are there."""
        there = [name for name in TOGETHER if name in self.registry]
        expected = {(name, index) for name in there for index in range(TOGETHER[name])}
        assert self.folder.logs.keys() == expected | {("kept", 0), ("kept", 1)}
        assert {log.offline for log in self.folder.logs.values()} == {None}
        assert {self.folder.logs[key].log_end_offset for key in expected} <= {records}
        assert [self.folder.logs["kept", index].log_end_offset for index in range(2)] == [1, 1]
        folders = {name for name, is_folder, _ in self.disk.entries("/data") if is_folder and "-delete" not in name}
        partitions = {name for name in folders if is_partition(self.disk, f"/data/{name}")}
        assert partitions == folders == {f"{name}-{index}" for name, index in self.folder.logs}
        assert [
            name
            for folder in folders
            for name, _, _ in self.disk.entries(f"/data/{folder}")
            if name.endswith((".tmp", ".swap", ".cleaned"))
        ] == []
        assert self.catalog.read().deletions == {}
        return there


async def _crash(
    path: Path, way: str, at: int, prepare: Callable[[Life], Awaitable[None]], act: Callable[[Life], Awaitable[None]]
) -> tuple[Life, bool]:
    """Cut the power at a change of `act`, and start again; return whether that change came."""
    life = Life(path)
    await life.begin()
    await prepare(life)
    life.disk.journal = []
    life.disk.cut_at = life.disk.changes + at
    with suppress(PowerCut):
        await act(life)
    was_cut = not life.disk.powered
    await life.catalog.close()
    life.disk.cut()
    life.disk.restart(WAYS[way](random.Random(at)))
    await life.open()
    return life, was_cut


async def _written(life: Life) -> None:
    life.write()


async def _made_and_written(life: Life) -> None:
    await life.create()
    life.write()


async def _crash_deletions(path: Path, way: str, points: Iterable[int]) -> None:
    outcomes = set()
    for at in points:
        life, was_cut = await _crash(path / str(at), way, at, _made_and_written, Life.delete)
        there = life.check(1)
        outcomes.add(len(there))
        if not there:  # the names are free
            await life.create()
            assert life.check(0) == list(TOGETHER)
        await life.catalog.close()
        if not was_cut:
            break
    assert outcomes == {0, len(TOGETHER)}  # one transaction
    assert at > sum(TOGETHER.values())


async def _crash_creations(path: Path, way: str, points: Iterable[int]) -> None:
    outcomes = set()
    for at in points:
        life, was_cut = await _crash(path / str(at), way, at, _written, Life.create)
        outcomes.add(len(life.check(0)))
        await life.catalog.close()
        if not was_cut:
            break
    assert outcomes == {0, len(TOGETHER)}
    assert at > sum(TOGETHER.values())


@pytest.mark.parametrize("crash", [_crash_deletions, _crash_creations], ids=["deletion", "creation"])
@pytest.mark.parametrize("way", WAYS)
async def test_each_crash_point_in_one_way(way: str, tmp_path: Path, crash: Any) -> None:
    """Every third point in each of the ways, and the first in all: it comes before the transaction."""
    await crash(tmp_path, way, chain([0], count(1 + list(WAYS).index(way), len(WAYS))))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_every_crash_point_of_a_deletion_of_many_topics(
    way: str, tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    await _crash_deletions(tmp_path, way, count(0, 20 // scaled(20)))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
async def test_every_crash_point_of_a_creation_of_many_topics(
    way: str, tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    await _crash_creations(tmp_path, way, count(0, 20 // scaled(20)))
