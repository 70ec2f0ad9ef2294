"""Events of the consumer group's machine (KIP-848), and the answers in its outcomes.

An event goes into `consumer.machine.handle`, an `Outcome` comes out. Members of the classic protocol send the events of
that protocol. A `request` is the number under which the caller waits for its answer. Durations are milliseconds; Kafka
error codes are values.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import AnswerValue, Heartbeat, Join, Leave, Sync
from storage_svc.coordinator.consumer.member import Held, Partitions
from storage_svc.coordinator.machine.events import Configured, Installed, PatternsResolved, Removed, TimerFired

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
    #: The connection it came over.
    connection_id: int = 0

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat has everything: the member wants its whole assignment, too."""
        has_subscription = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned is not None


ConsumerEvent = (
    ConsumerHeartbeat
    | Join
    | Sync
    | Heartbeat
    | Leave
    | PatternsResolved
    | Configured
    | TimerFired
    | Installed
    | Removed
)


@dataclass(slots=True, kw_only=True)
class HeartbeatAnswer:
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    #: None: as the member knows it.
    assignment: Held | None = None
    #: The version of the topics as of which the caller has the group's patterns matched; None if it need not.
    resolve_version: int | None = None


ConsumerAnswer = HeartbeatAnswer | AnswerValue
