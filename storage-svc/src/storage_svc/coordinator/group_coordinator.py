"""Performs what the group state machines ask for: timers, parked answers, records in `__consumer_offsets`.

A group lives in the offsets partition its id hashes to; partitions load one after the other at start, and calls for a
group are answered COORDINATOR_LOAD_IN_PROGRESS until its partition is loaded. A change is told to a client only after
its record is durable: that is when a committed offset becomes visible, too.

Everything runs on one event loop, and every call decides synchronously before it waits: no lock is needed.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.coordinator.admission import (
    CoordinatorSettings,
    NewOffset,
    group_id_fault,
    join_fault,
    metadata_fault,
)
from storage_svc.coordinator.group import Group, GroupLimits
from storage_svc.coordinator.group_events import (
    Answer,
    AnswerValue,
    CancelTimer,
    Commit,
    ErrorAnswer,
    Event,
    GroupState,
    Heartbeat,
    Instruction,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Retire,
    SetTimer,
    Store,
    Stored,
    Sync,
    SyncAnswer,
    Timer,
    TimerFired,
)
from storage_svc.coordinator.offset_expiration import TopicPartition, expired
from storage_svc.coordinator.offsets import (
    CommittedOffset,
    OffsetKey,
    StoredGroup,
    commit_error,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    group_error,
)
from storage_svc.coordinator.offsets_log import LoadedPartition, OffsetsLog, load
from storage_svc.coordinator.timers import Timers
from storage_svc.log.errors import LogError
from storage_svc.log.partition_log import PartitionLog
from storage_svc.topics.names import OFFSETS_TOPIC

log = service_logs.get(__name__)

AnswerT = TypeVar("AnswerT", bound=AnswerValue)
RecordPair = tuple[bytes, bytes | None]


@dataclass(slots=True)
class HostedGroup:
    """A state machine and what it does not keep itself."""

    machine: Group
    partition: int
    #: Durable commits only.
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    #: Commits appended but not durable yet.
    pending_commits: int = 0
    #: Instructions not performed yet; non-empty only while `_perform` is at work further up the stack.
    queue: deque[Instruction] = field(default_factory=deque)
    performing: bool = False


class GroupCoordinator:
    def __init__(
        self,
        offsets_log: OffsetsLog,
        settings: CoordinatorSettings,
        partition_exists: Callable[[str, int], bool],
        wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._offsets_log = offsets_log
        self._settings = settings
        self._limits = GroupLimits(
            initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms, size_max=settings.group_size_max
        )
        self._partition_exists = partition_exists
        self._now_ms = wall_clock_ms
        self.groups: dict[str, HostedGroup] = {}
        #: Partitions whose records are still being read.
        self._loading: set[int] = set()
        self._stopping = False
        self._next_request = 1
        self._waiting: dict[int, asyncio.Future[AnswerValue]] = {}
        self._loop = asyncio.get_running_loop()
        self._timers: Timers[tuple[str, Timer]] = Timers(self._loop, self._on_timer)
        self._tasks: list[asyncio.Task[None]] = []
        #: Why some groups cannot be served; None when all can, or will be.
        self.fault: str | None = None

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self) -> asyncio.Task[None]:
        """Begins to load; the returned task ends when everything is, or has failed."""
        logs = self._offsets_log.to_load()
        self._loading = {each.partition for each in logs}
        loading = self._loop.create_task(self._load(logs), name="load groups")
        self._tasks = [loading, self._loop.create_task(self._expire_for_ever(), name="expire offsets")]
        return loading

    async def _load(self, logs: Sequence[PartitionLog]) -> None:
        for each in logs:
            try:
                loaded = await load(each)
            except LogError as error:
                # Its groups stay in COORDINATOR_LOAD_IN_PROGRESS: better than to serve them without their offsets.
                self.fault = f"cannot load partition {each.partition} of {OFFSETS_TOPIC}: {error}"
                log.error("cannot load groups", partition=each.partition, reason=str(error))
                continue
            self._install(each.partition, loaded)
            self._loading.discard(each.partition)
        if logs:
            log.info("groups loaded", groups=len(self.groups), partitions=len(logs))

    def _install(self, partition: int, loaded: LoadedPartition) -> None:
        for group_id in loaded.groups.keys() | loaded.offsets.keys():
            stored = loaded.groups.get(group_id)
            if stored is None:
                stored = StoredGroup(
                    protocol_type="", generation_id=0, protocol_name=None, leader=None, state_timestamp_ms=-1
                )
            machine, instructions = Group.restore(group_id, stored, self._limits, self._now_ms())
            hosted = HostedGroup(machine, partition, loaded.offsets.get(group_id, {}))
            self.groups[group_id] = hosted
            self._perform(hosted, instructions)

    def is_loading(self) -> bool:
        return bool(self._loading)

    async def stop(self) -> None:
        """Answers everything parked: its clients look for their coordinator again, and find it after the restart."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._timers.close()
        parked = [future for future in self._waiting.values() if not future.done()]
        for future in parked:
            future.set_exception(_Stopping())
        if parked:
            log.info("answered parked group calls", calls=len(parked))

    # --- calls ----------------------------------------------------------------------------------------------------

    async def join(self, group_id: str, join: Join) -> JoinAnswer:
        """Parked until the rebalance ends."""
        error = self._group_fault(group_id) or join_fault(join, self._settings)
        hosted = None if error else self.groups.get(group_id)
        if not error and hosted is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID if join.member_id else self._room_fault()
        if error:
            return JoinAnswer(error=error, member_id=join.member_id)
        hosted = hosted or self._host(group_id)
        prefix = join.instance_id if join.instance_id is not None else join.client_id
        join.new_member_id = f"{prefix}-{uuid.uuid4()}"
        try:
            return await self._ask(hosted, join, JoinAnswer)
        except _Stopping:
            return JoinAnswer(error=ErrorCode.NOT_COORDINATOR, member_id=join.member_id)

    async def sync(self, group_id: str, sync: Sync) -> SyncAnswer:
        """Parked until the leader's assignment is durable."""
        error = self._group_fault(group_id)
        hosted = self.groups.get(group_id)
        if error or hosted is None:
            return SyncAnswer(error=error or ErrorCode.UNKNOWN_MEMBER_ID)
        try:
            return await self._ask(hosted, sync, SyncAnswer)
        except _Stopping:
            return SyncAnswer(error=ErrorCode.NOT_COORDINATOR)

    async def heartbeat(self, group_id: str, heartbeat: Heartbeat) -> ErrorCode:
        error = self._group_fault(group_id)
        hosted = self.groups.get(group_id)
        if error or hosted is None:
            return error or ErrorCode.UNKNOWN_MEMBER_ID
        return (await self._ask(hosted, heartbeat, ErrorAnswer)).error

    async def leave(self, group_id: str, leave: Leave) -> LeaveAnswer:
        error = self._group_fault(group_id)
        if error:
            return LeaveAnswer(error, ())
        hosted = self.groups.get(group_id)
        if hosted is None:
            return LeaveAnswer(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leave.members))
        return await self._ask(hosted, leave, LeaveAnswer)

    async def commit(
        self,
        group_id: str,
        commit: Commit,
        offsets: Sequence[NewOffset],
        *,
        retention_time_ms: int = -1,
        group_not_found: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
    ) -> list[ErrorCode]:
        """One code per offset, in order, once what was accepted is durable. All of them are one batch."""
        error = self._group_fault(group_id, empty_allowed=True)
        hosted = self.groups.get(group_id)
        if not error and hosted is None:
            error = group_not_found if commit.generation_id >= 0 else self._room_fault()
        if error:
            return [error] * len(offsets)
        hosted = hosted or self._host(group_id)
        checked = await self._ask(hosted, commit, ErrorAnswer)
        if checked.error:
            self._forget_if_unused(hosted)
            return [checked.error] * len(offsets)
        now_ms = self._now_ms()
        expire_ms = now_ms + retention_time_ms if retention_time_ms >= 0 else -1
        errors = [self._offset_fault(each) for each in offsets]
        accepted = {
            (each.topic, each.partition): CommittedOffset(
                each.offset, each.leader_epoch, each.metadata or "", now_ms, expire_ms
            )
            for each, fault in zip(offsets, errors, strict=True)
            if not fault
        }
        if not accepted:
            self._forget_if_unused(hosted)
            return errors
        outcome = commit_error(await self._write_offsets(hosted, accepted))
        return [fault or outcome for fault in errors]

    def fetch(
        self, group_id: str, wanted: Sequence[TopicPartition] | None
    ) -> tuple[ErrorCode, list[tuple[TopicPartition, CommittedOffset | None]]]:
        """Committed offsets in the order wanted; all of the group's, sorted, for None."""
        error = self._group_fault(group_id, empty_allowed=True)
        if error:
            return error, []
        hosted = self.groups.get(group_id)
        offsets = {} if hosted is None else hosted.offsets
        keys = sorted(offsets) if wanted is None else wanted
        return ErrorCode.NONE, [(key, offsets.get(key)) for key in keys]

    def find(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        error = self._group_fault(group_id, empty_allowed=True)
        hosted = None if error else self.groups.get(group_id)
        return error, None if hosted is None else hosted.machine

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: so are its committed offsets."""
        for hosted in self.groups.values():
            self._delete_offsets(hosted, [key for key in hosted.offsets if key[0] == topic])

    # --- checks ---------------------------------------------------------------------------------------------------

    def _group_fault(self, group_id: str, *, empty_allowed: bool = False) -> ErrorCode:
        if self._stopping:
            return ErrorCode.NOT_COORDINATOR
        if error := group_id_fault(group_id, empty_allowed=empty_allowed):
            return error
        if self._loading and self._offsets_log.partition_of(group_id) in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def _room_fault(self) -> ErrorCode:
        if len(self.groups) < self._settings.groups_max:
            return ErrorCode.NONE
        log.warning("too many groups", groups=len(self.groups))
        return ErrorCode.POLICY_VIOLATION

    def _offset_fault(self, offset: NewOffset) -> ErrorCode:
        if error := metadata_fault(offset.metadata, self._settings):
            return error
        if not self._partition_exists(offset.topic, offset.partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    # --- performing -----------------------------------------------------------------------------------------------

    def _host(self, group_id: str) -> HostedGroup:
        machine = Group(group_id, self._limits, self._now_ms())
        hosted = self.groups[group_id] = HostedGroup(machine, self._offsets_log.partition_of(group_id))
        return hosted

    async def _ask(
        self, hosted: HostedGroup, event: Join | Sync | Heartbeat | Leave | Commit, kind: type[AnswerT]
    ) -> AnswerT:
        request = event.request = self._next_request
        self._next_request += 1
        future: asyncio.Future[AnswerValue] = self._loop.create_future()
        self._waiting[request] = future
        try:
            self._handle(hosted, event)
            answer = await future
        finally:
            del self._waiting[request]
        if not isinstance(answer, kind):
            raise TypeError(f"{type(event).__name__} was answered {type(answer).__name__}")
        return answer

    def _handle(self, hosted: HostedGroup, event: Event) -> None:
        self._perform(hosted, hosted.machine.handle(event, self._now_ms()))
        if not isinstance(event, Commit):
            self._forget_if_unused(hosted)

    def _perform(self, hosted: HostedGroup, instructions: Iterable[Instruction]) -> None:
        """In order. What an instruction leads to at once (a write that fails) is performed after all of these."""
        hosted.queue.extend(instructions)
        if hosted.performing:
            return
        hosted.performing = True
        try:
            while hosted.queue:
                self._perform_one(hosted, hosted.queue.popleft())
        finally:
            hosted.performing = False

    def _perform_one(self, hosted: HostedGroup, instruction: Instruction) -> None:
        match instruction:
            case Answer(request, value):
                future = self._waiting.get(request)
                if future is not None and not future.done():
                    future.set_result(value)
            case SetTimer(timer, delay_ms):
                if not self._stopping:
                    self._timers.set((hosted.machine.group_id, timer), delay_ms)
            case CancelTimer(timer):
                self._timers.cancel((hosted.machine.group_id, timer))
            case Store(write, group):
                records: list[RecordPair] = [(encode_group_key(hosted.machine.group_id), encode_group_value(group))]
                self._offsets_log.write(
                    hosted.partition, records, self._now_ms(), partial(self._on_stored, hosted, write)
                )

    def _on_stored(self, hosted: HostedGroup, write: int, code: int) -> None:
        self._handle(hosted, Stored(write, group_error(code)))

    def _on_timer(self, key: tuple[str, Timer]) -> None:
        group_id, timer = key
        hosted = self.groups.get(group_id)
        if hosted is not None:
            self._handle(hosted, TimerFired(timer))

    def _write_offsets(
        self, hosted: HostedGroup, accepted: dict[TopicPartition, CommittedOffset]
    ) -> asyncio.Future[int]:
        """Appends the commits as one batch; they become visible, and the future done, when they are durable."""
        group_id = hosted.machine.group_id
        records: list[RecordPair] = [
            (encode_offset_key(OffsetKey(group_id, *key)), encode_offset_value(value))
            for key, value in accepted.items()
        ]
        future: asyncio.Future[int] = self._loop.create_future()
        hosted.pending_commits += 1

        def done(code: int) -> None:
            hosted.pending_commits -= 1
            if not code:
                hosted.offsets.update(accepted)
            self._forget_if_unused(hosted)
            if not future.done():
                future.set_result(code)

        self._offsets_log.write(hosted.partition, records, self._now_ms(), done)
        return future

    # --- forgetting -----------------------------------------------------------------------------------------------

    def _forget_if_unused(self, hosted: HostedGroup) -> None:
        """A group that never completed a rebalance and holds no offsets left nothing in the log either."""
        machine = hosted.machine
        if machine.generation_id == 0 and machine.is_idle() and not hosted.offsets and not hosted.pending_commits:
            self._retire(hosted)

    def _retire(self, hosted: HostedGroup) -> None:
        if self.groups.get(hosted.machine.group_id) is hosted:
            del self.groups[hosted.machine.group_id]
        self._perform(hosted, hosted.machine.handle(Retire(), self._now_ms()))

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.retention_check_interval_ms / 1000)
            try:
                self.expire()
            except Exception:
                log.exception("expiring offsets failed")

    def expire(self) -> None:
        """Forgets offsets that are due, and empty groups that hold none."""
        now_ms, retention_ms = self._now_ms(), self._settings.offsets_retention_ms
        for hosted in list(self.groups.values()):
            machine = hosted.machine
            due = expired(machine, hosted.offsets, retention_ms, now_ms)
            self._delete_offsets(hosted, due)
            if not hosted.offsets and not hosted.pending_commits and machine.is_idle():
                if machine.generation_id > 0:
                    self._delete(hosted, [encode_group_key(machine.group_id)])
                self._retire(hosted)
            if due:
                log.info("expired committed offsets", group=machine.group_id, offsets=len(due))

    def _delete_offsets(self, hosted: HostedGroup, keys: Sequence[TopicPartition]) -> None:
        if keys:
            for key in keys:
                del hosted.offsets[key]
            self._delete(hosted, [encode_offset_key(OffsetKey(hosted.machine.group_id, *key)) for key in keys])

    def _delete(self, hosted: HostedGroup, keys: Sequence[bytes]) -> None:
        """Writes tombstones. If that fails the records come back at the next start, and expire again."""
        self._offsets_log.write(hosted.partition, [(key, None) for key in keys], self._now_ms(), lambda _: None)

    def counts(self) -> dict[GroupState, int]:
        """Groups by state."""
        counts = dict.fromkeys(GroupState, 0)
        for hosted in list(self.groups.values()):  # a copy: metrics are collected by another thread
            counts[hosted.machine.state] += 1
        return counts


class _Stopping(Exception):  # noqa: N818
    """Ends the wait of a parked call when the service stops."""
