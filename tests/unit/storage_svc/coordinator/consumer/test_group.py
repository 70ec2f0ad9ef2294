"""The consumer group machine, step by step: members that are let in, their answers, and their ends."""

from __future__ import annotations

import copy

import pytest
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroupState
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings
from storage_svc.coordinator.machine.events import Timer
from storage_svc.coordinator.machine.events import TimerKind as Kind

from tests.unit.storage_svc.coordinator.consumer_world import ORDERS, World, beat, enter, given, orders

E = ErrorCode


# --- joining and reconciliation ---------------------------------------------------------------------------------------


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


# --- offsets ----------------------------------------------------------------------------------------------------------
