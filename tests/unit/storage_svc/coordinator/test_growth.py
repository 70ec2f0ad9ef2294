"""The work for a group grows with the number of its members, not with its square.

Processor time of a group and of one four times as large: a ratio of 4 is linear, 16 is quadratic.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest
from storage_svc.coordinator.classic.events import Heartbeat, Join, Sync
from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.classic.machine import handle
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings

from tests.unit.storage_svc.coordinator.consumer_world import World, enter

TIMES = 4
NOW_MS = 1_700_000_000_000


def ratio(cost: Callable[[int], float], small: int) -> float:
    """Return how much more the larger group costs: the least of three measurements of each, taken in turn."""
    gc.collect()
    gc.disable()
    try:
        costs = [(cost(small), cost(TIMES * small)) for _ in range(3)]
    finally:
        gc.enable()
    return min(large for _, large in costs) / min(few for few, _ in costs)


def join_and_join_again(members: int) -> float:
    group = Group("g", GroupLimits(initial_rebalance_delay_ms=0, size_max=members), NOW_MS)
    requests = iter(range(10 * members))
    begun = time.thread_time()

    def join(number: int, metadata: bytes) -> None:
        handle(
            group,
            Join(
                request=next(requests),
                member_id=f"m{number}" if f"m{number}" in group.members else "",
                new_member_id=f"m{number}",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(("range", metadata), ("roundrobin", metadata)),
            ),
            NOW_MS,
        )

    for metadata in (b"one", b"two"):
        for number in range(members):
            join(number, metadata)
        join(0, metadata)  # the first joined alone
        for number in range(members):
            handle(
                group, Sync(request=next(requests), member_id=f"m{number}", generation_id=group.generation_id), NOW_MS
            )
            handle(
                group,
                Heartbeat(request=next(requests), member_id=f"m{number}", generation_id=group.generation_id),
                NOW_MS,
            )
    assert len(group.members) == members
    return time.thread_time() - begun


def test_classic_members_join_and_join_again_in_linear_time() -> None:
    assert ratio(join_and_join_again, 1000) < 2 * TIMES


def world_of(members: int) -> World:
    """Return a settled group without partitions to move: each member has its own."""
    world = World(ConsumerGroupSettings(assignment_interval_ms=0))
    world.topics.create("orders", members)
    for number in range(members):
        enter(world, f"m{number}")
    return world


@pytest.mark.parametrize(("event", "most"), [("heartbeat", 2.0), ("join", 2.0 * TIMES)])
def test_a_consumer_groups_member_costs_no_more_than_the_members_there_are(event: str, most: float) -> None:
    worlds = {size: world_of(size) for size in (100, 100 * TIMES)}

    def cost(members: int) -> float:
        world = worlds[members]
        epoch = world.group.members["m0"].epoch
        begun = time.thread_time()
        for number in range(20):
            if event == "heartbeat":
                world.send(ConsumerHeartbeat(member_id="m0", member_epoch=epoch))
            else:
                enter(world, f"late {number}")
                world.send(ConsumerHeartbeat(member_id=f"late {number}", member_epoch=-1))
        return time.thread_time() - begun

    assert ratio(cost, 100) < most
