"""Classic groups among the groups that this broker hosts: the way to their machine, and calls that are never parked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import Commit, Event, Heartbeat, Retire, session_timer
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.classic.machine import handle
from storage_svc.coordinator.hosting.hosted_group import HostedGroup
from storage_svc.coordinator.hosting.hosted_groups import HostedGroups
from storage_svc.coordinator.hosting.repeatable_heartbeats import ClassicRepeatableHeartbeat, Serves
from storage_svc.coordinator.hosting.timers import Deadline
from storage_svc.coordinator.machine.outcome import Outcome
from storage_svc.topic_partition import TopicPartition


class ClassicHost:
    """The `performer.Machine` of classic groups. Owner: the coordinator, on the event loop."""

    def __init__(self, hosted: HostedGroups, wall_clock_ms: Callable[[], int]) -> None:
        self._hosted = hosted
        self._performer = hosted.performer
        self._timers = hosted.performer.timers
        self._now_ms = wall_clock_ms
        hosted.performer.add_machine(Group, self)

    def handle(self, hosted: HostedGroup, event: Event) -> Outcome[Group]:
        assert isinstance(hosted.group, Group)
        return handle(hosted.group, event, self._now_ms())  # wall clock: the time of a group's state, which is stored

    def performed(self, hosted: HostedGroup, _: Outcome[Group]) -> None:
        self._hosted.forget_if_unused(hosted)

    def deleted(self, hosted: HostedGroup) -> None:
        self._performer.send(hosted, Retire())

    def heartbeat(self, hosted: HostedGroup, heartbeat: Heartbeat) -> ErrorCode:
        """Return the group's answer."""
        error = self._answer(hosted, heartbeat)
        self._hosted.forget_if_unused(hosted)
        return error

    def repeat(self, hosted: HostedGroup, heartbeat: Heartbeat, serves: Serves) -> ClassicRepeatableHeartbeat | None:
        """Return the heartbeat that was just answered, to be repeated; None unless the answer would be NONE again."""
        session = self.session(hosted, heartbeat.member_id)
        if session is None or not isinstance(hosted.group, Group):
            return None
        repeat = ClassicRepeatableHeartbeat(hosted, hosted.group, heartbeat, self._timers, session, serves)
        return repeat if repeat.holds() else None

    def commit_fault(
        self, hosted: HostedGroup, commit: Commit, _: Iterable[TopicPartition], _knows_epochs: bool
    ) -> ErrorCode:
        return self._answer(hosted, commit)

    def fetch_fault(self, _: HostedGroup, _member_id: str | None, _member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def _answer(self, hosted: HostedGroup, call: Heartbeat | Commit) -> ErrorCode:
        outcome = self.handle(hosted, call)
        self._performer.change_timers(hosted.group.group_id, outcome.timers)
        error: ErrorCode = outcome.answers[0].value.error
        return error

    def session(self, hosted: HostedGroup, member_id: str) -> Deadline | None:
        """Return the session of a classic group's member; it runs until the member is gone."""
        return self._timers.running((hosted.group.group_id, session_timer(member_id)))

    def start_session(self, group: Group, member_id: str, session: Deadline) -> bool:
        """Start a session again. False, and nothing has changed, when it does not run any more."""
        return self._timers.push_back(session, group.members[member_id].session_timeout_ms)
