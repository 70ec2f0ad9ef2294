"""Consumer groups on real logs: every answer is durable, and a restart costs no member anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.consumer_protocol import Assignment, TopicPartitions, encode_assignment
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.record import OFFSETS_TOPIC, read_key, read_version
from storage_svc.coordinator.classic.events import Leave, Leaver
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings
from storage_svc.log.errors import StorageFailure
from support.group_calls import answered

from tests.unit.storage_svc.conftest import PlayedTime, until
from tests.unit.storage_svc.coordinator.conftest import SETTINGS, DiskThatBreaks, Node

E = ErrorCode
CONSUMER = ConsumerGroupSettings(assignment_interval_ms=0, size_max=3)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = await Node(tmp_path, replace(SETTINGS, consumer=CONSUMER)).open()
    yield made
    for hosted in made.coordinator.groups.values():
        hosted.entity.check_invariants()
    await made.close()


async def beat(
    node: Node, member_id: str, epoch: int, group: str = "g", *, is_restricted: bool = False, **fields: Any
) -> HeartbeatAnswer:
    heartbeat = ConsumerHeartbeat(member_id=member_id, member_epoch=epoch, **fields)
    ask = node.coordinator.consumer_heartbeat
    return await answered(ask, group, heartbeat, needs_member_id=True, is_restricted=is_restricted)


async def enter(node: Node, member_id: str, group: str = "g", **fields: Any) -> HeartbeatAnswer:
    given: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": frozenset({"orders"}), "owned": {}}
    return await beat(node, member_id, 0, group, **(given | fields))


def found(node: Node, group: str = "g") -> ConsumerGroup:
    error, made = node.coordinator.find(group)
    assert error == E.NONE
    assert isinstance(made, ConsumerGroup)
    return made


def snapshot(group: ConsumerGroup) -> dict[str, object]:
    unwritten = {"hashed_version", "resolved_version", "informed_over"}
    return {name: value for name, value in vars(group).items() if name not in unwritten}


def kinds(node: Node, group: str = "g") -> list[tuple[int, bool]]:
    """Return the keys' versions in the group's partition, and whether there is a value."""
    return [(read_version(key), value is not None) for key, value in node.records(group)]


async def patterns_resolved(node: Node) -> None:
    """Wait until a thread has matched the group's patterns, and the group has the result."""
    await until(lambda: found(node).patterns and not node.coordinator._consumer._resolving)


async def test_the_records_of_a_first_member(node: Node) -> None:
    joined = await enter(node, "m1")
    assert (joined.error, joined.member_epoch) == (E.NONE, 2)
    (topic_id,) = joined.assignment or {}
    assert node.registry.name_of(topic_id) == "orders"
    assert kinds(node) == [(5, True), (3, True), (7, True), (6, True), (8, True)]
    assert [read_key(OFFSETS_TOPIC, key).group_id for key, _ in node.records("g")] == ["g"] * 5


async def test_a_heartbeat_that_changes_nothing_writes_nothing(node: Node) -> None:
    joined = await enter(node, "m1")
    before = len(node.records("g"))
    same = await beat(node, "m1", joined.member_epoch)
    assert (same.error, same.assignment) == (E.NONE, None)
    assert len(node.records("g")) == before


async def test_a_restart_in_the_middle_of_a_reconciliation(node: Node) -> None:
    first = await enter(node, "m1", instance_id="static")
    second = await enter(node, "m2", pattern="orders")
    orders = node.registry.get("orders")
    assert orders is not None
    everything = {orders.id: frozenset({0, 1, 2})}
    informed = await beat(node, "m1", first.member_epoch, instance_id="static", owned=everything)
    assert found(node).members["m1"].state.name == "UNREVOKED_PARTITIONS"
    await patterns_resolved(node)
    await node.settled("g")
    before = snapshot(found(node))
    await node.restart()
    assert snapshot(found(node)) == before
    kept = informed.assignment[orders.id]  # type: ignore[index]
    await beat(node, "m1", informed.member_epoch, instance_id="static", owned={orders.id: frozenset(kept)})
    got = await beat(node, "m2", second.member_epoch, owned={})
    assert set(got.assignment[orders.id]) == {0, 1, 2} - set(kept)  # type: ignore[index]


async def test_loaded_members_are_sent_their_assignment_once_more(node: Node) -> None:
    """The last answer may have been lost with its process, and their heartbeats do not show that."""
    joined = await enter(node, "m1")
    assert (await beat(node, "m1", joined.member_epoch)).assignment is None
    await node.restart()
    assert (await beat(node, "m1", joined.member_epoch)).assignment == joined.assignment
    assert (await beat(node, "m1", joined.member_epoch)).assignment is None


async def test_loaded_members_get_a_whole_session(tmp_path: Path, played: PlayedTime) -> None:
    consumer = ConsumerGroupSettings(session_timeout_ms=9_000, assignment_interval_ms=0)
    node = await Node(tmp_path, replace(SETTINGS, consumer=consumer)).open()
    await enter(node, "m1")
    await played.go_on(7)
    await node.restart()
    await played.go_on(4)
    assert list(found(node).members) == ["m1"]
    await played.go_on(6)
    assert found(node).members == {}
    await node.close()


async def test_a_groups_own_configs_count_from_the_next_heartbeat_on(tmp_path: Path, played: PlayedTime) -> None:
    consumer = ConsumerGroupSettings(session_timeout_ms=60_000, heartbeat_interval_ms=7_000)
    node = await Node(tmp_path, replace(SETTINGS, consumer=consumer)).open()
    mine = await enter(node, "m1")
    other = await enter(node, "m1", "other")
    assert mine.heartbeat_interval_ms == other.heartbeat_interval_ms == 7_000
    node.coordinator.configure("g", {"consumer.heartbeat.interval.ms": 50, "consumer.session.timeout.ms": 20_000})
    for _ in range(2):  # the long way, and the short one of heartbeats that say nothing new
        assert (await beat(node, "m1", mine.member_epoch)).heartbeat_interval_ms == 50
        assert (await beat(node, "m1", other.member_epoch, "other")).heartbeat_interval_ms == 7_000
    await played.go_on(30)
    assert (list(found(node).members), list(found(node, "other").members)) == ([], ["m1"])
    node.coordinator.configure("g", {})
    assert (await enter(node, "m1")).heartbeat_interval_ms == 7_000
    await node.close()


async def test_loaded_members_get_a_session_of_their_groups_own_length(tmp_path: Path, played: PlayedTime) -> None:
    node = await Node(tmp_path, replace(SETTINGS, consumer=CONSUMER)).open()
    await enter(node, "m1")
    await node.close()
    await node.open(wait=False)
    node.coordinator.configure("g", {"consumer.session.timeout.ms": 10_000})
    await node.loading
    await played.go_on(20)
    assert found(node).members == {}
    await node.close()


async def test_a_groups_own_assignment_interval(tmp_path: Path) -> None:
    node = await Node(tmp_path, replace(SETTINGS, consumer=ConsumerGroupSettings(assignment_interval_ms=60_000))).open()
    node.coordinator.configure("quick", {"consumer.assignment.interval.ms": 0})
    for group, states in (("slow", {"ASSIGNING"}), ("quick", {"RECONCILING"})):
        await enter(node, "m1", group)
        await enter(node, "m2", group)
        assert {found(node, group).state.name} == states
    await node.close()


async def test_a_deleted_group_leaves_nothing(node: Node) -> None:
    joined = await enter(node, "m1", pattern="orders")
    await patterns_resolved(node)
    await node.commit("g", ("orders", 0, 5), member_id="m1", generation_id=joined.member_epoch, knows_epochs=True)
    assert await node.coordinator.delete_group("g") == E.NON_EMPTY_GROUP
    await beat(node, "m1", -1)
    assert await node.coordinator.delete_group("g") == E.NONE
    await node.restart()
    assert node.coordinator.find("g") == (E.NONE, None)
    assert node.fetched("g") == {}


async def test_a_refused_write_changes_nothing(node: Node) -> None:
    joined = await enter(node, "m1")
    before = snapshot(found(node))
    refused = await beat(node, "m1", joined.member_epoch, topics=frozenset(f"{number:0200}" for number in range(6000)))
    assert refused.error == E.UNKNOWN_SERVER_ERROR
    assert snapshot(found(node)) == before
    assert (await beat(node, "m1", joined.member_epoch)).error == E.NONE


async def test_a_refused_first_join_makes_no_group(node: Node) -> None:
    await node.make_offsets_topic()
    refused = await enter(node, "m1", topics=frozenset(f"{number:0200}" for number in range(6000)))
    assert refused.error == E.UNKNOWN_SERVER_ERROR
    assert node.coordinator.groups == {}
    assert (await enter(node, "m1", pattern="(")).error == E.INVALID_REGULAR_EXPRESSION
    assert node.coordinator.groups == {}


async def test_what_was_not_synced_is_not_gone_on_with(node: Node) -> None:
    disk = node.files = DiskThatBreaks()
    await node.restart()
    joined = await enter(node, "m1")
    disk.sync_fault = StorageFailure("broken")
    assert (await enter(node, "m2")).error == E.NOT_COORDINATOR
    disk.sync_fault = None
    assert (await beat(node, "m1", joined.member_epoch)).error == E.NOT_COORDINATOR
    assert node.coordinator.groups == {}
    await node.restart()
    assert (await beat(node, "m1", joined.member_epoch)).error == E.NONE


async def test_a_new_topic_is_assigned_and_a_deleted_one_taken_away(node: Node) -> None:
    joined = await enter(node, "m1", topics=frozenset({"orders", "later"}))
    later = await node.registry.create("later", 2, {})
    grown = await beat(node, "m1", joined.member_epoch)
    assert grown.member_epoch == joined.member_epoch + 1
    assert set(grown.assignment[later.id]) == {0, 1}  # type: ignore[index]
    await node.registry.delete([later])
    shrunk = await beat(node, "m1", grown.member_epoch, owned={})
    assert shrunk.assignment is not None
    assert later.id not in shrunk.assignment


async def test_members_of_an_upgraded_group_keep_what_they_have_and_their_sessions_end(
    node: Node, played: PlayedTime
) -> None:
    joined = await node.join("g")
    rows = (TopicPartitions(topic="orders", partitions=(0, 1, 2)),)
    everything = encode_assignment(Assignment(assigned_partitions=rows))
    await node.sync("g", joined.member_id, joined.generation_id, {joined.member_id: everything})
    entered = await enter(node, "m2")
    assert (entered.error, entered.member_epoch, entered.assignment) == (E.NONE, joined.generation_id + 1, {})
    orders = node.registry.get("orders")
    assert orders is not None
    assert set(found(node).members[joined.member_id].assigned[orders.id]) == {0, 1, 2}
    assert await node.heartbeat("g", joined.member_id, joined.generation_id) == E.REBALANCE_IN_PROGRESS
    await played.go_on(14)
    assert list(found(node).members) == ["m2"]
    assert set((await beat(node, "m2", entered.member_epoch)).assignment[orders.id]) == {0, 1, 2}  # type: ignore[index]


async def test_a_migration_there_and_back_survives_restarts(node: Node) -> None:
    member_id, generation_id = await node.member("g")  # its assignment cannot be read: no migration
    assert (await enter(node, "m2")).error == E.GROUP_ID_NOT_FOUND
    await node.coordinator.leave("g", Leave(request=0, members=[Leaver(member_id)]))
    assert (await enter(node, "m2")).error == E.NONE
    inside = await node.join("g", "classic")
    assert inside.error == E.NONE
    await node.restart()
    assert set(found(node).members) == {"m2", "classic"}
    await beat(node, "m2", -1)
    classic = node.coordinator.find("g")[1]
    assert not isinstance(classic, ConsumerGroup)
    await node.settled("g")
    await node.restart()
    again = node.coordinator.find("g")[1]
    assert again is not None
    assert not isinstance(again, ConsumerGroup)
    assert list(again.members.ids()) == ["classic"]
    assert again.generation_id > generation_id


async def test_a_restricted_members_pattern_matches_the_names_that_the_caller_allows(node: Node) -> None:
    version = node.registry.version
    joined = await enter(node, "m1", pattern=".*", is_restricted=True)
    assert joined.resolve_version == version
    assert not node.coordinator._consumer._resolving
    await node.registry.create("payments", 1, {})
    node.coordinator.resolve_patterns("g", ["payments", "gone"], node.registry.version)
    await patterns_resolved(node)
    assert {pattern: each.topics for pattern, each in found(node).patterns.items()} == {".*": {"payments"}}
    node.coordinator.resolve_patterns("no group", [], 1)
    await node.registry.create("orders-late", 1, {})
    again = await beat(node, "m1", joined.member_epoch, is_restricted=True)
    assert again.resolve_version == node.registry.version
    assert not node.coordinator._consumer._resolving
