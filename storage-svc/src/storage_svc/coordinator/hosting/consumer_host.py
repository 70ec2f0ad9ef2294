"""Consumer groups (KIP-848) among the groups this broker hosts: performs what their machine decides.

An event's records are one batch. When the log refuses them nothing has happened; when it has taken them the group is
what the machine said, and its timers run; when they are durable the caller is answered. An answer without records waits
for the records before it: nobody is told what a crash could take back.

Patterns are matched in a thread, one group's at a time; what they match comes back as an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

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
from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.consumer.events import (
    ConsumerAnswer,
    ConsumerEvent,
    ConsumerGroupSettings,
    ConsumerHeartbeat,
    ConsumerTimer,
    ConsumerTimerFired,
    ConsumerTimerKind,
    Environment,
    HeartbeatAnswer,
    Outcome,
    PatternsResolved,
    SetConsumerTimer,
)
from storage_svc.coordinator.consumer.group import NEVER, ConsumerGroup, Topics
from storage_svc.coordinator.consumer.machine import handle, says_nothing_new
from storage_svc.coordinator.consumer.member import JOIN_EPOCH, MemberState
from storage_svc.coordinator.consumer.migration import NOT_MIGRATED, may_upgrade, upgrade_records, upgraded
from storage_svc.coordinator.consumer.records import ConsumerRecord, classic_record, encode
from storage_svc.coordinator.hosting.classic_host import HostedGroup, HostedGroups
from storage_svc.coordinator.hosting.repeatable_heartbeats import ConsumerRepeatableHeartbeat, Serves
from storage_svc.coordinator.hosting.timers import Timers
from storage_svc.coordinator.patterns.topic_pattern import compile_pattern
from storage_svc.coordinator.stored.offsets_log import OffsetsLog
from storage_svc.coordinator.stored.records import group_error

log = service_logs.get(__name__)

AnswerT = TypeVar("AnswerT", bound=ConsumerAnswer)
ClassicCall = Join | Sync | Leave


class HostedConsumerGroups:
    """Owner: the coordinator, on the event loop."""

    def __init__(
        self,
        hosted: HostedGroups,
        offsets_log: OffsetsLog,
        topics: Topics,
        settings: ConsumerGroupSettings,
        classic_limits: GroupLimits,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._hosted = hosted
        self._offsets_log = offsets_log
        self._topics = topics
        self._settings = settings
        #: Of groups that have some of their own.
        self._own_settings: dict[str, ConsumerGroupSettings] = {}
        self._classic_limits = classic_limits
        self._now_ms = wall_clock_ms
        self._loop = asyncio.get_running_loop()
        self._timers: Timers[tuple[str, ConsumerTimer]] = Timers(self._loop, self._on_timer)
        self._closed = False
        #: The newest write of each group that has one under way.
        self._writing: dict[str, asyncio.Future[int]] = {}
        #: Groups whose patterns are being matched.
        self._resolving: dict[str, asyncio.Task[None]] = {}

    def configure(self, group_id: str, own: Mapping[str, int]) -> None:
        """From its next event on the group follows these configs, and the broker's in all else. Sessions and intervals
        that have begun go on as they are until the member's next heartbeat."""
        if own:
            self._own_settings[group_id] = self._settings.with_configs(own)
        else:
            self._own_settings.pop(group_id, None)
        hosted = self._hosted.by_id.get(group_id)
        if hosted is not None and isinstance(hosted.group, ConsumerGroup):
            # Another object: what `ConsumerRepeatableHeartbeat` answers holds no more.
            hosted.group = hosted.group.copy()
            hosted.changed()

    def _settings_of(self, group_id: str) -> ConsumerGroupSettings:
        return self._own_settings.get(group_id, self._settings)

    def _environment(self, group_id: str) -> Environment:
        return Environment(self._topics, self._settings_of(group_id), self._classic_limits, self._now_ms())

    def loaded(self) -> None:
        """The members of groups that were just loaded get a whole session."""
        for hosted in self._hosted.by_id.values():
            group = hosted.group
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    self._start_loaded(group.group_id, member.member_id, member.state, member.rebalance_timeout_ms)

    def _start_loaded(self, group_id: str, member_id: str, state: MemberState, rebalance_timeout_ms: int) -> None:
        session = (group_id, ConsumerTimer(ConsumerTimerKind.SESSION, member_id))
        if session in self._timers or self._closed:
            return
        self._timers.set(session, self._settings_of(group_id).session_timeout_ms)
        if state is MemberState.UNREVOKED_PARTITIONS:
            self._timers.set((group_id, ConsumerTimer(ConsumerTimerKind.REBALANCE, member_id)), rebalance_timeout_ms)

    def unload(self, partition: int) -> None:
        """The groups of an offsets partition are about to be forgotten: no timer of them fires any more."""
        for group_id, hosted in self._hosted.by_id.items():
            if hosted.partition == partition and isinstance(hosted.group, ConsumerGroup):
                for member_id in hosted.group.members:
                    self._cancel_timers(group_id, member_id)

    async def close(self) -> None:
        """No timer fires any more."""
        self._closed = True
        self._timers.close()
        tasks = list(self._resolving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- calls ----------------------------------------------------------------------------------------------------

    def heartbeat(
        self, group_id: str, heartbeat: ConsumerHeartbeat, done: Callable[[HeartbeatAnswer], None], serves: Serves
    ) -> ConsumerRepeatableHeartbeat | None:
        """Joins make the group if it is not there, and take over one of the classic protocol if they may."""
        hosted = self._hosted.by_id.get(group_id)
        group = None if hosted is None else hosted.group
        written: list[ConsumerRecord] = []
        if not isinstance(group, ConsumerGroup):
            if heartbeat.member_epoch != JOIN_EPOCH:
                done(_not_found(f"Group {group_id} is not a consumer group."))
                return None
            made = self._made(group_id, group)
            if made is None:
                done(_not_found(f"Cannot upgrade classic group {group_id} to consumer group."))
                return None
            made_group, written = made
            if hosted is None:
                hosted = self._hosted.made(made_group)
            outcome = handle(made_group, heartbeat, self._environment(group_id), written=written)
            is_repeatable = False
        else:
            assert hosted is not None
            is_repeatable = says_nothing_new(group, heartbeat, self._topics) and group_id not in self._writing
            outcome = handle(group, heartbeat, self._environment(group_id))
        self._perform(hosted, outcome, HeartbeatAnswer, lambda error: HeartbeatAnswer(error=error), done)
        if is_repeatable:
            return self._repeat(hosted, heartbeat, serves)
        hosted.changed()  # what it was told over which connection is in no record
        return None

    def _repeat(
        self, hosted: HostedGroup, heartbeat: ConsumerHeartbeat, serves: Serves
    ) -> ConsumerRepeatableHeartbeat | None:
        group = hosted.group
        assert isinstance(group, ConsumerGroup)
        timeout_ms = self._settings_of(group.group_id).session_timeout_ms
        session = self._timers.running((group.group_id, ConsumerTimer(ConsumerTimerKind.SESSION, heartbeat.member_id)))
        if session is None:
            return None
        return ConsumerRepeatableHeartbeat(
            hosted, group, heartbeat, self._topics, self._timers, session, timeout_ms, serves
        )

    def _made(self, group_id: str, group: Group | None) -> tuple[ConsumerGroup, list[ConsumerRecord]] | None:
        """A consumer group in the place of what is there, with the records that make it so; None if it may not be."""
        if group is None:
            return ConsumerGroup(group_id), []
        if not group.members:
            return ConsumerGroup(group_id), [classic_record(group_id, None)] if group.generation_id else []
        made = upgraded(group, self._topics) if may_upgrade(group, self._environment(group_id)) else None
        return None if made is None else (made, upgrade_records(made))

    async def join(self, hosted: HostedGroup, join: Join) -> JoinAnswer:
        return await self._classic(
            hosted, join, JoinAnswer, lambda error: JoinAnswer(error=error, member_id=join.member_id)
        )

    async def sync(self, hosted: HostedGroup, sync: Sync) -> SyncAnswer:
        return await self._classic(hosted, sync, SyncAnswer, lambda error: SyncAnswer(error=error))

    def classic_heartbeat(self, hosted: HostedGroup, heartbeat: Heartbeat, done: Callable[[ErrorCode], None]) -> None:
        assert isinstance(hosted.group, ConsumerGroup)
        outcome = handle(hosted.group, heartbeat, self._environment(hosted.group.group_id))
        self._perform(hosted, outcome, ErrorAnswer, ErrorAnswer, lambda answer: done(answer.error))

    async def leave(self, hosted: HostedGroup, leave: Leave) -> LeaveAnswer:
        return await self._classic(hosted, leave, LeaveAnswer, lambda error: LeaveAnswer(error, ()))

    async def _classic(
        self, hosted: HostedGroup, call: ClassicCall, kind: type[AnswerT], failed: Callable[[ErrorCode], AnswerT]
    ) -> AnswerT:
        assert isinstance(hosted.group, ConsumerGroup)
        future: asyncio.Future[AnswerT] = self._loop.create_future()

        def done(answer: AnswerT) -> None:
            if not future.done():
                future.set_result(answer)

        outcome = handle(hosted.group, call, self._environment(hosted.group.group_id))
        self._perform(hosted, outcome, kind, failed, done)
        return await future

    def _perform(
        self,
        hosted: HostedGroup,
        outcome: Outcome,
        kind: type[AnswerT],
        failed: Callable[[ErrorCode], AnswerT],
        done: Callable[[AnswerT], None],
    ) -> None:
        """`done` gets the outcome's answer once what it tells is durable; `failed` makes the answer when it is not."""
        answer = outcome.answer
        if not isinstance(answer, kind):
            raise TypeError(f"{kind.__name__} was wanted, not {type(answer).__name__}")

        writing = self._take(hosted, outcome)
        if writing is None:
            done(answer)
            return

        def written(writing: asyncio.Future[int]) -> None:
            code = writing.result()
            done(failed(group_error(code)) if code else answer)

        if writing.done():
            written(writing)
        else:
            writing.add_done_callback(written)

    # --- outcomes -------------------------------------------------------------------------------------------------

    def _tell(self, hosted: HostedGroup, event: ConsumerEvent) -> None:
        """An event nobody waits for."""
        assert isinstance(hosted.group, ConsumerGroup)
        self._take(hosted, handle(hosted.group, event, self._environment(hosted.group.group_id)))

    def _take(self, hosted: HostedGroup, outcome: Outcome) -> asyncio.Future[int] | None:
        """Performs all but the answer. What is returned becomes 0 once the answer may be given, or Kafka's code."""
        group_id = outcome.group.group_id
        writing = self._writing.get(group_id)
        if outcome.records:
            writing = self._write(hosted, outcome)
            if writing.done() and writing.result():
                # The log has not taken it: all is as before, and what was looked at must be looked at again.
                if isinstance(hosted.group, ConsumerGroup):
                    hosted.group.hashed_version = hosted.group.resolved_version = NEVER
                    hosted.changed()
                return writing
            if isinstance(hosted.group, Group):
                self._hosted.end_classic(hosted, hosted.group)
            self._hosted.by_id[group_id] = hosted
            hosted.group = outcome.group
            hosted.changed()
        self._change_timers(group_id, outcome)
        if outcome.downgrade is not None:
            for member_id in outcome.group.members:
                self._cancel_timers(group_id, member_id)
            log.info("consumer group is a classic group now", group=group_id)
            self._hosted.begin_classic(hosted, outcome.downgrade.group, rebalance=outcome.downgrade.rebalance)
        elif outcome.resolve_patterns:
            self._resolve(outcome.group)
        return writing

    def _write(self, hosted: HostedGroup, outcome: Outcome) -> asyncio.Future[int]:
        group_id = outcome.group.group_id
        future: asyncio.Future[int] = self._loop.create_future()

        def done(code: int) -> None:
            if self._writing.get(group_id) is future:
                del self._writing[group_id]
            if not future.done():
                future.set_result(code)

        # A large group that changes its protocol, or whose members all get another target, has many records.
        records = [encode(each) for each in outcome.records]
        self._offsets_log.write(hosted.partition, records, self._now_ms(), done, may_compress=True)
        if not future.done():
            self._writing[group_id] = future
        return future

    def _change_timers(self, group_id: str, outcome: Outcome) -> None:
        for change in outcome.timers:
            key = (group_id, change.timer)
            if not isinstance(change, SetConsumerTimer):
                self._timers.cancel(key)
            elif not self._closed and not (change.if_absent and key in self._timers):
                self._timers.set(key, change.delay_ms)

    def _cancel_timers(self, group_id: str, member_id: str) -> None:
        for kind in ConsumerTimerKind:
            self._timers.cancel((group_id, ConsumerTimer(kind, member_id)))

    def _on_timer(self, key: tuple[str, ConsumerTimer]) -> None:
        group_id, timer = key
        hosted = self._hosted.by_id.get(group_id)
        if hosted is not None and isinstance(hosted.group, ConsumerGroup):
            log.info("member is out", group=group_id, member=timer.member_id, timer=timer.kind.value)
            self._tell(hosted, ConsumerTimerFired(timer))

    # --- patterns -------------------------------------------------------------------------------------------------

    def _resolve(self, group: ConsumerGroup) -> None:
        group_id = group.group_id
        if group_id in self._resolving or self._closed:
            return
        task = asyncio.create_task(self._resolve_patterns(group_id, group.subscribed_patterns()))
        self._resolving[group_id] = task
        task.add_done_callback(partial(self._resolved, group_id))

    def _resolved(self, group_id: str, _: asyncio.Task[None]) -> None:
        self._resolving.pop(group_id, None)

    async def _resolve_patterns(self, group_id: str, patterns: set[str]) -> None:
        version, names = self._topics.version, list(self._topics.names())
        topics = await asyncio.to_thread(_matching, patterns, names)
        hosted = self._hosted.by_id.get(group_id)
        if hosted is not None and isinstance(hosted.group, ConsumerGroup):
            self._tell(hosted, PatternsResolved(topics, version))


def _matching(patterns: set[str], names: list[str]) -> Mapping[str, frozenset[str]]:
    return {pattern: compile_pattern(pattern).select(names) for pattern in patterns}


def _not_found(message: str) -> HeartbeatAnswer:
    return HeartbeatAnswer(error=NOT_MIGRATED, message=message)
