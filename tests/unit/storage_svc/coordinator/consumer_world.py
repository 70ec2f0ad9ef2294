"""A consumer group machine with a clock, a log and topics played by the test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.consumer.events import (
    ConsumerAnswer,
    ConsumerEvent,
    ConsumerHeartbeat,
    HeartbeatAnswer,
    PatternsResolved,
)
from storage_svc.coordinator.consumer.group import ConsumerGroup, ConsumerGroupState
from storage_svc.coordinator.consumer.machine import handle, take_over
from storage_svc.coordinator.consumer.records import StoredConsumerGroup, is_consumer_key
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings, Environment
from storage_svc.coordinator.consumer.step import ConsumerOutcome
from storage_svc.coordinator.machine.events import Installed, Timer, TimerFired
from storage_svc.coordinator.machine.outcome import SetTimer
from storage_svc.coordinator.topic_pattern import compile_pattern

ORDERS = frozenset({"orders"})


@dataclass(frozen=True)
class FakeTopic:
    id: bytes
    partition_count: int


@dataclass
class FakeTopics:
    version: int = 0
    made: int = 0
    by_name: dict[str, FakeTopic] = field(default_factory=dict)

    def create(self, name: str, partition_count: int) -> bytes:
        self.made += 1
        self.version += 1
        self.by_name[name] = FakeTopic(self.made.to_bytes(16, "big"), partition_count)
        return self.by_name[name].id

    def delete(self, name: str) -> None:
        self.version += 1
        del self.by_name[name]

    def get(self, name: str) -> FakeTopic | None:
        return self.by_name.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, topic in self.by_name.items() if topic.id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.by_name)


@dataclass(frozen=True)
class Downgraded:
    """The classic group that the consumer group has become."""

    group: Group
    rebalance: bool


class World:
    """One group; `send` performs the outcome of an event as the host does."""

    def __init__(self, settings: ConsumerGroupSettings | None = None) -> None:
        self.settings = settings or ConsumerGroupSettings(assignment_interval_ms=0)
        self.topics = FakeTopics()
        self.group = ConsumerGroup("g")
        self.log = StoredConsumerGroup()
        self.now_ms = 1_000_000
        self.timers: dict[Timer, int] = {}
        self.log_refuses = False
        self.downgraded: Downgraded | None = None
        self.written = 0

    @property
    def environment(self) -> Environment:
        return Environment(self.topics, self.settings, GroupLimits(), self.now_ms)

    def send(self, event: ConsumerEvent) -> ConsumerAnswer | None:
        """Return the answer; None also when the log has refused the records."""
        return self.perform(handle(self.group, event, self.environment))

    def take_over(self, classic: Group, heartbeat: ConsumerHeartbeat) -> ConsumerAnswer | None:
        """Send the heartbeat to a classic group, and return the answer."""
        return self.perform(take_over(classic, heartbeat, self.environment))

    def perform(self, outcome: ConsumerOutcome) -> ConsumerAnswer | None:
        if outcome.records:
            if self.log_refuses:
                return None
            self.written += len(outcome.records)
            for key, value in outcome.records:
                if is_consumer_key(key):
                    self.log.apply(key, value)
        if isinstance(outcome.entity, ConsumerGroup):
            self.group, self.downgraded = outcome.entity, None
        elif outcome.records:
            assert isinstance(outcome.to_successor, Installed)
            self.downgraded = Downgraded(outcome.entity, outcome.to_successor.rebalance)
        for change in outcome.timers:
            if not isinstance(change, SetTimer):
                self.timers.pop(change.timer, None)
            elif not (change.if_absent and change.timer in self.timers):
                self.timers[change.timer] = self.now_ms + change.delay_ms
        if outcome.resolve_patterns and self.downgraded is None:
            self.resolve()
        return outcome.answers[0].value if outcome.answers else None

    def resolve(self) -> None:
        names = self.topics.names()
        found = {each: compile_pattern(each).select(names) for each in self.group.subscribed_patterns()}
        self.send(PatternsResolved(found, self.topics.version))

    def beat(self, event: ConsumerEvent) -> HeartbeatAnswer:
        answer = self.send(event)
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass: timers fire when they are due, in order."""
        end_ms = self.now_ms + milliseconds
        while due := [(at, timer) for timer, at in self.timers.items() if at <= end_ms]:
            self.now_ms, timer = min(due)
            del self.timers[timer]
            self.send(TimerFired(timer))
        self.now_ms = end_ms

    def restored(self) -> ConsumerGroup:
        """Return the group as the log has it."""
        return ConsumerGroup.restore("g", self.log)


def orders(world: World) -> bytes:
    return world.topics.by_name["orders"].id


def enter(world: World, member_id: str, **fields: Any) -> HeartbeatAnswer:
    given: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ORDERS, "owned": {}}
    return world.beat(ConsumerHeartbeat(member_id=member_id, member_epoch=0, **(given | fields)))


def beat(world: World, member_id: str, epoch: int, *owned: int, **fields: Any) -> HeartbeatAnswer:
    """Send a heartbeat; `owned` are partitions of orders. `owned={}` reports that there are none."""
    if owned:
        fields["owned"] = {orders(world): frozenset(owned)}
    return world.beat(ConsumerHeartbeat(member_id=member_id, member_epoch=epoch, **fields))


def given(world: World, answer: HeartbeatAnswer) -> set[int]:
    assert answer.assignment is not None
    return set(answer.assignment.get(orders(world), ()))


def pair(world: World) -> tuple[int, int]:
    """Bring in m1 and m2 with two partitions each, and return their epochs."""
    enter(world, "m1")
    enter(world, "m2")
    informed = beat(world, "m1", 2, 0, 1, 2, 3)
    beat(world, "m1", 2, *given(world, informed))
    beat(world, "m2", 3, owned={})
    assert world.group.state is ConsumerGroupState.STABLE
    return 3, 3
