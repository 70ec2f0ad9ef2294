"""Committed offsets die with their topic: no consumer of a new topic of that name begins at an old offset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from storage_svc.coordinator.classic.events import Leave, Leaver
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat
from storage_svc.coordinator.hosting import deleted_topics
from support.group_calls import answered

from tests.unit.storage_svc.conftest import PlayedTime, until
from tests.unit.storage_svc.coordinator.conftest import SETTINGS, E, Node

#: Retention times that give the stored offset a version with, and without, the id of its topic.
RETENTIONS = [-1, 86_400_000]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = await Node(tmp_path, replace(SETTINGS, groups_max=1000)).open()
    yield made
    await made.close()


async def delete(node: Node, name: str = "orders") -> None:
    topic = node.registry.get(name)
    assert topic is not None
    await node.registry.delete([topic])


async def limit_records(node: Node, bytes_max: str) -> None:
    """Let the log refuse larger batches, as a full disk refuses all."""
    altered = {"max.message.bytes": bytes_max}
    assert await node.registry.configure("__consumer_offsets", lambda own: {**own, **altered}) is not None


@pytest.mark.parametrize("retention_ms", RETENTIONS)
async def test_a_topic_that_is_deleted_while_groups_are_loaded(node: Node, retention_ms: int) -> None:
    await node.commit("g", ("orders", 0, 500), retention_time_ms=retention_ms)
    await node.restart(wait=False)
    await delete(node)
    await node.registry.create("orders", 3, {})
    await node.loading
    assert node.fetched("g") == {}


@pytest.mark.parametrize("retention_ms", RETENTIONS)
async def test_a_crash_between_the_catalog_and_the_tombstones(node: Node, retention_ms: int) -> None:
    await node.registry.create("users", 1, {})
    await node.commit("g", ("users", 0, 500), retention_time_ms=retention_ms)
    node.catalog.remove_topics(["users"])
    await node.restart()
    assert node.fetched("g") == {}
    await node.registry.create("users", 1, {})
    assert node.fetched("g") == {}


async def test_tombstones_that_the_log_refuses_are_written_later(node: Node, played: PlayedTime) -> None:
    await node.commit("g", ("orders", 0, 500))
    await limit_records(node, "10")
    await delete(node)
    await node.registry.create("orders", 3, {})
    await played.go_on(3)
    assert node.fetched("g") == {}
    assert node.records("g")[-1][1] is not None
    await node.restart()  # the refusal goes on
    await played.go_on(3)
    assert node.fetched("g") == {}
    await limit_records(node, "1048588")
    await played.go_on(1.25)
    assert node.records("g")[-1][1] is None


async def test_a_new_topics_offset_outlives_the_sweep_for_the_old_one(node: Node) -> None:
    await node.commit("g", ("orders", 0, 500))
    sweep, node.coordinator._deleted_topics.sweep = node.coordinator._deleted_topics.sweep, lambda: None  # type: ignore[method-assign]
    await delete(node)
    await node.registry.create("orders", 3, {})
    under_way = asyncio.create_task(node.commit("g", ("orders", 0, 3)))
    sweep()
    assert await under_way == [E.NONE]
    for _ in range(2):
        assert node.fetched("g") == {("orders", 0): 3}
        await node.settled("g")
        await node.restart()


async def test_the_event_loop_goes_on_while_many_groups_forget(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_topics, "STEP_OFFSETS", 20)
    await asyncio.gather(*(node.commit(f"g{number}", ("orders", 0, 1)) for number in range(200)))
    turns: list[int] = []
    gather = node.offsets_log.gather
    turn = 0

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())

    def gathered(*arguments: Any) -> None:
        turns.append(turn)
        gather(*arguments)

    monkeypatch.setattr(node.offsets_log, "gather", gathered)
    await delete(node)
    await until(lambda: len(turns) == 200)
    counting.cancel()
    assert max(turns.count(each) for each in turns) == 10  # a group counts as one offset more
    for number in range(200):
        await node.settled(f"g{number}")
    assert node.coordinator.groups == {}


# --- deletions that the log refuses -----------------------------------------------------------------------------------


async def test_a_refused_deletion_of_a_group_changes_nothing(node: Node) -> None:
    await node.commit("g", ("orders", 0, 7))
    await limit_records(node, "10")
    assert await node.coordinator.delete_group("g") == E.UNKNOWN_SERVER_ERROR
    for _ in range(2):
        assert node.fetched("g") == {("orders", 0): 7}
        assert await node.coordinator.offsets.delete("g", [("orders", 0)]) == (E.NONE, [E.UNKNOWN_SERVER_ERROR])
        assert node.fetched("g") == {("orders", 0): 7}
        await node.restart()
    await limit_records(node, "1048588")
    assert await node.coordinator.delete_group("g") == E.NONE
    assert node.coordinator.groups == {}


async def test_a_refused_expiry_changes_nothing(node: Node) -> None:
    member_id, generation_id = await node.member("g")
    await node.commit("g", ("orders", 0, 7), member_id=member_id, generation_id=generation_id)
    await node.coordinator.leave("g", Leave(request=0, members=[Leaver(member_id)]))
    await node.settled("g")
    await limit_records(node, "10")
    node.now_ms += 30 * 86_400_000
    node.coordinator.offsets.expire()
    assert node.fetched("g") == {("orders", 0): 7}
    await limit_records(node, "1048588")
    node.coordinator.offsets.expire()
    assert node.coordinator.groups == {}


async def test_a_large_group_is_forgotten_as_far_as_the_log_accepts_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage_svc.coordinator.stored.internal_log.TOMBSTONE_KEYS_BYTES", 1)
    await node.registry.create("a" * 200, 1, {})
    await node.commit("g", ("orders", 0, 1), ("a" * 200, 0, 2), ("orders", 1, 3))
    await limit_records(node, "150")
    assert await node.coordinator.delete_group("g") == E.UNKNOWN_SERVER_ERROR
    for _ in range(2):
        assert node.fetched("g") == {("a" * 200, 0): 2, ("orders", 1): 3}
        await node.restart()


async def test_a_classic_join_of_an_emptied_consumer_group_waits_for_the_log(node: Node) -> None:
    heartbeat = ConsumerHeartbeat(
        member_id="m", member_epoch=0, rebalance_timeout_ms=60_000, topics=frozenset({"orders"}), owned={}
    )
    await answered(node.coordinator.consumer_heartbeat, "g", heartbeat, needs_member_id=True)
    heartbeat = ConsumerHeartbeat(member_id="m", member_epoch=-1)
    await answered(node.coordinator.consumer_heartbeat, "g", heartbeat, needs_member_id=True)
    await limit_records(node, "10")
    assert (await node.join("g")).error == E.COORDINATOR_NOT_AVAILABLE
    await limit_records(node, "1048588")
    assert (await node.join("g")).error == E.NONE
