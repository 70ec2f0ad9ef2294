"""The groups of a partition come and go some in a turn: read at a start (none is seen before all are), or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from protocol_lib.internal.offset_commit import OffsetCommitValue
from storage_svc.coordinator.hosting.hosted_groups import TOGETHER_MAX
from storage_svc.coordinator.limits import CoordinatorSettings
from storage_svc.coordinator.stored.offsets_log import LoadedPartition

from tests.unit.storage_svc.coordinator.conftest import E, Node

SOME = TOGETHER_MAX


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = await Node(tmp_path, CoordinatorSettings(), offsets_partition_count=1).open()
    yield node
    await node.close()


def loaded_groups(count: int) -> LoadedPartition:
    values = (OffsetCommitValue(offset=number, metadata="", commit_timestamp=0) for number in range(count))
    return LoadedPartition(offsets={f"g{value.offset}": {("orders", 0): value} for value in values})


async def hosting_begins(node: Node) -> None:
    while not node.coordinator.groups:  # noqa: ASYNC110 (the very next turn is looked at)
        await asyncio.sleep(0)


async def test_the_groups_of_a_partition_are_hosted_some_in_a_turn(node: Node) -> None:
    counts: list[int] = []
    groups = node.coordinator.groups
    hosting = asyncio.create_task(node.coordinator._hosted.install(0, loaded_groups(4 * SOME), lambda: False))
    while not hosting.done():
        counts.append(len(groups))
        await asyncio.sleep(0)
    assert counts == [0, SOME, 2 * SOME, 3 * SOME]
    assert [hosted.offsets.durable[("orders", 0)].offset for hosted in groups.values()] == list(range(4 * SOME))


async def test_no_group_is_served_before_all_of_its_partition_are(node: Node) -> None:
    for number in range(SOME + 1):
        await node.commit(f"g{number}", ("orders", 0, 1))
    await node.restart(wait=False)
    await hosting_begins(node)
    first = next(iter(node.coordinator.groups))
    assert len(node.coordinator.groups) == SOME
    assert node.coordinator.offsets.fetch(first, None) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert node.coordinator.is_loading()  # so nobody gets a list of groups
    await node.loading
    assert node.fetched(first) == {("orders", 0): 1}
    assert len(node.coordinator.groups) == SOME + 1


async def test_no_group_is_hosted_of_a_partition_that_is_lost_while_it_loads(node: Node) -> None:
    partitions = node.coordinator._partitions
    hosting = asyncio.create_task(
        node.coordinator._hosted.install(0, loaded_groups(4 * SOME), lambda: partitions.is_lost(0))
    )
    await hosting_begins(node)
    assert node.offsets_log.on_offline is not None
    node.offsets_log.on_offline(0, "a test")
    await hosting
    await asyncio.sleep(0)
    assert node.coordinator.groups == {}
    assert node.coordinator.offsets.fetch("g0", None) == (E.NOT_COORDINATOR, [])


async def test_the_groups_of_a_lost_partition_go_some_in_a_turn(node: Node) -> None:
    groups, on_offline = node.coordinator.groups, node.offsets_log.on_offline
    await node.coordinator._hosted.install(0, loaded_groups(3 * SOME), lambda: False)
    joining = asyncio.create_task(node.join("last"))
    while "last" not in groups:  # noqa: ASYNC110 (turns are counted here)
        await asyncio.sleep(0)
    assert on_offline is not None
    on_offline(0, "a test")
    counts: list[int] = []
    while groups:
        counts.append(len(groups))
        assert node.coordinator.offsets.fetch(f"g{3 * SOME - 1}", None) == (E.NOT_COORDINATOR, [])
        await asyncio.sleep(0)
    assert counts == [3 * SOME + 1, 2 * SOME + 1, SOME + 1, 1]
    assert (await joining).error == E.NOT_COORDINATOR
