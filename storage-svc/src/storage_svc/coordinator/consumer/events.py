"""What the consumer group machine (KIP-848) is told, and what comes of it.

An event goes into `consumer_machine.handle`, an `Outcome` comes out. Nothing of it has happened yet: the host writes
the records as one batch; when the log has taken them the outcome's group takes the place of the group and the timers
are set; when they are durable the answer is given. Durations are milliseconds; Kafka error codes are values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import AnswerValue, Heartbeat, Join, Leave, Sync
from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.consumer.group import ConsumerGroup, Draft, Topics
from storage_svc.coordinator.consumer.member import ConsumerMember, Held, Partitions
from storage_svc.coordinator.consumer.records import ConsumerRecord
from storage_svc.topics import group_configs


class MigrationPolicy(StrEnum):
    """Which way a group with members may go from one protocol to the other (group.consumer.migration.policy)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """Kafka's group.consumer.* settings; a group may have some of its own."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    size_max: int = 10_000
    #: The first is the one for members that ask for none.
    assignors: tuple[str, ...] = ("uniform", "range")
    #: A target assignment is not computed anew before that.
    assignment_interval_ms: int = 1_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    def with_configs(self, own: Mapping[str, int]) -> ConsumerGroupSettings:
        """These, but for what a group's configs say, by the names of `group_configs`."""
        fields: dict[str, Any] = {_FIELDS[name]: value for name, value in own.items()}
        return replace(self, **fields)


#: The settings that a group's configs stand for.
_FIELDS: Final = {
    group_configs.SESSION_TIMEOUT: "session_timeout_ms",
    group_configs.HEARTBEAT_INTERVAL: "heartbeat_interval_ms",
    group_configs.ASSIGNMENT_INTERVAL: "assignment_interval_ms",
}


@dataclass(slots=True)
class Environment:
    """What the machine may look at besides the group. Made for every event; nobody changes it."""

    topics: Topics
    settings: ConsumerGroupSettings
    #: Of a group that turns into a classic one.
    classic_limits: GroupLimits
    #: Wall clock time.
    now_ms: int


class ConsumerTimerKind(StrEnum):
    #: Silence after which a member is out.
    SESSION = "session"
    #: A member that was told to give up partitions has this long to do so.
    REBALANCE = "rebalance"
    #: A classic member that was told to join again has this long to do so.
    JOIN = "join"
    #: A classic member that joined has this long to sync.
    SYNC = "sync"


class ConsumerTimer(NamedTuple):
    kind: ConsumerTimerKind
    member_id: str


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat; None (-1 for the timeout) means: as before."""

    request: int = 0
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    #: Of the connection it came over.
    connection_id: int = 0

    @property
    def is_full(self) -> bool:
        """It says everything: the member wants to hear everything, too."""
        has_subscription = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


@dataclass(slots=True)
class PatternsResolved:
    """The topics that match the group's patterns now."""

    topics: Mapping[str, frozenset[str]]
    version: int


@dataclass(slots=True)
class ConsumerTimerFired:
    timer: ConsumerTimer


ConsumerEvent = ConsumerHeartbeat | PatternsResolved | ConsumerTimerFired | Join | Sync | Heartbeat | Leave


@dataclass(slots=True, kw_only=True)
class HeartbeatAnswer:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    #: None: as the member knows it.
    assignment: Held | None = None


ConsumerAnswer = HeartbeatAnswer | AnswerValue


# --- outcome ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SetConsumerTimer:
    timer: ConsumerTimer
    delay_ms: int
    #: Leave it as it is if it runs already.
    if_absent: bool = False


@dataclass(slots=True)
class CancelConsumerTimer:
    timer: ConsumerTimer


TimerChange = SetConsumerTimer | CancelConsumerTimer


@dataclass(slots=True)
class Downgrade:
    """The group turns into this classic one, whose members begin a rebalance or do not."""

    group: Group
    rebalance: bool


@dataclass(slots=True)
class Outcome:
    #: The group once the log has taken the records; the same object if there are none.
    group: ConsumerGroup
    records: list[ConsumerRecord] = field(default_factory=list)
    #: None: nobody asked.
    answer: ConsumerAnswer | None = None
    timers: list[TimerChange] = field(default_factory=list)
    #: `PatternsResolved` is expected.
    resolve_patterns: bool = False
    downgrade: Downgrade | None = None


class Step:
    """An event being handled: the draft of the group and what shall be done besides."""

    def __init__(self, draft: Draft, environment: Environment) -> None:
        self.draft = draft
        self.environment = environment
        self.timers: list[TimerChange] = []
        self.resolve_patterns = False
        self.downgrade: Downgrade | None = None

    @property
    def group(self) -> ConsumerGroup:
        return self.draft.group

    def set_timer(self, kind: ConsumerTimerKind, member_id: str, delay_ms: int, *, if_absent: bool = False) -> None:
        self.timers.append(SetConsumerTimer(ConsumerTimer(kind, member_id), delay_ms, if_absent))

    def cancel_timer(self, kind: ConsumerTimerKind, member_id: str) -> None:
        self.timers.append(CancelConsumerTimer(ConsumerTimer(kind, member_id)))

    def cancel_timers(self, member_id: str) -> None:
        for kind in ConsumerTimerKind:
            self.cancel_timer(kind, member_id)

    def start_session(self, member: ConsumerMember) -> None:
        settings = self.environment.settings
        timeout_ms = settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        self.set_timer(ConsumerTimerKind.SESSION, member.member_id, timeout_ms)

    def outcome(self, answer: ConsumerAnswer | None) -> Outcome:
        return Outcome(self.draft.group, self.draft.records, answer, self.timers, self.resolve_patterns, self.downgrade)
