"""Members of the classic protocol in a consumer group, and groups that go back to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from protocol_lib import consumer_protocol
from protocol_lib.consumer_protocol import Subscription, TopicPartitions, encode_subscription
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.classic.events import (
    GroupState,
    Join,
    JoinAnswer,
    SyncAnswer,
)
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.consumer.settings import MigrationPolicy

from tests.unit.storage_svc.coordinator.consumer_world import World, beat, enter

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


def synced(answer: SyncAnswer) -> set[int]:
    assert answer.error == E.NONE
    assignment = consumer_protocol.decode_assignment(answer.assignment)
    return {each for row in assignment.assigned_partitions for each in row.partitions}


def test_the_last_of_the_new_protocol_leaves_a_classic_group(world: World) -> None:
    enter(world, "m1")
    join(world, "c1")
    epoch = world.group.epoch
    beat(world, "m1", -1)
    classic = world.group
    assert isinstance(classic, Group)
    assert (classic.generation_id, classic.members.ids(), classic.protocol_name) == (epoch, ["c1"], "range")
    assert classic.state is GroupState.PREPARING_REBALANCE
    assert not world.log


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE, MigrationPolicy.DISABLED])
def test_a_group_that_may_not_go_back_stays(world: World, policy: MigrationPolicy) -> None:
    world.settings = replace(world.settings, migration_policy=policy)
    enter(world, "m1")
    join(world, "c1")
    beat(world, "m1", -1)
    assert isinstance(world.group, ConsumerGroup)
    assert list(world.group.members) == ["c1"]


def test_a_static_member_goes_back_to_the_classic_protocol(world: World) -> None:
    first = enter(world, "s1", instance_id="one")
    joined = join(world, "", instance_id="one")
    assert (joined.member_id, joined.generation_id) == ("new", first.member_epoch)
    assert isinstance(world.group, Group)
    assert world.group.state is GroupState.STABLE
    (member,) = world.group.members
    assert (member.member_id, member.instance_id) == ("new", "one")
    assert synced(SyncAnswer(assignment=member.assignment)) == {0, 1, 2, 3}
