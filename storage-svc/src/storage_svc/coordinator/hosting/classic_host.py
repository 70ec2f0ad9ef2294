"""Classic groups among the groups that this broker hosts: the way to their machine, and calls that are never parked."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import Commit, Event, GroupState, Heartbeat, Join, Retire, session_timer
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.machine import handle
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat
from storage_svc.coordinator.consumer.step import ConsumerOutcome
from storage_svc.coordinator.hosting.hosted_group import HostedGroup
from storage_svc.coordinator.hosting.hosted_groups import HostedGroups
from storage_svc.coordinator.hosting.repeatable_heartbeats import ClassicRepeatableHeartbeat, Serves
from storage_svc.coordinator.hosting.timers import Deadline
from storage_svc.coordinator.machine.outcome import Outcome
from storage_svc.topic_partition import TopicPartition

#: A function that returns the outcome of a KIP-848 heartbeat in a classic group.
TakeOver = Callable[[Group, ConsumerHeartbeat], ConsumerOutcome]


class ClassicHost:
    """The `GroupMachine` of classic groups. Owner: the coordinator, on the event loop."""

    def __init__(self, hosted: HostedGroups, take_over: TakeOver, wall_clock_ms: Callable[[], int]) -> None:
        self._hosted = hosted
        self._performer = hosted.performer
        self._timers = hosted.performer.timers
        self._take_over = take_over
        self._now_ms = wall_clock_ms
        hosted.machines[Group.type_name] = self

    def handle(self, hosted: HostedGroup[Group], event: Event) -> Outcome[Group]:
        return handle(hosted.entity, event, self._now_ms())  # wall clock: the time of a group's state, which is stored

    def performed(self, hosted: HostedGroup[Group], _: Outcome[Group]) -> None:
        self._hosted.forget_if_unused(hosted)

    def deleted(self, hosted: HostedGroup[Group]) -> None:
        self._performer.send(hosted, Retire())

    def admit(self, _: HostedGroup[Group], join: Join) -> ErrorCode:
        prefix = join.instance_id if join.instance_id is not None else join.client_id
        join.new_member_id = f"{prefix}-{uuid.uuid4()}"
        return ErrorCode.NONE

    def decide(self, hosted: HostedGroup[Group], heartbeat: ConsumerHeartbeat) -> ConsumerOutcome:
        return self._take_over(hosted.entity, heartbeat)

    def heartbeat(
        self, hosted: HostedGroup[Group], heartbeat: Heartbeat, done: Callable[[ErrorCode], None], serves: Serves
    ) -> ClassicRepeatableHeartbeat | None:
        error = self._answer(hosted, heartbeat)
        self._hosted.forget_if_unused(hosted)
        done(error)
        session = None if error else self._session(hosted, heartbeat.member_id)
        if session is None:
            return None
        repeat = ClassicRepeatableHeartbeat(hosted, hosted.entity, heartbeat, self._timers, session, serves)
        return repeat if repeat.holds() else None

    def commit_fault(
        self, hosted: HostedGroup[Group], commit: Commit, _: Iterable[TopicPartition], _knows_epochs: bool
    ) -> ErrorCode:
        return self._answer(hosted, commit)

    def repeated_commit(self, hosted: HostedGroup[Group], commit: Commit) -> Callable[[], bool]:
        return partial(self._accepts_again, hosted.entity, commit, self._session(hosted, commit.member_id))

    def _accepts_again(self, group: Group, commit: Commit, session: Deadline | None) -> bool:
        if group.state is GroupState.EMPTY:
            return commit.generation_id < 0
        # mutant: short-commit-generation
        return (
            group.state is GroupState.STABLE
            and session is not None
            and not group.call_error(commit.member_id, commit.instance_id, commit.generation_id)
            and self._timers.push_back(session, group.members[commit.member_id].session_timeout_ms)
        )

    def fetch_fault(self, _: HostedGroup[Group], _member_id: str | None, _member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def _answer(self, hosted: HostedGroup[Group], call: Heartbeat | Commit) -> ErrorCode:
        outcome = self.handle(hosted, call)
        self._performer.change_timers(hosted.key, outcome.timers)
        error: ErrorCode = outcome.answers[0].value.error
        return error

    def _session(self, hosted: HostedGroup[Group], member_id: str) -> Deadline | None:
        """Return the session of a member; it runs until the member is gone."""
        return self._timers.running((hosted.key, session_timer(member_id)))
