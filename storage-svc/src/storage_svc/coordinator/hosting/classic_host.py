"""The groups this broker hosts, of both protocols; performs what the classic ones' machine asks for: timers, answers,
records in the log. What consumer groups (KIP-848) ask for is performed by `hosted_consumer_groups`.

An event goes into a group's machine by `tell`, `ask` or `wait`; the instructions that come out are performed in order,
before anything else happens to that group. A group that is empty, never completed a rebalance and holds no offsets
left nothing in the log, and is forgotten at once; one that did is deleted there, too, when its last offset has expired.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataValue
from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.coordinator.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Answer,
    CancelTimer,
    Commit,
    ErrorAnswer,
    Event,
    GroupState,
    Heartbeat,
    Instruction,
    Retire,
    SetTimer,
    Store,
    Stored,
    Timer,
    TimerFired,
    session_timer,
)
from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.classic.machine import handle
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.consumer.records import encode
from storage_svc.coordinator.hosting.commit_deadlines import CommitDeadlines
from storage_svc.coordinator.hosting.repeatable_heartbeats import (
    ClassicRepeatableHeartbeat,
    RepeatableHeartbeat,
    Serves,
)
from storage_svc.coordinator.hosting.timers import Deadline, Timers
from storage_svc.coordinator.hosting.waiting_calls import AnswerT, Call, WaitingCalls
from storage_svc.coordinator.stored.committed_offsets import CommittedOffsets
from storage_svc.coordinator.stored.offsets_log import LoadedPartition, OffsetsLog
from storage_svc.coordinator.stored.records import (
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    group_error,
)
from storage_svc.topic_partition import TopicPartition


@dataclass(slots=True)
class HostedGroup:
    """A group and what it does not keep itself."""

    group: Group | ConsumerGroup
    partition: int
    offsets: CommittedOffsets
    #: Instructions not performed yet; non-empty only while `_perform` is at work further up the stack.
    queue: deque[Instruction] = field(default_factory=deque)
    performing: bool = False
    #: Answers to heartbeats that somebody gives without asking, and how to tell that they hold no more.
    promised: dict[RepeatableHeartbeat, Callable[[], None]] = field(default_factory=dict)

    def changed(self) -> None:
        """Something has happened to the group, or to whether it is served: promises that do not hold end."""
        if self.promised:
            for repeat in [each for each in self.promised if not each.holds()]:
                self.promised.pop(repeat)()

    @property
    def is_empty(self) -> bool:
        """It has no members; a classic one may wait for some."""
        return not self.group.members

    @property
    def is_idle(self) -> bool:
        """Nothing would be lost by forgetting the group (but for its committed offsets)."""
        return self.group.is_idle() if isinstance(self.group, Group) else self.is_empty


class HostedGroups:
    """Owner: the coordinator, on the event loop."""

    def __init__(
        self,
        offsets_log: OffsetsLog,
        limits: GroupLimits,
        wall_clock_ms: Callable[[], int],
        offsets_commit_timeout_ms: int,
    ) -> None:
        self._offsets_log = offsets_log
        self._limits = limits
        self._now_ms = wall_clock_ms
        self._loop = asyncio.get_running_loop()
        self._deadlines = CommitDeadlines(self._loop, offsets_commit_timeout_ms)
        self._calls = WaitingCalls(self._loop)
        self._timers: Timers[tuple[str, Timer]] = Timers(self._loop, self._on_timer)
        self._closed = False
        self.by_id: dict[str, HostedGroup] = {}

    def host(self, group_id: str) -> HostedGroup:
        """The group; a new classic one if it is not there."""
        hosted = self.by_id.get(group_id)
        if hosted is None:
            hosted = self.by_id[group_id] = self.made(Group(group_id, self._limits, self._now_ms()))
        return hosted

    def made(self, group: Group | ConsumerGroup) -> HostedGroup:
        """A group with a place in the log, not hosted yet."""
        return HostedGroup(group, self._offsets_log.partition_of(group.group_id), CommittedOffsets({}))

    def install(self, partition: int, loaded: LoadedPartition) -> None:
        """Hosts what an offsets partition holds."""
        consumer_groups = loaded.consumer_groups
        for group_id, found in consumer_groups.items():
            offsets = CommittedOffsets(loaded.offsets.get(group_id, {}))
            self.by_id[group_id] = HostedGroup(ConsumerGroup.restore(group_id, found), partition, offsets)
        for group_id in (loaded.groups.keys() | loaded.offsets.keys()) - consumer_groups.keys():
            stored = loaded.groups.get(group_id)
            if stored is None:
                stored = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=())
            group, instructions = Group.restore(group_id, stored, self._limits, self._now_ms())
            hosted = HostedGroup(group, partition, CommittedOffsets(loaded.offsets.get(group_id, {})))
            self.by_id[group_id] = hosted
            self._perform(hosted, instructions)

    def unload(self, partition: int) -> int:
        """Forgets the groups of an offsets partition; how many these were. Whatever is parked is told to look for its
        coordinator."""
        gone = [hosted for hosted in self.by_id.values() if hosted.partition == partition]
        for hosted in gone:
            del self.by_id[hosted.group.group_id]
            if isinstance(hosted.group, Group):
                self.end_classic(hosted, hosted.group, ErrorCode.NOT_COORDINATOR)
        return len(gone)

    def close(self) -> int:
        """No timer fires any more, and every parked call ends; how many these were."""
        self._closed = True
        self._timers.close()
        return self._calls.end()

    # --- events ---------------------------------------------------------------------------------------------------

    async def wait(self, hosted: HostedGroup, call: Call, kind: type[AnswerT]) -> AnswerT:
        """The group's answer to a call; only joins and syncs wait for it.

        Raises:
            CallsEndedError: `close` was called meanwhile.
        """
        return await self._calls.ask(call, kind, partial(self.tell, hosted))

    def ask(self, hosted: HostedGroup, call: Heartbeat | Commit) -> ErrorCode:
        """The group's answer to a call that is never parked: the last of its instructions."""
        instructions = handle(_classic(hosted), call, self._now_ms())
        answer = instructions.pop()
        assert isinstance(answer, Answer), "heartbeats and commits are answered at once"
        assert isinstance(answer.value, ErrorAnswer)
        if instructions:
            self._perform(hosted, instructions)
        if not isinstance(call, Commit):  # what is allowed by the answer follows
            self.forget_if_unused(hosted)
        return answer.value.error

    def session(self, hosted: HostedGroup, member_id: str) -> Deadline | None:
        """Of a classic group's member; runs until the member is gone."""
        return self._timers.running((hosted.group.group_id, session_timer(member_id)))

    def start_session(self, group: Group, member_id: str, session: Deadline) -> bool:
        """Again. False, and nothing has changed, when it does not run any more."""
        return self._timers.push_back(session, group.members[member_id].session_timeout_ms)

    def repeat(self, hosted: HostedGroup, heartbeat: Heartbeat, serves: Serves) -> ClassicRepeatableHeartbeat | None:
        """Of a heartbeat that was just answered; None unless saying it again would be answered NONE."""
        group = _classic(hosted)
        if group.state is not GroupState.STABLE:
            return None
        if group.call_error(heartbeat.member_id, heartbeat.instance_id, heartbeat.generation_id):
            return None
        session = self.session(hosted, heartbeat.member_id)
        if session is None:
            return None
        return ClassicRepeatableHeartbeat(hosted, group, heartbeat, self._timers, session, serves)

    def tell(self, hosted: HostedGroup, event: Event) -> None:
        # A join is answered when others come or time passes: what it leads to is done before anybody is told.
        instructions = handle(_classic(hosted), event, self._now_ms())
        hosted.changed()
        self._perform(hosted, instructions)
        self.forget_if_unused(hosted)

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
        group_id = hosted.group.group_id
        match instruction:
            case SetTimer(timer, delay_ms):  # of every heartbeat
                if not self._closed:
                    self._timers.set((group_id, timer), delay_ms)
            case Answer(request, value):
                self._calls.answer(request, value)
            case CancelTimer(timer):
                self._timers.cancel((group_id, timer))
            case Store(write, stored):
                record = encode_group_key(group_id), encode_group_value(stored)
                self._offsets_log.write(
                    hosted.partition, [record], self._now_ms(), partial(self._on_stored, hosted, hosted.group, write)
                )

    def _on_stored(self, hosted: HostedGroup, group: Group | ConsumerGroup, write: int, code: int) -> None:
        if hosted.group is group:  # or it has turned into a consumer group, and nobody waits any more
            self.tell(hosted, Stored(write, group_error(code)))

    def _on_timer(self, key: tuple[str, Timer]) -> None:
        group_id, timer = key
        hosted = self.by_id.get(group_id)
        if hosted is not None and isinstance(hosted.group, Group):
            self.tell(hosted, TimerFired(timer))

    # --- migration ------------------------------------------------------------------------------------------------

    def end_classic(
        self, hosted: HostedGroup, group: Group, error: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS
    ) -> None:
        """The classic group goes: whatever is parked is told to join again, and no timer of it fires."""
        for member in group.members:
            group.refuse_parked(member, error)
            group.cancel_timer(session_timer(member.member_id))
        for member_id in group.members.pending:
            group.cancel_timer(session_timer(member_id))
        group.cancel_timer(JOIN_TIMER)
        group.cancel_timer(SYNC_TIMER)
        self._perform(hosted, group.take_out())

    def begin_classic(self, hosted: HostedGroup, group: Group, *, rebalance: bool) -> None:
        """A group that was a consumer group goes on as a classic one."""
        hosted.group = group
        for member in group.members:
            group.start_session(member)
        if rebalance:
            group.prepare_rebalance()
        hosted.changed()
        self._perform(hosted, group.take_out())

    def renew_classic(self, hosted: HostedGroup, consumer: ConsumerGroup) -> None:
        """An empty consumer group is forgotten, its offsets are not: a classic group of the name begins."""
        keys = [key for key, _ in map(encode, consumer.tombstones())]
        self._offsets_log.delete(hosted.partition, keys, self._now_ms())
        hosted.group = Group(consumer.group_id, self._limits, self._now_ms())

    # --- offsets --------------------------------------------------------------------------------------------------

    def write_offsets(
        self,
        hosted: HostedGroup,
        offsets: dict[TopicPartition, OffsetCommitValue],
        tails: Sequence[bytes],
        now_ms: int,
        done: Callable[[int], None],
    ) -> None:
        """Appends them in one batch; `done` gets 0 once they are durable, and visible, or Kafka's code of what went
        wrong. A disk that does not answer in time is 7 REQUEST_TIMED_OUT; they become visible when it does answer.

        Args:
            tails: their records (`offsets_log.OffsetsLog.gather`).
        """
        number, answer = hosted.offsets.begin(offsets), self._deadlines.watch(done)

        def written(code: int) -> None:
            hosted.offsets.end(number, is_durable=code == 0)
            if not hosted.offsets.durable:
                self.forget_if_unused(hosted)
            answer(code)

        self._offsets_log.gather(hosted.partition, tails, now_ms, written)

    def delete_offsets(
        self, hosted: HostedGroup, keys: Sequence[TopicPartition], done: Callable[[int], None] = lambda _: None
    ) -> None:
        """Forgets them at once; `done` gets 0 when the log has, too, or Kafka's code of what went wrong."""
        if not keys:
            done(0)
            return
        hosted.offsets.forget(keys)
        group_id = hosted.group.group_id
        records = [encode_offset_key(group_id, *key) for key in keys]
        self._offsets_log.delete(hosted.partition, records, self._now_ms(), done)

    def delete(self, hosted: HostedGroup, done: Callable[[int], None]) -> None:
        """Forgets an empty group with its offsets at once; `done` as for `delete_offsets`."""
        group = hosted.group
        keys = hosted.offsets.keys()
        hosted.offsets.forget(keys)
        records = [encode_offset_key(group.group_id, *key) for key in keys]
        if isinstance(group, ConsumerGroup):
            records.extend(key for key, _ in map(encode, group.tombstones()))
        elif group.generation_id > 0:
            records.append(encode_group_key(group.group_id))
        if records:
            self._offsets_log.delete(hosted.partition, records, self._now_ms(), done)
        else:
            done(0)
        if self.by_id.get(group.group_id) is hosted:
            del self.by_id[group.group_id]
        if isinstance(group, Group):
            self._perform(hosted, handle(group, Retire(), self._now_ms()))

    # --- forgetting -----------------------------------------------------------------------------------------------

    def forget_if_unused(self, hosted: HostedGroup) -> None:
        """Forgets a group of which the log holds nothing, if it holds nothing itself."""
        if isinstance(hosted.group, Group) and hosted.group.generation_id == 0:
            self.delete_if_unused(hosted)

    def delete_if_unused(self, hosted: HostedGroup) -> None:
        """Forgets a group that holds nothing, in the log, too."""
        if hosted.is_idle and not hosted.offsets:
            self.delete(hosted, lambda _: None)


def _classic(hosted: HostedGroup) -> Group:
    assert isinstance(hosted.group, Group), "a consumer group has a machine of its own"
    return hosted.group
