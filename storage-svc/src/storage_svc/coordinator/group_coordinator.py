"""The calls of groups of both protocols: join, sync, heartbeat, leave, delete. Committed offsets: `group_offsets`.

A group lives in the offsets partition its id hashes to. Partitions load one at a time at the start. Calls for a group
are answered COORDINATOR_LOAD_IN_PROGRESS until its partition is loaded. A client learns of a change only after its
record is durable.

Everything runs on one event loop, and every call decides synchronously before it waits: no lock is needed.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.coordinator.classic.events import (
    GroupState,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaver,
    Sync,
    SyncAnswer,
)
from storage_svc.coordinator.classic.group import GroupLimits
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroupState, Topics
from storage_svc.coordinator.consumer.member import JOIN_EPOCH
from storage_svc.coordinator.group_offsets import GroupOffsets
from storage_svc.coordinator.hosting.classic_host import ClassicHost
from storage_svc.coordinator.hosting.consumer_host import ConsumerHost
from storage_svc.coordinator.hosting.deleted_topics import DeletedTopics
from storage_svc.coordinator.hosting.group_loader import GroupLoader
from storage_svc.coordinator.hosting.hosted_group import AnyGroup
from storage_svc.coordinator.hosting.hosted_groups import HostedGroups
from storage_svc.coordinator.hosting.load_order import LoadOrder
from storage_svc.coordinator.hosting.repeatable_heartbeats import RepeatableHeartbeat
from storage_svc.coordinator.hosting.waiting_calls import CallsEndedError
from storage_svc.coordinator.limits import (
    CoordinatorSettings,
    group_id_fault,
    heartbeat_fault,
    join_fault,
)
from storage_svc.coordinator.machine.group_kind import GroupKind
from storage_svc.coordinator.machine.rebalance_reason import RebalanceReason
from storage_svc.coordinator.stored.offsets_log import OffsetsLog
from storage_svc.coordinator.stored.records import group_error
from storage_svc.coordinator.transactional_offsets import TransactionalOffsets
from storage_svc.transaction_ports import OngoingTransactions

log = service_logs.get(__name__)


class GroupCoordinator:
    def __init__(
        self,
        offsets_log: OffsetsLog,
        settings: CoordinatorSettings,
        partition_exists: Callable[[str, int], bool],
        topics: Topics,
        transactions: OngoingTransactions,
        # wall clock: handed on; each part that reads it says what for
        wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._offsets_log = offsets_log
        self._settings = settings
        limits = GroupLimits(
            initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms, size_max=settings.group_size_max
        )
        self._hosted = HostedGroups(
            offsets_log,
            limits,
            wall_clock_ms,
            settings.offsets_commit_timeout_ms,
            settings.pending_offsets_bytes_max,
        )
        self.topics = topics
        self._performer = self._hosted.performer
        self._consumer = ConsumerHost(self._hosted, topics, settings.consumer, limits, wall_clock_ms)
        ClassicHost(self._hosted, self._consumer.take_over, wall_clock_ms)
        self._deleted_topics = DeletedTopics(self._hosted, offsets_log, topics, wall_clock_ms)
        self.offsets = GroupOffsets(
            self._hosted,
            settings,
            topics,
            self._deleted_topics,
            partition_exists,
            wall_clock_ms,
            self._group_fault,
            self._room_fault,
            self._serves,
        )
        self.transactional_offsets = TransactionalOffsets(
            self._hosted,
            offsets_log,
            settings,
            topics,
            transactions,
            partition_exists,
            wall_clock_ms,
            self._group_fault,
            self._room_fault,
            self._partition_fault,
        )
        self._loading = GroupLoader(offsets_log, self._hosted, self._deleted_topics)
        self._partitions = self._loading.partitions
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def fault(self) -> str | None:
        """A reason why some groups cannot be served; None when all can, or will be."""
        return self._partitions.fault

    @property
    def groups(self) -> dict[str, AnyGroup]:
        return self._hosted.by_id

    @property
    def assignors(self) -> Sequence[str]:
        return self._settings.consumer.assignors

    def configure(self, group_id: str, own: Mapping[str, int]) -> None:
        """Let the group follow these configs, by Kafka's names. The group may be missing, and of either protocol."""
        self._consumer.configure(group_id, own)

    def set_assignment_interval(self, interval_ms: int) -> None:
        """Let consumer groups wait this long between two assignments, but for those with a config."""
        self._consumer.set_assignment_interval(interval_ms)

    def set_verification(self, *, verifies: bool) -> None:
        """Let transactional commits find their partition in the transaction, or not (before TxnOffsetCommit 5)."""
        self.transactional_offsets.verifies = verifies

    @property
    def pending_offsets_bytes(self) -> int:
        """Bytes of offsets that open transactions have committed."""
        return self._hosted.pending.used

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self, order: LoadOrder | None = None) -> asyncio.Task[None]:
        """Begin to load in an order shared with the transactions; the returned task ends when all is loaded, or
        failed."""
        loading = self._loading.start(order or LoadOrder())
        self._tasks = [
            loading,
            asyncio.create_task(self.offsets.expire_for_ever(), name="expire offsets"),
            asyncio.create_task(self._deleted_topics.run(), name="forget offsets of deleted topics"),
        ]
        return loading

    def is_loading(self) -> bool:
        return self._partitions.is_loading

    async def stop(self) -> None:
        """Answer everything parked: its clients look for their coordinator again, and find it after the restart."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if calls := self._performer.close():
            log.info("answered parked group calls", calls=calls)
        await self._consumer.close()
        await self._offsets_log.finish()

    # --- calls ----------------------------------------------------------------------------------------------------

    async def join(self, group_id: str, join: Join) -> JoinAnswer:
        """Join a group, and return its answer once the rebalance ends."""
        error = self._group_fault(group_id) or join_fault(join, self._settings)
        hosted = None if error else self.groups.get(group_id)
        if not error and hosted is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID if join.member_id else self._room_fault()
        if error:
            return JoinAnswer(error=error, member_id=join.member_id)
        hosted = hosted or self._hosted.host(group_id)
        if error := self._performer.machine_of(hosted).admit(hosted, join):
            return JoinAnswer(error=error, member_id=join.member_id)
        try:
            return await self._performer.ask(hosted, join, JoinAnswer)
        except CallsEndedError:
            return JoinAnswer(error=ErrorCode.NOT_COORDINATOR, member_id=join.member_id)
        except asyncio.CancelledError:
            if not join.member_id and join.instance_id is None:  # mutant: memberless-join-undone
                # A client that never got its id joins as another member; until its session ends this one would hold up
                # the rebalance, and be assigned partitions.
                self._performer.send(hosted, Leave(request=0, members=[Leaver(join.new_member_id)]))
            raise

    async def sync(self, group_id: str, sync: Sync) -> SyncAnswer:
        """Sync with a group, and return its answer once the leader's assignment is durable."""
        error = self._group_fault(group_id)
        hosted = self.groups.get(group_id)
        if error or hosted is None:
            return SyncAnswer(error=error or ErrorCode.UNKNOWN_MEMBER_ID)
        try:
            return await self._performer.ask(hosted, sync, SyncAnswer)
        except CallsEndedError:
            return SyncAnswer(error=ErrorCode.NOT_COORDINATOR)

    def heartbeat(
        self, group_id: str, heartbeat: Heartbeat, done: Callable[[ErrorCode], None]
    ) -> RepeatableHeartbeat | None:
        error = self._group_fault(group_id)
        hosted = self.groups.get(group_id)
        if error or hosted is None:
            done(error or ErrorCode.UNKNOWN_MEMBER_ID)
            return None
        return self._performer.machine_of(hosted).heartbeat(hosted, heartbeat, done, self._serves)

    def consumer_heartbeat(
        self,
        group_id: str,
        heartbeat: ConsumerHeartbeat,
        done: Callable[[HeartbeatAnswer], None],
        *,
        needs_member_id: bool,
        is_restricted: bool = False,
    ) -> RepeatableHeartbeat | None:
        """Handle a ConsumerGroupHeartbeat; `done` gets the answer once its contents are durable.

        Args:
            needs_member_id: the member has to have an id; else it is assigned one (before version 1).
            is_restricted: the client may not describe every topic; the answer may ask for `resolve_patterns`.
        """
        if fault := self._heartbeat_fault(group_id, heartbeat, needs_member_id=needs_member_id):
            done(fault)
            return None
        heartbeat.member_id = heartbeat.member_id or str(uuid.uuid4())  # not of a group: an event before it is handled
        return self._consumer.consumer_heartbeat(group_id, heartbeat, done, self._serves, is_restricted=is_restricted)

    def resolve_patterns(self, group_id: str, names: Iterable[str], version: int) -> None:
        """Match a consumer group's patterns, as of a version of the topics, with those of `names` that exist."""
        if not self._group_fault(group_id):
            self._consumer.resolve(group_id, names, version)

    def _heartbeat_fault(
        self, group_id: str, heartbeat: ConsumerHeartbeat, *, needs_member_id: bool
    ) -> HeartbeatAnswer | None:
        if self._stopping:
            return HeartbeatAnswer(error=ErrorCode.NOT_COORDINATOR)
        if fault := heartbeat_fault(heartbeat, self._settings.consumer, needs_member_id=needs_member_id):
            return fault
        if not group_id:
            return HeartbeatAnswer(error=ErrorCode.INVALID_REQUEST, message="GroupId can't be empty.")
        error = self._group_fault(group_id)
        if not error and heartbeat.member_epoch == JOIN_EPOCH and group_id not in self.groups:
            error = self._room_fault()
        return HeartbeatAnswer(error=error) if error else None

    async def leave(self, group_id: str, leave: Leave) -> LeaveAnswer:
        error = self._group_fault(group_id)
        if error:
            return LeaveAnswer(error, ())
        hosted = self.groups.get(group_id)
        if hosted is None:
            return LeaveAnswer(ErrorCode.NONE, (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leave.members))
        return await self._performer.ask(hosted, leave, LeaveAnswer)

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete an empty group with its offsets, and return NONE once that is durable. A group with members is
        NON_EMPTY_GROUP."""
        error = self._group_fault(group_id, empty_allowed=True)
        hosted = self.groups.get(group_id)
        if error or hosted is None:
            return error or ErrorCode.GROUP_ID_NOT_FOUND
        if not hosted.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._hosted.delete(hosted, gone.set_result)
        error = group_error(await asyncio.shield(gone))  # it is set without its caller, too
        if not error:
            log.info("group deleted", group=group_id)
        return error

    def find(self, group_id: str, *, empty_allowed: bool = True) -> tuple[ErrorCode, GroupKind | None]:
        error = self._group_fault(group_id, empty_allowed=empty_allowed)
        hosted = None if error else self.groups.get(group_id)
        return error, None if hosted is None else hosted.entity

    # --- checks ---------------------------------------------------------------------------------------------------

    def _serves(self, partition: int) -> bool:
        return not self._stopping and not (self._partitions and self._partitions.error(partition))

    def _group_fault(self, group_id: str, *, empty_allowed: bool = False) -> ErrorCode:
        if self._stopping:
            return ErrorCode.NOT_COORDINATOR
        if error := group_id_fault(group_id, empty_allowed=empty_allowed):
            return error
        return self._partitions.error(self._offsets_log.partition_of(group_id)) if self._partitions else ErrorCode.NONE

    def _partition_fault(self, partition: int) -> ErrorCode:
        return ErrorCode.NOT_COORDINATOR if self._stopping else self._partitions.error(partition)

    def _room_fault(self) -> ErrorCode:
        if len(self.groups) < self._settings.groups_max:
            return ErrorCode.NONE
        log.warning("too many groups", groups=len(self.groups))
        return ErrorCode.POLICY_VIOLATION

    def rebalances(self) -> dict[str, int]:
        """Return the number of rebalances since the start, by `RebalanceReason`."""
        return {reason.value: self._performer.rebalances[reason] for reason in RebalanceReason}

    def member_count(self) -> int:
        """Return the number of members of all groups."""
        return sum(len(hosted.entity.members) for hosted in list(self.groups.values()))

    def counts(self) -> dict[str, int]:
        """Return the number of groups by Kafka's name of their state."""
        counts = dict.fromkeys([state.value for states in (GroupState, ConsumerGroupState) for state in states], 0)
        for hosted in list(self.groups.values()):  # a copy: metrics are collected by another thread
            counts[hosted.entity.state.value] += 1
        return counts
