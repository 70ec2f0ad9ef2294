"""Groups and offsets that are deleted on request (DeleteGroups, OffsetDelete)."""

from __future__ import annotations

import asyncio

import pytest
from storage_svc.coordinator.classic.events import Leave, Leaver

from tests.unit.storage_svc.coordinator.conftest import E, Node


async def test_an_empty_group_is_deleted_with_its_offsets_for_good(node: Node) -> None:
    member_id, generation_id = await node.member("g")
    await node.commit("g", ("orders", 0, 1), member_id=member_id, generation_id=generation_id)
    await node.coordinator.leave("g", Leave(request=0, members=[Leaver(member_id)]))
    await node.settled("g")
    assert await node.coordinator.delete_group("g") == E.NONE
    assert (node.state("g"), node.fetched("g")) == (None, {})
    await node.restart()
    assert (node.state("g"), node.fetched("g")) == (None, {})


async def test_a_simple_group_is_deleted_for_good(node: Node) -> None:
    await node.commit("", ("orders", 0, 1))
    assert await node.coordinator.delete_group("") == E.NONE
    await node.restart()
    assert node.coordinator.groups == {}


async def test_a_commit_under_way_when_its_group_is_deleted_leaves_nothing(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1))
    under_way = asyncio.create_task(node.commit("g", ("orders", 1, 2)))
    await asyncio.sleep(0)
    assert await node.coordinator.delete_group("g") == E.NONE
    assert await under_way == [E.NONE]
    assert node.fetched("g") == {}
    await node.restart()
    assert node.coordinator.groups == {}


async def test_offsets_are_deleted_for_good(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1), ("orders", 1, 2))
    keys = [("orders", 0), ("orders", 2), ("orders", 3), ("nothing", 0), ("orders", 0)]
    expected = [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE]
    assert await node.coordinator.offsets.delete("g", keys) == (E.NONE, expected)
    assert node.fetched("g") == {("orders", 1): 2}
    await node.restart()
    assert node.fetched("g") == {("orders", 1): 2}


@pytest.mark.parametrize("what", ["group", "offsets"])
async def test_a_deletion_whose_caller_has_gone_is_carried_out(node: Node, what: str) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    await node.commit("g", ("orders", 0, 1))
    coordinator = node.coordinator
    deletion = coordinator.delete_group("g") if what == "group" else coordinator.offsets.delete("g", [("orders", 0)])
    calling = asyncio.ensure_future(deletion)  # type: ignore[var-annotated, arg-type]
    await asyncio.sleep(0)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await node.restart()
    assert node.fetched("g") == {}
    assert faults == []
