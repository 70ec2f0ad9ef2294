"""A consumer group that the test plays, and the heartbeats of its members."""

from __future__ import annotations

from typing import Any

from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings

from tests.groups.played_group import PlayedGroup

ORDERS = frozenset({"orders"})


class World(PlayedGroup):
    """A consumer group, until classic members are all that is left in it."""

    group: ConsumerGroup

    def __init__(self, settings: ConsumerGroupSettings | None = None) -> None:
        super().__init__(ConsumerGroup("g"), settings=settings)


def orders(world: World) -> bytes:
    return world.topics.by_name["orders"].id


def enter(world: World, member_id: str, **fields: Any) -> HeartbeatAnswer:
    given: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ORDERS, "owned": {}}
    return beaten(world, ConsumerHeartbeat(member_id=member_id, member_epoch=0, **(given | fields)))


def beat(world: World, member_id: str, epoch: int, *owned: int, **fields: Any) -> HeartbeatAnswer:
    """Send a heartbeat; `owned` are partitions of orders. `owned={}` reports that there are none."""
    if owned:
        fields["owned"] = {orders(world): frozenset(owned)}
    return beaten(world, ConsumerHeartbeat(member_id=member_id, member_epoch=epoch, **fields))


def beaten(world: World, heartbeat: ConsumerHeartbeat) -> HeartbeatAnswer:
    answer = world.send(heartbeat)
    assert isinstance(answer, HeartbeatAnswer)
    return answer


def given(world: World, answer: HeartbeatAnswer) -> set[int]:
    assert answer.assignment is not None
    return set(answer.assignment.get(orders(world), ()))
