"""The consumer group machine, step by step: members that are let in, their answers, and their ends."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroupState
from storage_svc.coordinator.consumer.member import MemberState
from storage_svc.coordinator.consumer.offset_rules import commit_fault, fetch_fault
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings
from storage_svc.coordinator.limits import heartbeat_fault
from storage_svc.coordinator.machine.events import Timer
from storage_svc.coordinator.machine.events import TimerKind as Kind

from tests.unit.storage_svc.coordinator.consumer_world import ORDERS, World, beat, enter, given, orders, pair

E = ErrorCode


# --- joining and reconciliation ---------------------------------------------------------------------------------------


def test_a_first_member_has_everything_at_once(world: World) -> None:
    answer = enter(world, "m1")
    assert (answer.error, answer.member_epoch, answer.heartbeat_interval_ms) == (E.NONE, 2, 5_000)
    assert given(world, answer) == {0, 1, 2, 3}
    assert world.timers == {Timer(Kind.SESSION, "m1"): world.now_ms + 45_000}


def test_the_second_waits_until_the_first_has_given_up(world: World) -> None:
    enter(world, "m1")
    second = enter(world, "m2")
    assert (second.member_epoch, given(world, second)) == (3, set())
    assert world.group.members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    informed = beat(world, "m1", 2, 0, 1, 2, 3)
    kept = given(world, informed)
    assert (informed.member_epoch, len(kept)) == (2, 2)
    assert world.timers[Timer(Kind.REBALANCE, "m1")] == world.now_ms + 60_000
    assert beat(world, "m2", 3).assignment is None
    assert beat(world, "m1", 2, *kept).member_epoch == 3
    assert Timer(Kind.REBALANCE, "m1") not in world.timers
    assert given(world, beat(world, "m2", 3)) == {0, 1, 2, 3} - kept
    assert world.group.state is ConsumerGroupState.STABLE


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("asked", [1, 2])
def test_a_member_that_missed_an_answer_gets_its_assignment_over_its_next_connection(
    world: World, asked: int, loaded: bool
) -> None:
    """The member keeps its epoch while it loses partitions: its heartbeats show nothing of the answer it missed."""
    enter(world, "m1", connection_id=1)
    enter(world, "m2", connection_id=2)
    kept = given(world, beat(world, "m1", 2, connection_id=1))  # the answer is lost
    if loaded:
        world.group = world.restored()
    for connection_id in range(3, 3 + asked):  # a client that gave up waiting closes its connection; none gets through
        assert given(world, beat(world, "m1", 2, connection_id=connection_id)) == kept
    assert beat(world, "m1", 2, connection_id=2 + asked).assignment is None
    assert beat(world, "m1", 2, *kept, connection_id=2 + asked).member_epoch == 3

    got = {0, 1, 2, 3} - kept
    assert given(world, beat(world, "m2", 3, connection_id=2)) == got  # lost, too
    if loaded:
        world.group = world.restored()
    for connection_id in range(13, 13 + asked):
        assert given(world, beat(world, "m2", 3, connection_id=connection_id)) == got
    assert beat(world, "m2", 3, connection_id=12 + asked).assignment is None
    assert world.group.state is ConsumerGroupState.STABLE


def test_an_answer_that_the_log_refused_informs_no_member(world: World) -> None:
    enter(world, "m1", connection_id=1)
    enter(world, "m2", connection_id=2)
    world.log_refuses = True
    assert world.send(ConsumerHeartbeat(member_id="m1", member_epoch=2, connection_id=3)) is None
    world.log_refuses = False
    kept = given(world, beat(world, "m1", 2, connection_id=1))
    assert beat(world, "m1", 2, connection_id=1).assignment is None
    assert given(world, beat(world, "m1", 2, connection_id=3)) == kept


def test_a_write_that_the_log_refuses_changes_nothing_in_memory(world: World) -> None:
    epoch = enter(world, "m1", connection_id=1).member_epoch
    enter(world, "m2", connection_id=2)
    world.topics.create("users", 1)  # the group has to look at the topics again, and finds its own as they were
    group, before = world.group, copy.deepcopy(vars(world.group))
    world.log_refuses = True
    heartbeats = [
        ConsumerHeartbeat(member_id="m1", member_epoch=epoch, connection_id=3, topics=frozenset({"orders", "users"})),
        ConsumerHeartbeat(member_id="m1", member_epoch=epoch, connection_id=3),  # it has to give partitions up
        ConsumerHeartbeat(member_id="m3", member_epoch=0, topics=ORDERS, rebalance_timeout_ms=1, owned={}),
        ConsumerHeartbeat(member_id="m1", member_epoch=-1),
    ]
    for heartbeat in heartbeats:
        assert world.send(heartbeat) is None
    assert world.group is group
    assert vars(group) == before
    world.log_refuses = False
    assert world.send(heartbeats[1]) is not None
    assert (world.group.hashed_version, world.group.informed_over) == (world.topics.version, {"m1": 3, "m2": 2})


def test_a_member_that_does_not_give_up_in_time_is_out(world: World) -> None:
    enter(world, "m1", rebalance_timeout_ms=10_000)
    enter(world, "m2")
    beat(world, "m1", 2, 0, 1, 2, 3)
    world.pass_time(10_001)
    assert list(world.group.members) == ["m2"]
    assert beat(world, "m1", 2).error == E.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out(world: World) -> None:
    first, second = pair(world)
    world.pass_time(30_000)
    beat(world, "m2", second)
    world.pass_time(20_000)
    assert list(world.group.members) == ["m2"]
    assert given(world, beat(world, "m2", second, owned={})) == {0, 1, 2, 3}
    assert beat(world, "m1", first).error == E.UNKNOWN_MEMBER_ID


def test_a_heartbeat_without_news_only_starts_the_session_again(world: World) -> None:
    epoch = enter(world, "m1").member_epoch
    world.pass_time(30_000)
    written = world.written
    assert beat(world, "m1", epoch) == HeartbeatAnswer(
        member_id="m1", member_epoch=epoch, heartbeat_interval_ms=world.settings.heartbeat_interval_ms
    )
    assert (world.timers, world.written) == ({Timer(Kind.SESSION, "m1"): world.now_ms + 45_000}, written)
    world.topics.create("orders", 6)  # in the place of the one it reads
    informed = beat(world, "m1", epoch)
    assert (world.group.epoch, given(world, informed)) == (epoch + 1, set())  # it gives up deleted partitions


def test_the_assignment_waits_for_its_interval() -> None:
    world = World(ConsumerGroupSettings(assignment_interval_ms=1_000))
    world.topics.create("orders", 4)
    enter(world, "m1")
    world.pass_time(999)
    assert enter(world, "m2").member_epoch == 2
    assert world.group.state is ConsumerGroupState.ASSIGNING
    world.pass_time(1)
    assert beat(world, "m2", 2).member_epoch == 3


def test_a_clock_that_is_set_back_delays_no_assignment() -> None:
    world = World(ConsumerGroupSettings(assignment_interval_ms=1_000))
    world.topics.create("orders", 4)
    enter(world, "m1")
    world.now_ms -= 3_600_000
    assert enter(world, "m2").member_epoch == 3
    assert enter(world, "m3").member_epoch == 3  # the interval counts from there
    world.pass_time(1_000)
    assert beat(world, "m3", 3).member_epoch == 4


def test_a_pattern_is_resolved_after_the_join_and_when_topics_come_and_go(world: World) -> None:
    joined = enter(world, "m1", topics=None, pattern="ord.*|us.*")
    assert given(world, joined) == set()
    resolved = beat(world, "m1", joined.member_epoch)
    assert given(world, resolved) == {0, 1, 2, 3}
    users = world.topics.create("users", 1)
    beat(world, "m1", resolved.member_epoch)
    grown = beat(world, "m1", resolved.member_epoch)
    assert set(grown.assignment or {}) == {orders(world), users}
    world.topics.delete("users")
    beat(world, "m1", grown.member_epoch, owned={})
    assert world.group.patterns["ord.*|us.*"].topics == ORDERS
    assert beat(world, "m1", -1).error == E.NONE
    assert world.group.patterns == {}


# --- epochs and static members ----------------------------------------------------------------------------------------


def test_epochs_that_are_fenced_and_one_that_is_not(world: World) -> None:
    enter(world, "m1", topics=ORDERS)
    changed = beat(world, "m1", 2, topics=ORDERS | {"users"}, owned={})
    assert changed.member_epoch == 3
    assert beat(world, "m1", 4).error == E.FENCED_MEMBER_EPOCH
    assert beat(world, "m1", 1, 0).error == E.FENCED_MEMBER_EPOCH
    assert beat(world, "m1", 2).error == E.FENCED_MEMBER_EPOCH
    assert beat(world, "m1", 2, 0, 7).error == E.FENCED_MEMBER_EPOCH
    assert beat(world, "m1", 2, 0, 1).member_epoch == 3


def test_a_static_member_comes_back_to_what_it_had(world: World) -> None:
    enter(world, "s1", instance_id="one")
    assert enter(world, "s2", instance_id="one").error == E.UNRELEASED_INSTANCE_ID
    away = beat(world, "s1", -2, instance_id="one")
    assert (away.error, away.member_epoch) == (E.NONE, -2)
    epoch = world.group.epoch
    back = enter(world, "s2", instance_id="one")
    assert (back.member_epoch, given(world, back)) == (epoch, {0, 1, 2, 3})
    assert world.group.epoch == epoch
    assert beat(world, "s1", 2, instance_id="one").error == E.FENCED_INSTANCE_ID
    assert beat(world, "s2", 2, instance_id="two").error == E.UNKNOWN_MEMBER_ID
    assert Timer(Kind.SESSION, "s1") not in world.timers


def test_a_static_member_that_stays_away_is_out(world: World) -> None:
    enter(world, "s1", instance_id="one")
    beat(world, "s1", -2, instance_id="one")
    world.pass_time(45_001)
    assert world.group.state is ConsumerGroupState.EMPTY
    assert enter(world, "s2", instance_id="one").error == E.NONE


def test_a_full_group(world: World) -> None:
    world.settings = replace(world.settings, size_max=1)
    enter(world, "m1")
    assert enter(world, "m2").error == E.GROUP_MAX_SIZE_REACHED
    assert enter(world, "m1").error == E.NONE


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, None),
        ({"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        ({"owned": None}, E.INVALID_REQUEST),
        ({"owned": {b"1" * 16: frozenset({1})}}, E.INVALID_REQUEST),
        ({"topics": None}, E.INVALID_REQUEST),
        ({"topics": None, "pattern": ""}, None),
        ({"instance_id": ""}, E.INVALID_REQUEST),
        ({"rack_id": ""}, E.INVALID_REQUEST),
        ({"member_id": ""}, E.INVALID_REQUEST),
        ({"member_id": "m" * 40_000}, E.INVALID_REQUEST),
        ({"member_epoch": -2}, E.INVALID_REQUEST),
        ({"member_epoch": -2, "instance_id": "one"}, None),
        ({"member_epoch": -3}, E.INVALID_REQUEST),
        ({"assignor": "sticky"}, E.UNSUPPORTED_ASSIGNOR),
        ({"assignor": "range"}, None),
    ],
)
def test_heartbeats_that_are_refused_whatever_the_group(fields: dict[str, Any], error: ErrorCode | None) -> None:
    given_ = {"member_id": "m1", "member_epoch": 0, "rebalance_timeout_ms": 1, "topics": ORDERS, "owned": {}}
    fault = heartbeat_fault(ConsumerHeartbeat(**(given_ | fields)), ConsumerGroupSettings(), needs_member_id=True)
    assert (None if fault is None else fault.error) == error


# --- offsets ----------------------------------------------------------------------------------------------------------


def test_commits_and_fetches_by_epoch(world: World) -> None:
    pair(world)
    mine = sorted(world.group.members["m2"].assigned[orders(world)])
    beat(world, "m1", -1)
    beat(world, "m2", 3, *mine)
    assert world.group.members["m2"].epoch == 4

    def commit(member_id: str, epoch: int, *partitions: int, knows_epochs: bool = True) -> ErrorCode:
        wanted = [("orders", each) for each in partitions]
        return commit_fault(world.group, member_id, epoch, wanted, world.topics, knows_epochs=knows_epochs)

    other = next(each for each in range(4) if each not in mine)
    assert commit("m2", 4, *mine) == E.NONE
    assert commit("m2", 3, *mine) == E.NONE
    assert commit("m2", 3, *mine, other) == E.STALE_MEMBER_EPOCH
    assert commit("m2", 2, *mine) == E.STALE_MEMBER_EPOCH
    assert commit("m2", 5, *mine) == E.STALE_MEMBER_EPOCH
    assert commit("m2", 4, *mine, knows_epochs=False) == E.UNSUPPORTED_VERSION
    assert commit("m1", 4, *mine) == E.UNKNOWN_MEMBER_ID
    assert commit("", -1, *mine) == E.UNKNOWN_MEMBER_ID
    assert [fetch_fault(world.group, *each) for each in [(None, -1), ("m2", 4), ("m2", 3), ("m1", 4)]] == [
        E.NONE,
        E.NONE,
        E.STALE_MEMBER_EPOCH,
        E.UNKNOWN_MEMBER_ID,
    ]
    beat(world, "m2", -1)
    assert commit("", -1, 0) == E.NONE
