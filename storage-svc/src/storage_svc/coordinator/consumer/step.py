"""One event of a consumer group being handled: the draft of the group, and the outcome it adds up to.

Without a record there is no new group. Only facts that no record holds change: the version of the topics that the group
has seen, and the connection over which a member was last sent its assignment. The step applies these at its end, to the
new group if there is one. If the log refuses the write, the old group is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import (
    ErrorAnswer,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Sync,
    SyncAnswer,
)
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.consumer.events import ConsumerAnswer, ConsumerEvent, ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup, Draft
from storage_svc.coordinator.consumer.member import ConsumerMember
from storage_svc.coordinator.consumer.settings import Environment
from storage_svc.coordinator.machine.events import Installed, Timer, TimerKind
from storage_svc.coordinator.machine.outcome import Answer, CancelTimer, Outcome, SetTimer, TimerChange
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason


@dataclass(slots=True)
class ConsumerOutcome(Outcome[Group | ConsumerGroup]):
    #: `PatternsResolved` is expected.
    resolve_patterns: bool = False
    #: The group, if a heartbeat changed nothing but its session: a repeated one gets the same answer.
    quiet: ConsumerGroup | None = None
    #: The timer by which a member goes; None when none does.
    expelled_by: Timer | None = None


#: Event of a caller -> the answer when the records it depends on cannot be stored.
_FAILED: Final[Mapping[type, Callable[[Any, ErrorCode], ConsumerAnswer]]] = {
    ConsumerHeartbeat: lambda _, error: HeartbeatAnswer(error=error),
    Join: lambda join, error: JoinAnswer(error=error, member_id=join.member_id),
    Sync: lambda _, error: SyncAnswer(error=error),
    Heartbeat: lambda _, error: ErrorAnswer(error),
    Leave: lambda _, error: LeaveAnswer(error, ()),
}


def answers_to(event: Any, answer: ConsumerAnswer | None) -> list[Answer]:
    """Return the answer in the form of an outcome; none for an event without a caller."""
    if answer is None:
        return []
    return [Answer(event.request, answer, partial(_FAILED[type(event)], event))]


class Step:
    def __init__(self, draft: Draft, environment: Environment) -> None:
        self.draft = draft
        self.environment = environment
        self.timers: list[TimerChange] = []
        self.resolve_patterns = False
        self.expelled_by: Timer | None = None
        #: The cause of a higher group epoch.
        self.rebalance: RebalanceReason | None = None
        self._classic: Group | None = None
        self._must_rebalance = False
        self._hashed_version: int | None = None
        self._resolved_version: int | None = None
        #: (member id, connection id).
        self._informed: tuple[str, int] | None = None

    @property
    def group(self) -> ConsumerGroup:
        return self.draft.group

    # --- memory in no record --------------------------------------------------------------------------------------

    def note_hashed(self, version: int) -> None:
        """Remember that the group's topics were hashed as of this version."""
        self._hashed_version = version  # mutant: hashed-topics-after-write

    def note_resolved(self, version: int) -> None:
        """Remember that the group's patterns were matched as of this version of the topics."""
        self._resolved_version = version

    def note_informed(self, member_id: str, connection_id: int) -> None:
        """Remember that this member is sent its assignment over this connection."""
        self._informed = member_id, connection_id

    # --- timers ---------------------------------------------------------------------------------------------------

    def set_timer(self, kind: TimerKind, member_id: str, delay_ms: int, *, if_absent: bool = False) -> None:
        self.timers.append(SetTimer(Timer(kind, member_id), delay_ms, if_absent))

    def cancel_timer(self, kind: TimerKind, member_id: str) -> None:
        self.timers.append(CancelTimer(Timer(kind, member_id)))

    def cancel_timers(self, member_id: str) -> None:
        for kind in TimerKind:
            self.cancel_timer(kind, member_id)

    def start_session(self, member: ConsumerMember) -> None:
        settings = self.environment.settings
        timeout_ms = settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
        self.set_timer(TimerKind.SESSION, member.member_id, timeout_ms)

    # --- the outcome ----------------------------------------------------------------------------------------------

    def become_classic(self, group: Group, *, rebalance: bool) -> None:
        """End the step with this classic group in the place of the consumer group; no timer of that goes on."""
        self._classic, self._must_rebalance = group, rebalance
        for member_id in self.group.members:
            self.cancel_timers(member_id)

    def outcome(self, event: ConsumerEvent, answer: ConsumerAnswer | None) -> ConsumerOutcome:
        group = self.draft.group
        group.note(self._hashed_version, self._resolved_version, self._informed)
        answers = answers_to(event, answer)
        if self._classic is not None:
            return ConsumerOutcome(
                self._classic,
                answers,
                self.timers,
                self.draft.records,
                to_successor=Installed(rebalance=self._must_rebalance),
                expelled_by=self.expelled_by,
            )
        return ConsumerOutcome(
            group,
            answers,
            self.timers,
            self.draft.records,
            resolve_patterns=self.resolve_patterns,
            expelled_by=self.expelled_by,
            rebalance=self.rebalance,
        )
