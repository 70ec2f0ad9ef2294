"""The consumer group machine, step by step: who is let in, who is told what, and what becomes of members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from protocol_lib import consumer_protocol
from protocol_lib.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.admission import heartbeat_fault
from storage_svc.coordinator.consumer_events import (
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    HeartbeatAnswer,
    MigrationPolicy,
)
from storage_svc.coordinator.consumer_events import ConsumerTimer as Timer
from storage_svc.coordinator.consumer_events import ConsumerTimerKind as Kind
from storage_svc.coordinator.consumer_group import ConsumerGroupState
from storage_svc.coordinator.consumer_member import MemberState
from storage_svc.coordinator.consumer_offsets import commit_fault, fetch_fault
from storage_svc.coordinator.group_events import (
    ErrorAnswer,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaver,
    Sync,
    SyncAnswer,
)

from tests.unit.storage_svc.coordinator.consumer_world import World

E = ErrorCode
ORDERS = frozenset({"orders"})


@pytest.fixture
def world() -> World:
    made = World()
    made.orders = made.topics.create("orders", 4)  # type: ignore[attr-defined]
    return made


def orders(world: World) -> bytes:
    return world.topics.by_name["orders"].id


def enter(world: World, member_id: str, **fields: Any) -> HeartbeatAnswer:
    given: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ORDERS, "owned": {}}
    return world.beat(ConsumerHeartbeat(member_id=member_id, member_epoch=0, **(given | fields)))


def beat(world: World, member_id: str, epoch: int, *owned: int, **fields: Any) -> HeartbeatAnswer:
    """`owned` are partitions of orders; none are told to be owned with `owned={}`."""
    if owned:
        fields["owned"] = {orders(world): frozenset(owned)}
    return world.beat(ConsumerHeartbeat(member_id=member_id, member_epoch=epoch, **fields))


def given(world: World, answer: HeartbeatAnswer) -> set[int]:
    assert answer.assignment is not None
    return set(answer.assignment.get(orders(world), ()))


def pair(world: World) -> tuple[int, int]:
    """m1 and m2 with two partitions each; their epochs."""
    enter(world, "m1")
    enter(world, "m2")
    told = beat(world, "m1", 2, 0, 1, 2, 3)
    beat(world, "m1", 2, *given(world, told))
    beat(world, "m2", 3, owned={})
    assert world.group.state is ConsumerGroupState.STABLE
    return 3, 3


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
    told = beat(world, "m1", 2, 0, 1, 2, 3)
    kept = given(world, told)
    assert (told.member_epoch, len(kept)) == (2, 2)
    assert world.timers[Timer(Kind.REBALANCE, "m1")] == world.now_ms + 60_000
    assert beat(world, "m2", 3).assignment is None
    assert beat(world, "m1", 2, *kept).member_epoch == 3
    assert Timer(Kind.REBALANCE, "m1") not in world.timers
    assert given(world, beat(world, "m2", 3)) == {0, 1, 2, 3} - kept
    assert world.group.state is ConsumerGroupState.STABLE


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("asked", [1, 2])
def test_a_member_that_missed_what_it_was_told_hears_it_over_its_next_connection(
    world: World, asked: int, loaded: bool
) -> None:
    """Its epoch stays as it is while partitions are taken from it: its heartbeats show nothing of what it missed."""
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


def test_an_answer_that_the_log_refused_told_nobody_anything(world: World) -> None:
    enter(world, "m1", connection_id=1)
    enter(world, "m2", connection_id=2)
    world.log_refuses = True
    assert world.tell(ConsumerHeartbeat(member_id="m1", member_epoch=2, connection_id=3)) is None
    world.log_refuses = False
    kept = given(world, beat(world, "m1", 2, connection_id=1))
    assert beat(world, "m1", 2, connection_id=1).assignment is None
    assert given(world, beat(world, "m1", 2, connection_id=3)) == kept


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


def test_a_heartbeat_that_says_nothing_new_only_starts_the_session_again(world: World) -> None:
    epoch = enter(world, "m1").member_epoch
    world.pass_time(30_000)
    written = world.written
    assert beat(world, "m1", epoch) == HeartbeatAnswer(
        member_id="m1", member_epoch=epoch, heartbeat_interval_ms=world.settings.heartbeat_interval_ms
    )
    assert (world.timers, world.written) == ({Timer(Kind.SESSION, "m1"): world.now_ms + 45_000}, written)
    world.topics.create("orders", 6)  # in the place of the one it reads
    told = beat(world, "m1", epoch)
    assert (world.group.epoch, given(world, told)) == (epoch + 1, set())  # it gives up what is deleted


def test_the_assignment_waits_for_its_interval() -> None:
    world = World(ConsumerGroupSettings(assignment_interval_ms=1_000))
    world.topics.create("orders", 4)
    enter(world, "m1")
    world.pass_time(999)
    assert enter(world, "m2").member_epoch == 2
    assert world.group.state is ConsumerGroupState.ASSIGNING
    world.pass_time(1)
    assert beat(world, "m2", 2).member_epoch == 3


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


# --- members of the classic protocol ----------------------------------------------------------------------------------


def join(world: World, member_id: str, *owned: int, name: str = "range", **fields: Any) -> JoinAnswer:
    rows = (TopicPartitions(topic="orders", partitions=owned),) if owned else ()
    metadata = encode_subscription(Subscription(topics=("orders",), owned_partitions=rows))
    given_: dict[str, Any] = {
        "request": 1,
        "member_id": member_id,
        "new_member_id": "new",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": ((name, metadata),),
    }
    answer = world.tell(Join(**(given_ | fields)))
    assert isinstance(answer, JoinAnswer)
    return answer


def classic_beat(world: World, member_id: str, epoch: int, instance_id: str | None = None) -> ErrorCode:
    answer = world.tell(Heartbeat(request=1, member_id=member_id, generation_id=epoch, instance_id=instance_id))
    assert isinstance(answer, ErrorAnswer)
    return answer.error


def sync(world: World, member_id: str, epoch: int, **fields: Any) -> SyncAnswer:
    answer = world.tell(Sync(request=1, member_id=member_id, generation_id=epoch, **fields))
    assert isinstance(answer, SyncAnswer)
    return answer


def synced(answer: SyncAnswer) -> set[int]:
    assert answer.error == E.NONE
    assignment = consumer_protocol.decode_assignment(answer.assignment)
    return {each for row in assignment.assigned_partitions for each in row.partitions}


def test_a_classic_member_rebalances_with_one_of_the_new_protocol(world: World) -> None:
    enter(world, "m1")
    assert join(world, "", require_known_member_id=True).error == E.MEMBER_ID_REQUIRED
    joined = join(world, "c1")
    assert (joined.error, joined.generation_id, joined.protocol_name, joined.leader) == (E.NONE, 3, "range", "")
    assert synced(sync(world, "c1", 3)) == set()
    assert classic_beat(world, "c1", 3) == E.NONE
    kept = given(world, beat(world, "m1", 2, 0, 1, 2, 3))
    beat(world, "m1", 2, *kept)
    assert classic_beat(world, "c1", 3) == E.REBALANCE_IN_PROGRESS
    again = join(world, "c1")
    assert synced(sync(world, "c1", again.generation_id)) == {0, 1, 2, 3} - kept
    assert classic_beat(world, "c1", again.generation_id) == E.NONE
    assert world.group.state is ConsumerGroupState.STABLE


def test_a_classic_member_that_does_not_join_again_is_out(world: World) -> None:
    enter(world, "m1")
    joined = join(world, "c1")
    sync(world, "c1", joined.generation_id)
    enter(world, "m2")
    assert classic_beat(world, "c1", joined.generation_id) == E.REBALANCE_IN_PROGRESS
    deadline_ms = world.timers[Timer(Kind.JOIN, "c1")]
    world.pass_time(5_000)
    assert classic_beat(world, "c1", joined.generation_id) == E.REBALANCE_IN_PROGRESS
    assert sync(world, "c1", joined.generation_id).error == E.REBALANCE_IN_PROGRESS
    assert world.timers[Timer(Kind.JOIN, "c1")] == deadline_ms
    for _ in range(2):
        world.pass_time(8_000)
        if "c1" in world.group.members:
            classic_beat(world, "c1", joined.generation_id)
    assert "c1" not in world.group.members


def test_a_classic_member_that_does_not_sync_is_out(world: World) -> None:
    enter(world, "m1")
    joined = join(world, "c1", session_timeout_ms=30_000)
    classic_beat(world, "c1", joined.generation_id)
    world.pass_time(20_001)
    assert "c1" not in world.group.members


def test_what_classic_members_are_refused(world: World) -> None:
    enter(world, "m1", instance_id="one")
    joined = join(world, "c1", instance_id=None)
    epoch = joined.generation_id
    assert classic_beat(world, "c1", epoch + 1) == E.ILLEGAL_GENERATION
    assert classic_beat(world, "m1", 2) == E.UNKNOWN_MEMBER_ID
    assert classic_beat(world, "nobody", 2) == E.UNKNOWN_MEMBER_ID
    assert classic_beat(world, "c1", epoch, "one") == E.FENCED_INSTANCE_ID
    assert sync(world, "c1", epoch + 1).error == E.ILLEGAL_GENERATION
    assert sync(world, "c1", epoch, protocol_type="connect").error == E.INCONSISTENT_GROUP_PROTOCOL
    assert sync(world, "c1", epoch, protocol_name="sticky").error == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(world, "c2", name="sticky").error == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(world, "c2", protocol_type="connect").error == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(world, "c2", protocols=(("range", b""),)).error == E.UNKNOWN_SERVER_ERROR
    assert join(world, "c2", instance_id="two").error == E.UNKNOWN_MEMBER_ID
    assert join(world, "c2", instance_id="one").error == E.FENCED_INSTANCE_ID


def test_members_are_removed_by_name_and_id(world: World) -> None:
    enter(world, "m1", instance_id="one")
    enter(world, "m2")
    leavers = [Leaver("", "one"), Leaver("m2"), Leaver("", "two"), Leaver("m9", "one"), Leaver("m9")]
    answer = world.tell(Leave(request=1, members=leavers))
    assert isinstance(answer, LeaveAnswer)
    assert answer.members == (
        E.NONE,
        E.NONE,
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_INSTANCE_ID,
        E.UNKNOWN_MEMBER_ID,
    )
    assert world.group.state is ConsumerGroupState.EMPTY


# --- migration --------------------------------------------------------------------------------------------------------


def test_the_last_of_the_new_protocol_leaves_a_classic_group(world: World) -> None:
    enter(world, "m1")
    join(world, "c1")
    epoch = world.group.epoch
    beat(world, "m1", -1)
    assert world.downgraded is not None
    classic = world.downgraded.group
    assert (classic.generation_id, classic.members.ids(), world.downgraded.rebalance) == (epoch, ["c1"], True)
    assert classic.protocol_name == "range"
    assert not world.log


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE, MigrationPolicy.DISABLED])
def test_a_group_that_may_not_go_back_stays(world: World, policy: MigrationPolicy) -> None:
    world.settings = replace(world.settings, migration_policy=policy)
    enter(world, "m1")
    join(world, "c1")
    beat(world, "m1", -1)
    assert world.downgraded is None
    assert list(world.group.members) == ["c1"]


def test_a_static_member_goes_back_to_the_classic_protocol(world: World) -> None:
    first = enter(world, "s1", instance_id="one")
    joined = join(world, "", instance_id="one")
    assert (joined.member_id, joined.generation_id) == ("new", first.member_epoch)
    assert world.downgraded is not None
    assert not world.downgraded.rebalance
    (member,) = world.downgraded.group.members
    assert (member.member_id, member.instance_id) == ("new", "one")
    assert synced(SyncAnswer(assignment=member.assignment)) == {0, 1, 2, 3}
