"""Consumer groups (KIP-848) among the groups that this broker hosts: the way to their machine, and their patterns.

Patterns are matched in a thread, one group's at a time; the topics they match come back as an event.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.coordinator.classic.events import Commit, Heartbeat, Join
from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.consumer.events import ConsumerEvent, ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup, Topics
from storage_svc.coordinator.consumer.machine import handle, not_a_consumer_group, take_over
from storage_svc.coordinator.consumer.member import JOIN_EPOCH
from storage_svc.coordinator.consumer.offset_rules import commit_fault, fetch_fault
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings, Environment
from storage_svc.coordinator.consumer.step import ConsumerOutcome
from storage_svc.coordinator.hosting.hosted_group import AnyGroup, HostedGroup
from storage_svc.coordinator.hosting.hosted_groups import HostedGroups
from storage_svc.coordinator.hosting.repeatable_heartbeats import ConsumerRepeatableHeartbeat, Serves
from storage_svc.coordinator.machine.events import Configured, PatternsResolved, Timer, TimerKind
from storage_svc.coordinator.machine.group_kind import GroupKind
from storage_svc.coordinator.topic_pattern import compile_pattern
from storage_svc.topic_partition import TopicPartition

log = service_logs.get(__name__)


class ConsumerHost:
    """The `GroupMachine` of consumer groups. Owner: the coordinator, on the event loop."""

    def __init__(
        self,
        hosted: HostedGroups,
        topics: Topics,
        settings: ConsumerGroupSettings,
        classic_limits: GroupLimits,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._hosted = hosted
        self._performer = hosted.performer
        self._topics = topics
        self._settings = settings
        #: The configs of groups that have any, and the settings that they amount to.
        self._own: dict[str, Mapping[str, int]] = {}
        self._own_settings: dict[str, ConsumerGroupSettings] = {}
        self._classic_limits = classic_limits
        self._now_ms = wall_clock_ms
        self._closed = False
        #: Groups whose patterns are being matched.
        self._resolving: dict[str, asyncio.Task[None]] = {}
        hosted.machines[ConsumerGroup.type_name] = self

    def configure(self, group_id: str, own: Mapping[str, int]) -> None:
        """Let the group follow these configs, and the broker's in all else, from its next event on.

        Sessions and intervals that have begun go on as they are until the member's next heartbeat.
        """
        if own:
            self._own[group_id] = own
            self._own_settings[group_id] = self._settings.with_configs(own)
        else:
            self._own.pop(group_id, None)
            self._own_settings.pop(group_id, None)
        if (hosted := self._hosted.by_id.get(group_id)) is not None:
            self._performer.send(hosted, Configured())

    def set_assignment_interval(self, interval_ms: int) -> None:
        """Let groups without an own interval follow this one, from their next event on."""
        self._settings = replace(self._settings, assignment_interval_ms=interval_ms)
        self._own_settings = {group_id: self._settings.with_configs(own) for group_id, own in self._own.items()}

    def _settings_of(self, group_id: str) -> ConsumerGroupSettings:
        return self._own_settings.get(group_id, self._settings)  # mutant: group-configs-at-once

    def _environment(self, group_id: str) -> Environment:
        # wall clock: the time of the last assignment, which is stored; a clock set back is due
        return Environment(self._topics, self._settings_of(group_id), self._classic_limits, self._now_ms())

    async def close(self) -> None:
        """Match no pattern any more."""
        self._closed = True
        tasks = list(self._resolving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the machine ----------------------------------------------------------------------------------------------

    def handle(self, hosted: HostedGroup[ConsumerGroup], event: ConsumerEvent) -> ConsumerOutcome:
        return handle(hosted.entity, event, self._environment(hosted.key))

    #: A heartbeat of KIP-848 is an event like any other.
    decide = handle

    def take_over(self, group: Group, heartbeat: ConsumerHeartbeat) -> ConsumerOutcome:
        """Return the outcome of a heartbeat in a classic group, which becomes a consumer group if it may."""
        return take_over(group, heartbeat, self._environment(group.group_id))

    def performed(self, _: HostedGroup[Any], outcome: ConsumerOutcome) -> None:
        group_id = outcome.entity.group_id
        if (timer := outcome.expelled_by) is not None:
            log.info("member is out", group=group_id, member=timer.member_id, timer=timer.kind.value)
        if outcome.to_successor is not None:
            log.info("consumer group is a classic group now", group=group_id)
        if outcome.resolve_patterns:
            self._resolve(outcome.entity)

    def admit(self, hosted: HostedGroup[ConsumerGroup], join: Join) -> ErrorCode:
        """Admit a classic member to a group with members; an empty group becomes a classic one first."""
        if not hosted.is_empty:
            join.new_member_id = str(uuid.uuid4())
            return ErrorCode.NONE
        if join.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not self._hosted.renew_classic(hosted):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._performer.machine_of(hosted).admit(hosted, join)

    def commit_fault(
        self,
        hosted: HostedGroup[ConsumerGroup],
        commit: Commit,
        partitions: Iterable[TopicPartition],
        knows_epochs: bool,
    ) -> ErrorCode:
        member_id, epoch = commit.member_id, commit.generation_id
        if commit.is_transactional and epoch == -1 and not member_id and commit.instance_id is None:
            return ErrorCode.NONE
        return commit_fault(hosted.entity, member_id, epoch, partitions, self._topics, knows_epochs=knows_epochs)

    def repeated_commit(self, _: HostedGroup[ConsumerGroup], _commit: Commit) -> Callable[[], bool]:
        return _accepts_again

    def fetch_fault(self, hosted: HostedGroup[ConsumerGroup], member_id: str | None, member_epoch: int) -> ErrorCode:
        return fetch_fault(hosted.entity, member_id, member_epoch)

    def deleted(self, _: HostedGroup[ConsumerGroup]) -> None:
        """Do nothing: no call waits for an empty consumer group."""

    # --- calls ----------------------------------------------------------------------------------------------------

    def consumer_heartbeat(
        self,
        group_id: str,
        heartbeat: ConsumerHeartbeat,
        done: Callable[[HeartbeatAnswer], None],
        serves: Serves,
        *,
        is_restricted: bool = False,
    ) -> ConsumerRepeatableHeartbeat | None:
        """Answer a heartbeat. A join makes the group if it is not there, and takes over one of the classic protocol if
        it may.

        If the member's client may not describe every topic (`is_restricted`), patterns are not matched here: the
        answer asks for `resolve`.
        """
        hosted = self._hosted.by_id.get(group_id)
        if hosted is None:
            if heartbeat.member_epoch != JOIN_EPOCH:
                done(not_a_consumer_group(group_id))
                return None
            hosted = self._hosted.locate(ConsumerGroup(group_id))
        heartbeat.request = self._performer.calls.expect(done)
        was_writing = hosted.write is not None
        outcome = self._performer.machine_of(hosted).decide(hosted, heartbeat)
        if is_restricted and outcome.resolve_patterns:
            outcome.resolve_patterns = False  # mutant: restricted-member-does-not-match
            for answer in outcome.answers:
                answer.value.resolve_version = self._topics.version
        self._performer.perform(hosted, outcome, self)
        if outcome.quiet is None or was_writing:
            return None
        return self._repeat(hosted, outcome.quiet, heartbeat, serves)

    def _repeat(
        self, hosted: AnyGroup, group: ConsumerGroup, heartbeat: ConsumerHeartbeat, serves: Serves
    ) -> ConsumerRepeatableHeartbeat | None:
        timeout_ms = self._settings_of(group.group_id).session_timeout_ms
        timers = self._performer.timers
        session = timers.running((group.group_id, Timer(TimerKind.SESSION, heartbeat.member_id)))
        if session is None:
            return None
        return ConsumerRepeatableHeartbeat(hosted, group, heartbeat, self._topics, timers, session, timeout_ms, serves)

    def heartbeat(
        self, hosted: HostedGroup[ConsumerGroup], heartbeat: Heartbeat, done: Callable[[ErrorCode], None], _: Serves
    ) -> None:
        heartbeat.request = self._performer.calls.expect(lambda answer: done(answer.error))
        self._performer.send(hosted, heartbeat)

    # --- patterns -------------------------------------------------------------------------------------------------

    def resolve(self, group_id: str, names: Iterable[str], version: int) -> None:
        """Match a group's patterns, as of a version of the topics, with those of `names` that exist."""
        if (hosted := self._hosted.by_id.get(group_id)) is not None:
            existing = set(self._topics.names())
            self._resolve(hosted.entity, [name for name in names if name in existing], version)

    def _resolve(self, group: GroupKind, names: Sequence[str] | None = None, version: int | None = None) -> None:
        """Match the group's patterns with all topics, or with these as of a version."""
        group_id = group.group_id
        if group_id in self._resolving or self._closed or not (patterns := group.subscribed_patterns()):
            return
        version = self._topics.version if version is None else version
        names = list(self._topics.names()) if names is None else names
        task = asyncio.create_task(self._resolve_patterns(group_id, patterns, names, version))
        self._resolving[group_id] = task
        task.add_done_callback(partial(self._resolved, group_id))

    def _resolved(self, group_id: str, _: asyncio.Task[None]) -> None:
        self._resolving.pop(group_id, None)

    async def _resolve_patterns(self, group_id: str, patterns: set[str], names: Sequence[str], version: int) -> None:
        # default threads: computes; nothing waits for a disk
        topics = await asyncio.to_thread(_matching, patterns, names)
        if (hosted := self._hosted.by_id.get(group_id)) is not None:
            self._performer.send(hosted, PatternsResolved(topics, version))


def _accepts_again() -> bool:
    """Return True: the group is another object whenever a member has changed."""
    return True


def _matching(patterns: set[str], names: Sequence[str]) -> Mapping[str, frozenset[str]]:
    return {pattern: compile_pattern(pattern).select(names) for pattern in patterns}
