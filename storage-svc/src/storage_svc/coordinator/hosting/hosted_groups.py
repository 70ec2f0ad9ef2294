"""The groups that this broker hosts, of both protocols, with their committed offsets.

A group that is empty, never completed a rebalance and holds no offsets left nothing in the log, and is forgotten at
once. One that did is deleted from the log, too, when its last offset has expired.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.group_metadata import GroupMetadataValue
from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.coordinator.classic.group import Group, GroupLimits
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.hosting.commit_deadlines import CommitDeadlines
from storage_svc.coordinator.hosting.group_machine import GroupMachine
from storage_svc.coordinator.hosting.hosted_group import AnyGroup, HostedGroup
from storage_svc.coordinator.hosting.performer import Performer
from storage_svc.coordinator.machine.events import Installed, Removed
from storage_svc.coordinator.machine.group_kind import GroupKind
from storage_svc.coordinator.machine.outcome import Record
from storage_svc.coordinator.stored.committed_offsets import CommittedOffsets
from storage_svc.coordinator.stored.offsets_log import LoadedPartition, OffsetsLog
from storage_svc.coordinator.stored.open_commits import OpenCommits, PendingMemory
from storage_svc.coordinator.stored.records import encode, encode_offset_key, encode_offset_value
from storage_svc.topic_partition import TopicPartition
from storage_svc.transaction_ports import Marker

#: Groups and members that one turn of the event loop hosts or forgets: 3 ms.
TOGETHER_MAX: Final = 200
_NO_GROUP = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=())


class HostedGroups:
    """Owner: the coordinator, on the event loop."""

    def __init__(
        self,
        offsets_log: OffsetsLog,
        limits: GroupLimits,
        wall_clock_ms: Callable[[], int],
        offsets_commit_timeout_ms: int,
        pending_bytes_max: int,
    ) -> None:
        """Build it; open transactions may hold `pending_bytes_max` bytes of offsets."""
        self._offsets_log = offsets_log
        self._limits = limits
        self._now_ms = wall_clock_ms
        self._loop = asyncio.get_running_loop()
        self._deadlines = CommitDeadlines(self._loop, offsets_commit_timeout_ms)
        self.by_id: dict[str, AnyGroup] = {}
        #: The offsets of open transactions, by partition of the offsets topic.
        self.pending = PendingMemory(pending_bytes_max)
        self._opened: defaultdict[int, OpenCommits] = defaultdict(partial(OpenCommits, self.pending))
        #: The machine of each kind of group, by its `type_name`.
        self.machines: dict[str, GroupMachine] = {}
        self.performer: Performer[AnyGroup, GroupMachine] = Performer(self.by_id, self._machine_of, self._append)

    def _machine_of(self, hosted: AnyGroup) -> GroupMachine:
        return self.machines[hosted.entity.type_name]

    def _append(self, hosted: AnyGroup, records: Sequence[Record], ended: Callable[[int], None]) -> None:
        encoded = [encode(record) for record in records]
        # A large group that changes its protocol, or whose members all get another target, has many records.
        # wall clock: timestamps of records
        self._offsets_log.write(hosted.partition, encoded, self._now_ms(), ended, may_compress=len(encoded) > 1)

    def host(self, group_id: str) -> AnyGroup:
        """Return the group; a new classic one if it is not there."""
        hosted = self.by_id.get(group_id)
        if hosted is None:
            # wall clock: the time of a group's state, which is stored; timestamps of tombstones
            hosted = self.by_id[group_id] = self.locate(Group(group_id, self._limits, self._now_ms()))
        return hosted

    def locate(self, group: GroupKind) -> AnyGroup:
        """Return a group with its place in the log; it is not hosted yet."""
        partition = self._offsets_log.partition_of(group.group_id)
        return HostedGroup(group, partition, CommittedOffsets({}, group.group_id, self._opened[partition]))

    async def install(self, partition: int, loaded: LoadedPartition, is_lost: Callable[[], bool]) -> None:
        """Host the groups of an offsets partition, some in a turn; each is whole from the beginning.

        Nobody may call for a group of the partition until this is done. No more are hosted once `is_lost`.
        """
        if is_lost():
            return
        opened = self._opened[partition] = loaded.opened
        opened.count_in(self.pending)
        work = 0
        for group_id in dict.fromkeys(chain(loaded.consumer_groups, loaded.groups, loaded.offsets, opened.groups)):
            if work >= TOGETHER_MAX:
                work = 0
                await asyncio.sleep(0)
                if is_lost():  # mutant: lost-partition-not-hosted
                    return
            group = self._restored(group_id, loaded)
            work += 1 + len(group.members)
            offsets = CommittedOffsets(loaded.offsets.get(group_id, {}), group_id, opened)
            hosted = self.by_id[group_id] = HostedGroup(group, partition, offsets)
            self.performer.send(hosted, Installed())

    def _restored(self, group_id: str, loaded: LoadedPartition) -> GroupKind:
        if (found := loaded.consumer_groups.get(group_id)) is not None:
            return ConsumerGroup.restore(group_id, found)
        # wall clock: the time of a group's state, which is stored
        return Group.restore(group_id, loaded.groups.get(group_id, _NO_GROUP), self._limits, self._now_ms())

    def unload(self, partition: int) -> int:
        """Begin to forget the groups of an offsets partition that is lost, some in a turn; return their number.

        Every parked call is answered NOT_COORDINATOR: its client looks for the coordinator.
        """
        if (opened := self._opened.pop(partition, None)) is not None:
            opened.count_in(PendingMemory())
        gone = deque(hosted for hosted in self.by_id.values() if hosted.partition == partition)
        count = len(gone)
        self._unload_some(gone)
        return count

    def _unload_some(self, gone: deque[AnyGroup]) -> None:
        work = 0
        try:
            while gone and work < TOGETHER_MAX:
                hosted = gone.popleft()
                work += 1 + len(hosted.entity.members)
                if self.by_id.pop(hosted.entity.group_id, None) is not None:
                    self.performer.send(hosted, Removed(ErrorCode.NOT_COORDINATOR))
        finally:  # also after a group that raises
            if gone:
                self._loop.call_soon(self._unload_some, gone)

    def renew_classic(self, hosted: AnyGroup) -> bool:
        """Forget an empty consumer group but for its offsets: a classic group of the same name begins. False, and
        nothing has changed, when the log refuses that."""
        keys = [key for key, _ in map(encode, hosted.entity.tombstones())]
        if self._offsets_log.delete(hosted.partition, keys, self._now_ms()) < len(keys):
            return False
        hosted.entity = Group(hosted.key, self._limits, self._now_ms())  # not of a group: the place of a group
        return True

    # --- offsets --------------------------------------------------------------------------------------------------

    def write_offsets(
        self,
        hosted: AnyGroup,
        offsets: dict[TopicPartition, OffsetCommitValue],
        tails: Sequence[bytes],
        now_ms: int,
        done: Callable[[int], None],
    ) -> None:
        """Append the offsets in one batch; `done` gets 0 once they are durable and visible, or Kafka's code of the
        failure. A disk that does not answer in time is 7 REQUEST_TIMED_OUT; they become visible when it does answer.

        Args:
            tails: their records (`InternalLog.gather`).
        """
        number, answer = hosted.offsets.begin(offsets), self._deadlines.watch(done)

        def written(code: int) -> None:
            hosted.offsets.end(number, is_durable=code == 0)
            if not hosted.offsets.durable:
                self.forget_if_unused(hosted)
            answer(code)

        self._offsets_log.gather(hosted.partition, tails, now_ms, written)

    def write_open_offsets(
        self,
        hosted: AnyGroup,
        offsets: Mapping[TopicPartition, OffsetCommitValue],
        producer: tuple[int, int],
        now_ms: int,
        done: Callable[[int], None],
    ) -> None:
        """Append a transaction's offsets in one batch of its producer (id and epoch); `done` as for `write_offsets`.
        They become visible when the transaction is committed."""
        take_back, answer = hosted.offsets.begin_open(producer[0], offsets), self._deadlines.watch(done)

        def written(code: int) -> None:
            if code:
                take_back()
                self.forget_if_unused(hosted)
            answer(code)

        group_id = hosted.entity.group_id
        records = [(encode_offset_key(group_id, *key), encode_offset_value(value)) for key, value in offsets.items()]
        self._offsets_log.write(hosted.partition, records, now_ms, written, producer=producer)

    def end_transaction(self, partition: int, marker: Marker, done: Callable[[int], None]) -> None:
        """Write a transaction's marker; `done` gets 0 once it is durable, and the transaction's offsets are visible or
        forgotten, or Kafka's code of the failure."""

        def written(code: int) -> None:
            if not code:
                self._apply(partition, marker)
            done(code)

        self._offsets_log.mark(partition, marker, written)

    def _apply(self, partition: int, marker: Marker) -> None:
        for group_id, offsets in self._opened[partition].end(marker.producer_id, commit=marker.commit).items():
            if (hosted := self.by_id.get(group_id)) is not None:
                hosted.offsets.apply(offsets)
                self.forget_if_unused(hosted)

    def delete_offsets(
        self, hosted: AnyGroup, keys: Sequence[TopicPartition], done: Callable[[int], None] = lambda _: None
    ) -> int:
        """Forget the offsets whose tombstones the log accepts; `done` gets 0 when all are durable, or Kafka's code of
        the failure. Return the number of those forgotten."""
        if not keys:
            done(0)
            return 0
        group_id = hosted.entity.group_id
        records = [encode_offset_key(group_id, *key) for key in keys]
        accepted = self._offsets_log.delete(hosted.partition, records, self._now_ms(), done)
        hosted.offsets.forget(keys[:accepted])
        return accepted

    # --- forgetting -----------------------------------------------------------------------------------------------

    def delete(self, hosted: AnyGroup, done: Callable[[int], None]) -> None:
        """Forget an empty group with its offsets, once the log has accepted that; `done` as for `delete_offsets`."""
        group = hosted.entity
        keys = hosted.offsets.keys()
        records = [encode_offset_key(group.group_id, *key) for key in keys]
        records.extend(key for key, _ in map(encode, group.tombstones()))
        if records:
            accepted = self._offsets_log.delete(hosted.partition, records, self._now_ms(), done)
            hosted.offsets.forget(keys[:accepted])
            if accepted < len(records):
                return
        else:
            done(0)
        if self.by_id.get(group.group_id) is hosted:
            del self.by_id[group.group_id]
        self._machine_of(hosted).deleted(hosted)

    def forget_if_unused(self, hosted: AnyGroup) -> None:
        """Forget a group of which the log holds nothing, if it holds nothing itself."""
        if not hosted.entity.is_stored:
            self.delete_if_unused(hosted)

    def delete_if_unused(self, hosted: AnyGroup) -> None:
        """Forget a group that holds nothing, in the log, too."""
        if hosted.is_idle and not hosted.offsets:
            self.delete(hosted, lambda _: None)
