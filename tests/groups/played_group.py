"""A group's state machine with a clock, a log and topics that the test plays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataValue
from storage_svc.coordinator.classic import machine as classic
from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.consumer import machine as consumer
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, PatternsResolved
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.consumer.records import StoredConsumerGroup, is_consumer_key
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings, Environment
from storage_svc.coordinator.machine.events import Timer, TimerFired
from storage_svc.coordinator.machine.outcome import Outcome, SetTimer
from storage_svc.coordinator.topic_pattern import compile_pattern


@dataclass(frozen=True)
class PlayedTopic:
    id: bytes
    partition_count: int


@dataclass
class PlayedTopics:
    version: int = 0
    made: int = 0
    by_name: dict[str, PlayedTopic] = field(default_factory=dict)

    def create(self, name: str, partition_count: int) -> bytes:
        self.made += 1
        self.version += 1
        self.by_name[name] = PlayedTopic(self.made.to_bytes(16, "big"), partition_count)
        return self.by_name[name].id

    def delete(self, name: str) -> None:
        self.version += 1
        del self.by_name[name]

    def get(self, name: str) -> PlayedTopic | None:
        return self.by_name.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, topic in self.by_name.items() if topic.id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.by_name)


class Write(NamedTuple):
    """A write on its way to the log."""

    #: A function that makes the event for the end of the write.
    ended: Callable[[ErrorCode], Any]
    value: GroupMetadataValue


class PlayedGroup:
    """One group of either protocol; `send` performs the outcome of an event as the host does."""

    def __init__(
        self,
        group: Group | ConsumerGroup,
        *,
        settings: ConsumerGroupSettings | None = None,
        limits: GroupLimits | None = None,
        topics: PlayedTopics | None = None,
        now_ms: int = 1_000_000,
    ) -> None:
        self.group = group
        self.settings = settings or ConsumerGroupSettings(assignment_interval_ms=0)
        self.limits = limits or GroupLimits()
        self.topics = topics or PlayedTopics()
        self.now_ms = now_ms
        self.timers: dict[Timer, int] = {}
        #: The answers that nobody has fetched yet, by request.
        self.answers: dict[int, Any] = {}
        self.log = StoredConsumerGroup()
        #: The classic group as the log has it, and the number of records written.
        self.stored: GroupMetadataValue | None = None
        self.written = 0
        self.log_refuses = False
        #: The writes under way. The test ends them if it holds them; else they end at once.
        self.holds_writes = False
        self.writes: list[Write] = []

    @property
    def environment(self) -> Environment:
        return Environment(self.topics, self.settings, self.limits, self.now_ms)

    def send(self, event: Any) -> Any:
        """Have the machine handle the event; return its answer, if it came. None also when the log has refused."""
        self.perform(self.handle(event))
        return self.answers.pop(getattr(event, "request", None), None)  # type: ignore[arg-type]

    def handle(self, event: Any) -> Outcome[Any]:
        if isinstance(self.group, ConsumerGroup):
            return consumer.handle(self.group, event, self.environment)
        if isinstance(event, ConsumerHeartbeat):
            return consumer.take_over(self.group, event, self.environment)
        return classic.handle(self.group, event, self.now_ms)

    def perform(self, outcome: Outcome[Any]) -> None:
        if outcome.records and self.log_refuses and outcome.stored is None:
            return
        self._write(outcome)
        if outcome.entity is not self.group:
            if outcome.to_replaced is not None:
                self.send(outcome.to_replaced)
            self.group = outcome.entity
        for change in outcome.timers:
            if not isinstance(change, SetTimer):
                self.timers.pop(change.timer, None)
            elif not (change.if_absent and change.timer in self.timers):
                self.timers[change.timer] = self.now_ms + change.delay_ms
        if outcome.to_successor is not None:
            self.send(outcome.to_successor)
        if isinstance(self.group, ConsumerGroup) and getattr(outcome, "resolve_patterns", False):
            self.resolve()
        for answer in outcome.answers:
            assert answer.request not in self.answers, "answered twice"
            self.answers[answer.request] = answer.value
        if outcome.stored is not None:
            ((_, value),) = outcome.records
            self.writes.append(Write(outcome.stored, value))
            if not self.holds_writes:
                self.end_write(ErrorCode.NOT_COORDINATOR if self.log_refuses else ErrorCode.NONE)

    def _write(self, outcome: Outcome[Any]) -> None:
        for key, value in () if self.log_refuses else outcome.records:
            self.written += 1
            if is_consumer_key(key):
                self.log.apply(key, value)
            else:
                self.stored = value

    def end_write(self, error: ErrorCode) -> None:
        """End the oldest write."""
        self.send(self.writes.pop(0).ended(error))

    def resolve(self) -> None:
        assert isinstance(self.group, ConsumerGroup)
        names = list(self.topics.names())
        found = {each: compile_pattern(each).select(names) for each in self.group.subscribed_patterns()}
        self.send(PatternsResolved(found, self.topics.version))

    def pass_time(self, milliseconds: float) -> None:
        """Let time pass: timers fire when they are due, in order."""
        end_ms = self.now_ms + int(milliseconds)
        while due := [(at, timer) for timer, at in self.timers.items() if at <= end_ms]:
            self.now_ms, timer = min(due)
            del self.timers[timer]
            self.send(TimerFired(timer))
        self.now_ms = end_ms

    def restored(self) -> ConsumerGroup:
        """Return the consumer group as the log has it."""
        return ConsumerGroup.restore(self.group.group_id, self.log)
