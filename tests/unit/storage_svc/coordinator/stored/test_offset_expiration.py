"""When committed offsets and the groups they belong to are forgotten."""

from __future__ import annotations

import asyncio

from protocol_lib.internal.offset_commit import OffsetCommitValue
from protocol_lib.internal.record import read_value
from storage_svc.coordinator.classic.events import Leave, Leaver

from tests.unit.storage_svc.coordinator.conftest import E, Node

WEEK_MS = 7 * 86_400_000


async def test_a_simple_groups_offsets_expire_a_week_after_their_commit(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1))
    node.now_ms += WEEK_MS - 1
    await node.commit("g", ("orders", 1, 1))
    node.coordinator.offsets.expire()
    assert node.fetched("g") == {("orders", 0): 1, ("orders", 1): 1}
    node.now_ms += 1
    node.coordinator.offsets.expire()
    assert node.fetched("g") == {("orders", 1): 1}
    node.now_ms += WEEK_MS
    node.coordinator.offsets.expire()
    assert node.coordinator.groups == {}
    await node.restart()
    assert node.coordinator.groups == {}


async def test_an_offset_that_is_being_committed_again_does_not_expire(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1), ("orders", 1, 1))
    node.now_ms += WEEK_MS
    under_way = asyncio.create_task(node.commit("g", ("orders", 0, 2)))
    await asyncio.sleep(0)
    node.coordinator.offsets.expire()
    assert await under_way == [E.NONE]
    assert node.fetched("g") == {("orders", 0): 2}
    await node.restart()
    assert node.fetched("g") == {("orders", 0): 2}


async def test_more_offsets_than_one_batch_can_delete_expire_for_good(node: Node) -> None:
    group = "g" * 30_000
    await node.registry.create("wide", 40, {})
    for start in (0, 20):
        offsets = [("wide", index, 1) for index in range(start, start + 20)]
        assert await node.commit(group, *offsets) == [E.NONE] * 20
    node.now_ms += WEEK_MS
    node.coordinator.offsets.expire()
    await node.restart()
    assert node.coordinator.groups == {}


async def test_an_emptied_groups_offsets_expire_a_week_after_it_became_empty(node: Node) -> None:
    member_id, generation_id = await node.member("g")
    await node.commit("g", ("orders", 0, 1), member_id=member_id, generation_id=generation_id)
    node.now_ms += 3 * WEEK_MS
    node.coordinator.offsets.expire()
    assert node.fetched("g") == {("orders", 0): 1}
    await node.coordinator.leave("g", Leave(request=0, members=[Leaver(member_id)]))
    await node.settled("g")
    node.now_ms += WEEK_MS - 1
    node.coordinator.offsets.expire()
    assert node.fetched("g") == {("orders", 0): 1}
    node.now_ms += 1
    node.coordinator.offsets.expire()
    assert node.coordinator.groups == {}
    await node.restart()
    assert node.coordinator.groups == {}


async def test_a_stable_groups_offsets_expire_only_for_topics_nobody_subscribes_to(node: Node) -> None:
    await node.registry.create("users", 1, {})
    await node.commit("g", ("users", 0, 2), ("orders", 0, 1))
    await node.member("g")
    node.now_ms += WEEK_MS
    node.coordinator.offsets.expire()
    assert node.fetched("g") == {("orders", 0): 1}


async def test_a_group_of_another_protocol_keeps_its_offsets_while_it_has_members(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1))
    joined = await node.join("g", protocol_type="connect", protocols=(("v1", b"\xff"),))
    await node.sync("g", joined.member_id, 1, {})
    node.now_ms += 2 * WEEK_MS
    node.coordinator.offsets.expire()
    assert node.fetched("g") == {("orders", 0): 1}


async def test_a_commit_may_name_its_own_retention(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1), retention_time_ms=1000)
    ((_, value),) = node.records("g")
    assert value is not None
    assert read_value(OffsetCommitValue, value).expire_timestamp == node.now_ms + 1000
    await node.restart()
    node.now_ms += 999
    node.coordinator.offsets.expire()
    assert node.fetched("g") == {("orders", 0): 1}
    node.now_ms += 1
    node.coordinator.offsets.expire()
    assert node.coordinator.groups == {}
