"""Members of the classic protocol in a consumer group, and groups that go back to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from protocol_lib import consumer_protocol
from protocol_lib.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.classic.events import (
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
from storage_svc.coordinator.consumer.group import ConsumerGroupState
from storage_svc.coordinator.consumer.settings import MigrationPolicy
from storage_svc.coordinator.machine.events import Timer
from storage_svc.coordinator.machine.events import TimerKind as Kind

from tests.unit.storage_svc.coordinator.consumer_world import World, beat, enter, given

E = ErrorCode


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
    answer = world.send(Join(**(given_ | fields)))
    assert isinstance(answer, JoinAnswer)
    return answer


def classic_beat(world: World, member_id: str, epoch: int, instance_id: str | None = None) -> ErrorCode:
    answer = world.send(Heartbeat(request=1, member_id=member_id, generation_id=epoch, instance_id=instance_id))
    assert isinstance(answer, ErrorAnswer)
    return answer.error


def sync(world: World, member_id: str, epoch: int, **fields: Any) -> SyncAnswer:
    answer = world.send(Sync(request=1, member_id=member_id, generation_id=epoch, **fields))
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
    answer = world.send(Leave(request=1, members=leavers))
    assert isinstance(answer, LeaveAnswer)
    assert answer.members == (
        E.NONE,
        E.NONE,
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_INSTANCE_ID,
        E.UNKNOWN_MEMBER_ID,
    )
    assert world.group.state is ConsumerGroupState.EMPTY


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
