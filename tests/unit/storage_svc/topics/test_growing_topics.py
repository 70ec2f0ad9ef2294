"""Topics that get more partitions: in steps, whole or not at all, and after every crash."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.errors import StorageFailure
from storage_svc.topics.catalog_file import CatalogError

from tests.unit.storage_svc.topics.conftest import Folder

RECORD = build_batch([Record(0, 1_700_000_000_000, None, b"v")])


def indexes(folder: Folder) -> list[int]:
    return sorted(index for topic, index in folder.logs.logs if topic == "orders")


async def test_a_topic_grows_in_steps(folder: Folder) -> None:
    registry = folder.registry
    made = await registry.create("orders", 2, {"segment.ms": "5"})
    version = registry.version
    growth = asyncio.create_task(registry.grow({"orders": 40}))
    counts = {2}
    await asyncio.sleep(0)
    while registry.get("orders") == made:
        assert registry.is_changing("orders")
        assert (registry.partition_count(), registry.version) == (40, version)
        counts.add(len(indexes(folder)))
        await asyncio.sleep(0)
    assert counts == {2, 12, 22, 32, 40}
    await growth
    grown = registry.get("orders")
    assert grown is not None
    assert (grown.id, grown.partition_count, grown.configs) == (made.id, 40, {"segment.ms": "5"})
    assert (registry.is_changing("orders"), registry.partition_count(), registry.version) == (False, 40, version + 1)
    assert {folder.logs.logs["orders", index].config.segment_ms for index in range(40)} == {5}
    assert (await folder.restart()).get("orders") == grown
    assert indexes(folder) == list(range(40))


async def test_configs_that_change_during_the_growth_count_for_new_partitions(folder: Folder) -> None:
    registry = folder.registry
    await registry.create("orders", 1, {})
    growth = asyncio.create_task(registry.grow({"orders": 30}))
    await folder.until_logs(11)
    assert len(indexes(folder)) == 11
    await registry.configure("orders", lambda _: {"segment.ms": "7"})
    await growth
    grown = registry.get("orders")
    assert grown is not None
    assert (grown.partition_count, grown.configs) == (30, {"segment.ms": "7"})
    assert {folder.logs.logs["orders", index].config.segment_ms for index in range(30)} == {7}


@pytest.mark.parametrize("step", ["folder", "catalog", "cancelled"])
async def test_a_refused_growth_leaves_the_topic_as_it_was(
    folder: Folder, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = folder.registry
    made = await registry.create("orders", 2, {})
    growth = asyncio.create_task(registry.grow({"orders": 25}))
    await folder.until_logs(12)
    assert len(indexes(folder)) == 12
    error: type[BaseException] = asyncio.CancelledError
    if step == "folder":
        monkeypatch.setattr(folder.logs, "create_many", lambda *_: (_ for _ in ()).throw(StorageFailure("full")))
    elif step == "catalog":
        error = CatalogError
        refused = lambda *_: (_ for _ in ()).throw(CatalogError("full"))  # noqa: E731
        monkeypatch.setattr(folder.catalog.file, "set_partition_counts", refused)
    else:
        growth.cancel()
    if step == "folder":
        assert isinstance((await growth)["orders"], StorageFailure)
    else:
        with pytest.raises(error):
            await growth
    await registry.finish()
    monkeypatch.undo()
    assert (registry.get("orders"), registry.is_changing("orders")) == (made, False)
    assert (indexes(folder), registry.partition_count()) == ([0, 1], 2)
    await folder.restart()
    assert (folder.registry.get("orders"), indexes(folder)) == (made, [0, 1])
    await folder.registry.grow({"orders": 3})
    assert indexes(folder) == [0, 1, 2]


async def test_a_growth_whose_client_leaves_is_undone_in_steps(folder: Folder) -> None:
    registry = folder.registry
    made = await registry.create("orders", 1, {})
    growth = asyncio.create_task(registry.grow({"orders": 90}))
    await folder.until_logs(51)
    growth.cancel()
    deletion = asyncio.create_task(registry.delete([made]))
    left = [len(indexes(folder))]
    while registry.get("orders") == made:
        assert registry.is_changing("orders")
        await asyncio.sleep(0)
        left.append(len(indexes(folder)))
    assert growth.cancelled()
    assert left[-1] <= 1
    assert max(before - after for before, after in itertools.pairwise(left)) == 10
    await deletion
    assert (indexes(folder), registry.is_changing("orders"), registry.partition_count()) == ([], False, 0)


async def test_topics_that_grow_together_are_one_transaction_and_one_version(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = folder.registry
    names = [f"t{number}" for number in range(30)]
    for name in names:
        await registry.create(name, 1, {})
    stored: list[Mapping[str, int]] = []
    store, make = folder.catalog.file.set_partition_counts, folder.logs.create_many
    note = lambda counts: (stored.append(counts), store(counts))  # noqa: E731
    monkeypatch.setattr(folder.catalog.file, "set_partition_counts", note)

    def made(topic: str, *rest: Any) -> Any:
        if topic == "t7":
            raise StorageFailure("full")
        return make(topic, *rest)

    monkeypatch.setattr(folder.logs, "create_many", made)
    version = registry.version
    growth = asyncio.create_task(registry.grow(dict.fromkeys(names, 2)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < sum(index for _, index in folder.logs.logs) <= 20  # as many as two turns may make
    assert registry.partition_count() == 60
    assert list(await growth) == ["t7"]
    assert (len(stored), registry.version, registry.partition_count()) == (1, version + 1, 59)
    counts = {topic.name: topic.partition_count for topic in folder.catalog.read().topics}
    assert counts == {**dict.fromkeys(names, 2), "t7": 1}
    assert ("t7", 1) not in folder.logs.logs


async def test_a_start_removes_what_a_crash_left_of_a_growth(folder: Folder) -> None:
    made = await folder.registry.create("orders", 1, {})
    folder.logs.create_many("orders", [1, 2], made.id, folder.logs.logs["orders", 0].config)
    folder.logs.create_many("orders", [3], b"x" * 16, folder.logs.logs["orders", 0].config)
    folder.logs.logs["orders", 2].append(RECORD)
    await folder.restart()
    assert indexes(folder) == [0, 2, 3]  # a record, and another topic's id: these are left alone
    assert folder.registry.get("orders") == made


async def test_a_start_makes_the_partitions_of_a_growth_whose_folders_a_power_cut_lost(folder: Folder) -> None:
    made = await folder.registry.create("orders", 1, {})
    await folder.catalog.set_partition_counts({"orders": 3})
    await folder.restart()
    assert indexes(folder) == [0, 1, 2]
    assert {folder.logs.logs["orders", index].topic_id for index in range(3)} == {made.id}


async def test_a_deletion_waits_for_the_growth_and_takes_all_partitions(folder: Folder) -> None:
    registry = folder.registry
    made = await registry.create("orders", 1, {})
    growth = asyncio.create_task(registry.grow({"orders": 30}))
    await asyncio.sleep(0)
    await asyncio.gather(registry.delete([made]), registry.delete([made]))
    assert growth.done()
    assert (registry.get("orders"), indexes(folder), folder.catalog.read().topics) == (None, [], [])
    assert (await registry.create("orders", 1, {})).partition_count == 1
