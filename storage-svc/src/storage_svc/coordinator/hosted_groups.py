"""The groups this broker hosts; performs what their state machines ask for: timers, answers, records in the log.

An event goes into a group's machine by `tell` or `ask`; the instructions that come out are performed in order, before
anything else happens to that group. A group that is empty, never completed a rebalance and holds no offsets left
nothing in the log, and is forgotten at once; one that did is deleted there, too, when its last offset has expired.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from protocol_lib.internal.group_metadata import GroupMetadataValue
from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.coordinator.committed_offsets import CommittedOffsets
from storage_svc.coordinator.group import Group, GroupLimits
from storage_svc.coordinator.group_events import (
    Answer,
    CancelTimer,
    Commit,
    Event,
    Instruction,
    Retire,
    SetTimer,
    Store,
    Stored,
    Timer,
    TimerFired,
)
from storage_svc.coordinator.group_machine import handle
from storage_svc.coordinator.offset_expiration import TopicPartition
from storage_svc.coordinator.offsets import (
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    group_error,
)
from storage_svc.coordinator.offsets_log import LoadedPartition, OffsetsLog
from storage_svc.coordinator.timers import Timers
from storage_svc.coordinator.waiting_calls import AnswerT, Call, WaitingCalls


@dataclass(slots=True)
class HostedGroup:
    """A group and what it does not keep itself."""

    group: Group
    partition: int
    offsets: CommittedOffsets
    #: Instructions not performed yet; non-empty only while `_perform` is at work further up the stack.
    queue: deque[Instruction] = field(default_factory=deque)
    performing: bool = False


class HostedGroups:
    """Owner: the coordinator, on the event loop."""

    def __init__(self, offsets_log: OffsetsLog, limits: GroupLimits, wall_clock_ms: Callable[[], int]) -> None:
        self._offsets_log = offsets_log
        self._limits = limits
        self._now_ms = wall_clock_ms
        self._loop = asyncio.get_running_loop()
        self._calls = WaitingCalls(self._loop)
        self._timers: Timers[tuple[str, Timer]] = Timers(self._loop, self._on_timer)
        self._closed = False
        self.by_id: dict[str, HostedGroup] = {}

    def host(self, group_id: str) -> HostedGroup:
        """The group; a new one if it is not there."""
        hosted = self.by_id.get(group_id)
        if hosted is None:
            group = Group(group_id, self._limits, self._now_ms())
            hosted = HostedGroup(group, self._offsets_log.partition_of(group_id), CommittedOffsets({}))
            self.by_id[group_id] = hosted
        return hosted

    def install(self, partition: int, loaded: LoadedPartition) -> None:
        """Hosts what an offsets partition holds."""
        for group_id in loaded.groups.keys() | loaded.offsets.keys():
            stored = loaded.groups.get(group_id)
            if stored is None:
                stored = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=())
            group, instructions = Group.restore(group_id, stored, self._limits, self._now_ms())
            hosted = HostedGroup(group, partition, CommittedOffsets(loaded.offsets.get(group_id, {})))
            self.by_id[group_id] = hosted
            self._perform(hosted, instructions)

    def close(self) -> int:
        """No timer fires any more, and every parked call ends; how many these were."""
        self._closed = True
        self._timers.close()
        return self._calls.end()

    # --- events ---------------------------------------------------------------------------------------------------

    async def ask(self, hosted: HostedGroup, call: Call, kind: type[AnswerT]) -> AnswerT:
        """The group's answer to a call; only joins and syncs wait for it.

        Raises:
            CallsEndedError: `close` was called meanwhile.
        """
        return await self._calls.ask(call, kind, partial(self.tell, hosted))

    def tell(self, hosted: HostedGroup, event: Event) -> None:
        self._perform(hosted, handle(hosted.group, event, self._now_ms()))
        if not isinstance(event, Commit):  # what is allowed by the answer follows
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
            case Answer(request, value):
                self._calls.answer(request, value)
            case SetTimer(timer, delay_ms):
                if not self._closed:
                    self._timers.set((group_id, timer), delay_ms)
            case CancelTimer(timer):
                self._timers.cancel((group_id, timer))
            case Store(write, stored):
                record = encode_group_key(group_id), encode_group_value(stored)
                self._offsets_log.write(
                    hosted.partition, [record], self._now_ms(), partial(self._on_stored, hosted, write)
                )

    def _on_stored(self, hosted: HostedGroup, write: int, code: int) -> None:
        self.tell(hosted, Stored(write, group_error(code)))

    def _on_timer(self, key: tuple[str, Timer]) -> None:
        group_id, timer = key
        hosted = self.by_id.get(group_id)
        if hosted is not None:
            self.tell(hosted, TimerFired(timer))

    # --- offsets --------------------------------------------------------------------------------------------------

    async def write_offsets(self, hosted: HostedGroup, offsets: dict[TopicPartition, OffsetCommitValue]) -> int:
        """Appends them as one batch; 0 once they are durable, and visible, or Kafka's code of what went wrong."""
        group_id = hosted.group.group_id
        records = [(encode_offset_key(group_id, *key), encode_offset_value(value)) for key, value in offsets.items()]
        future: asyncio.Future[int] = self._loop.create_future()
        number = hosted.offsets.begin(offsets)

        def done(code: int) -> None:
            hosted.offsets.end(number, is_durable=code == 0)
            self.forget_if_unused(hosted)
            if not future.done():
                future.set_result(code)

        self._offsets_log.write(hosted.partition, records, self._now_ms(), done)
        return await future

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
        if group.generation_id > 0:
            records.append(encode_group_key(group.group_id))
        if records:
            self._offsets_log.delete(hosted.partition, records, self._now_ms(), done)
        else:
            done(0)
        if self.by_id.get(group.group_id) is hosted:
            del self.by_id[group.group_id]
        self._perform(hosted, handle(group, Retire(), self._now_ms()))

    # --- forgetting -----------------------------------------------------------------------------------------------

    def forget_if_unused(self, hosted: HostedGroup) -> None:
        """Forgets a group of which the log holds nothing, if it holds nothing itself."""
        if hosted.group.generation_id == 0:
            self.delete_if_unused(hosted)

    def delete_if_unused(self, hosted: HostedGroup) -> None:
        """Forgets a group that holds nothing, in the log, too."""
        if hosted.group.is_idle() and not hosted.offsets:
            self.delete(hosted, lambda _: None)
