"""A commit repeated by its offsets alone: stored as the whole one would be, as long as that would be accepted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.classic.events import Commit, GroupState, Leave, Leaver
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings
from storage_svc.coordinator.limits import CommitRequest, NewOffset
from storage_svc.coordinator.repeatable_commits import PARTITIONS_MAX, RepeatableCommit
from storage_svc.log.errors import StorageFailure
from support.group_calls import answered

from tests.unit.storage_svc.conftest import PlayedTime
from tests.unit.storage_svc.coordinator.conftest import SETTINGS, DiskThatBreaks, Node

E = ErrorCode


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    settings = replace(SETTINGS, consumer=ConsumerGroupSettings(assignment_interval_ms=0))
    made = await Node(tmp_path, settings).open()
    await made.make_offsets_topic()
    await made.registry.create("users", 20, {})
    yield made
    await made.close()


async def committed(
    node: Node, *places: tuple[str, int], who: tuple[str, int] = ("", -1), **rest: Any
) -> RepeatableCommit | None:
    """Commit offset 5 of each partition, wait until it is durable, and return the commit to repeat."""
    commit = Commit(request=0, member_id=who[0], generation_id=who[1])
    offsets = [NewOffset(*place, 5, 7, "note") for place in places or (("orders", 0),)]
    codes: asyncio.Future[list[E]] = asyncio.get_running_loop().create_future()
    request = CommitRequest("g", commit, offsets, **{"will_repeat": True, **rest})
    repeat = node.coordinator.offsets.commit(request, codes.set_result)
    await codes
    return repeat


async def repeated(repeat: RepeatableCommit | None, *offsets: int) -> Sequence[int] | None:
    """Repeat a commit, and return its answer; None when it has to come whole."""
    assert repeat is not None
    codes: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
    return await codes if repeat(offsets, codes.set_result) else None


async def enter(node: Node, member_id: str) -> int:
    heartbeat = ConsumerHeartbeat(
        member_id=member_id, member_epoch=0, rebalance_timeout_ms=60_000, topics=frozenset({"orders"}), owned={}
    )
    answer = await answered(node.coordinator.consumer_heartbeat, "g", heartbeat, needs_member_id=True)
    assert answer.error == E.NONE
    await node.settled("g")
    return int(answer.member_epoch)


async def test_records_and_memory_are_those_of_the_whole_commit(node: Node) -> None:
    places = ("orders", 0), ("users", 19), ("orders", 2)
    repeat = await committed(node, *places)
    node.now_ms += 1000
    whole = Commit(request=0, member_id="", generation_id=-1)
    offsets = [NewOffset(*place, offset, 7, "note") for place, offset in zip(places, (6, 2**63 - 1, 8), strict=True)]
    assert await answered(node.coordinator.offsets.commit, CommitRequest("g", whole, offsets)) == [E.NONE] * 3
    assert await repeated(repeat, 6, 2**63 - 1, 8) == ()
    records = node.records("g")
    assert len(records) == 9
    assert records[6:] == records[3:6]
    assert records[3:6] != records[:3]
    assert node.fetched("g") == dict(zip(places, (6, 2**63 - 1, 8), strict=True))
    before = node.coordinator.offsets.fetch("g", None)
    await node.restart()
    assert node.coordinator.offsets.fetch("g", None) == before


async def test_it_is_seen_and_answered_when_it_is_durable(node: Node) -> None:
    repeat = await committed(node)
    assert repeat is not None
    answers: list[Sequence[int]] = []
    assert repeat((6,), answers.append)
    await asyncio.sleep(0)
    assert (answers, node.fetched("g")) == ([], {("orders", 0): 5})
    await node.settled("g")
    assert (answers, node.fetched("g")) == ([()], {("orders", 0): 6})


async def test_only_a_commit_that_was_accepted_whole_may_be_repeated(node: Node) -> None:
    orders = "orders", 0
    assert await committed(node, orders, ("nothing", 0)) is None
    assert await committed(node, orders, orders) is None
    assert await committed(node, orders, who=("nobody", 3)) is None
    assert await committed(node, orders, retention_time_ms=1000) is None
    assert await committed(node, orders, will_repeat=False) is None
    many = [("users", partition) for partition in range(PARTITIONS_MAX + 1)]
    assert await committed(node, *many) is None
    assert await committed(node, *many[1:]) is not None


async def a_member(node: Node) -> None:
    await node.member("g")


async def a_member_that_is_not_stable(node: Node) -> None:
    await node.join("g")
    assert node.state("g") is GroupState.COMPLETING_REBALANCE


async def a_new_topic(node: Node) -> None:
    await node.registry.create("payments", 1, {})


async def no_topic(node: Node) -> None:
    orders = node.registry.get("orders")
    assert orders is not None
    await node.registry.delete([orders])


async def the_groups_end(node: Node) -> None:
    assert await node.coordinator.delete_group("g") == E.NONE


async def another_group_of_the_name(node: Node) -> None:
    await the_groups_end(node)
    await node.commit("g", ("orders", 1, 1))


async def a_consumer_group(node: Node) -> None:
    await enter(node, "m1")


async def the_stop(node: Node) -> None:
    await node.coordinator.stop()


@pytest.mark.parametrize(
    "event",
    [
        a_member,
        a_member_that_is_not_stable,
        a_new_topic,
        no_topic,
        the_groups_end,
        another_group_of_the_name,
        a_consumer_group,
        the_stop,
    ],
)
async def test_it_has_to_come_whole_once_something_has_happened(
    node: Node, event: Callable[[Node], Awaitable[None]]
) -> None:
    repeat = await committed(node)
    assert await repeated(repeat, 6) == ()
    await event(node)
    records = node.records("g")
    assert await repeated(repeat, 7) is None
    assert node.records("g") == records


async def test_a_classic_member_repeats_while_its_generation_is_stable_and_keeps_its_session(
    node: Node, played: PlayedTime
) -> None:
    joined = await node.join("g")
    who = joined.member_id, joined.generation_id
    await node.sync("g", *who, {who[0]: b""})
    repeat = await committed(node, who=who)
    for offset in range(4):
        await played.go_on(5)
        if await repeated(repeat, offset) is None:  # its session's timer had to be set again
            repeat = await committed(node, who=who)
    assert node.state("g") is GroupState.STABLE
    joining = asyncio.create_task(node.join("g"))
    await asyncio.sleep(0)
    assert node.state("g") is GroupState.PREPARING_REBALANCE
    assert await repeated(repeat, 9) is None
    await node.coordinator.leave("g", Leave(request=0, members=[Leaver(who[0])]))
    assert await repeated(repeat, 9) is None
    await node.coordinator.stop()
    await joining


async def test_a_member_of_a_consumer_group_repeats_until_the_group_changes(node: Node) -> None:
    epoch = await enter(node, "m1")
    repeat = await committed(node, who=("m1", epoch), knows_epochs=True)
    assert await repeated(repeat, 6) == ()
    await enter(node, "m2")
    assert await repeated(repeat, 7) is None
    assert node.fetched("g") == {("orders", 0): 6}


async def test_a_disk_that_breaks_is_an_error_for_every_partition(node: Node) -> None:
    class Disk(DiskThatBreaks):
        def append(self, *arguments: Any) -> None:
            if self.fault is not None:
                raise self.fault
            super().append(*arguments)

    node.files = disk = Disk()
    await node.restart()
    repeat = await committed(node, ("orders", 0), ("orders", 1))
    disk.fault = StorageFailure("the disk is gone")
    assert await repeated(repeat, 6, 7) == [E.NOT_COORDINATOR] * 2
    await asyncio.sleep(0)
    assert await repeated(repeat, 6, 7) is None
    disk.fault = None
