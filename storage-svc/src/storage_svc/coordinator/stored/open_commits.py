"""Offsets that open transactions have committed, in one partition of `__consumer_offsets` (TxnOffsetCommit).

They are in the log as transactional batches, and a marker of the same producer follows. They apply at a COMMIT marker.
An ABORT marker drops them, and without a marker they never apply. Of two commits of one offset the one with the later
record counts, whichever transaction ends first (Kafka's OffsetMetadataManager). A tombstone drops them.

    offset 7   producer 4   t-0: 100           waits
    offset 8   no producer  t-0: 150           applies
    offset 9   producer 4   COMMIT             100 is older than 150: nothing changes

All partitions share one limit of their memory (`PendingMemory`). Commits that a start has read may be beyond it.

Until its marker an outdated commit still makes the offset unstable for readers that require a stable one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.topic_partition import TopicPartition

#: The group and the partition whose offset is committed.
Committed = tuple[str, TopicPartition]
#: The order of the commit's record among the partition's, and its value; None once a later commit applies.
OpenCommit = tuple[int, OffsetCommitValue | None]

_NONE: Final[Mapping[TopicPartition, int]] = {}
#: Bytes of a waiting commit, at most, without its strings: both indexes, one transaction and one group.
_COMMIT_BYTES: Final = 1000


class PendingMemory:
    """The bytes of all waiting commits of a coordinator, and their limit. Owned by the hosted groups."""

    __slots__ = ("bytes_max", "used")

    def __init__(self, bytes_max: int = sys.maxsize) -> None:
        self.bytes_max = bytes_max
        self.used = 0

    def has_room(self, group_id: str, offsets: Iterable[tuple[str, str | None]]) -> bool:
        """Return whether commits of a group fit. `offsets`: the topic and the metadata of each."""
        needed = sum(_size(group_id, topic, metadata) for topic, metadata in offsets)
        return self.used + needed <= self.bytes_max


def _size(group_id: str, topic: str, metadata: str | None) -> int:
    return _COMMIT_BYTES + sys.getsizeof(group_id) + sys.getsizeof(topic) + sys.getsizeof(metadata)


def _size_of(committed: Committed, commit: OpenCommit) -> int:
    (group_id, (topic, _)), (_, value) = committed, commit
    return _size(group_id, topic, None if value is None else value.metadata)


class OpenCommits:
    """The waiting commits of one partition, owned by its LoadedPartition and then by the hosted groups."""

    def __init__(self, memory: PendingMemory | None = None) -> None:
        self._memory = PendingMemory() if memory is None else memory
        #: Producer id -> group -> partition -> commit. Never empty inside.
        self._of_producers: dict[int, dict[str, dict[TopicPartition, OpenCommit]]] = {}
        #: The bytes of each producer's commits.
        self._bytes_of: dict[int, int] = {}
        #: Group -> partition -> the number of transactions that have committed its offset. Never empty inside.
        self._of_groups: dict[str, dict[TopicPartition, int]] = {}

    @property
    def count(self) -> int:
        """The number of commits whose transaction has not ended."""
        return sum(len(waiting) for groups in self._of_producers.values() for waiting in groups.values())

    def __bool__(self) -> bool:
        return bool(self._of_producers)

    @property
    def groups(self) -> list[str]:
        """The groups with such commits."""
        return list(self._of_groups)

    def of_group(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Return the partitions whose offset is unstable, with the number of transactions."""
        return self._of_groups.get(group_id, _NONE)

    def values(self, group_id: str) -> Iterator[tuple[TopicPartition, OffsetCommitValue]]:
        """Yield the offsets of a group that may still apply."""
        if group_id in self._of_groups:
            for groups in self._of_producers.values():
                for partition, (_, value) in groups.get(group_id, {}).items():
                    if value is not None:
                        yield partition, value

    def add(
        self, producer_id: int, committed: Committed, order: int, value: OffsetCommitValue | None
    ) -> OpenCommit | None:
        """Hold back a commit, and return the one of the same producer that it replaces."""
        group, partition = committed
        before = self._of_producers.setdefault(producer_id, {}).setdefault(group, {}).get(partition)
        self._put(producer_id, committed, (order, value), before)
        if before is None:
            counts = self._of_groups.setdefault(group, {})
            counts[partition] = counts.get(partition, 0) + 1
        return before

    def _put(self, producer_id: int, committed: Committed, commit: OpenCommit, before: OpenCommit | None) -> None:
        freed = 0 if before is None else _size_of(committed, before)
        self._use(producer_id, _size_of(committed, commit) - freed)
        group, partition = committed
        self._of_producers[producer_id][group][partition] = commit

    def _use(self, producer_id: int, size: int) -> None:
        self._memory.used += size
        self._bytes_of[producer_id] = self._bytes_of.get(producer_id, 0) + size

    def count_in(self, memory: PendingMemory) -> None:
        """Count the commits there from now on."""
        self._memory.used -= self._bytes
        self._memory = memory
        memory.used += self._bytes

    @property
    def _bytes(self) -> int:
        return sum(self._bytes_of.values())

    def _found(self, producer_id: int, committed: Committed) -> OpenCommit | None:
        group, partition = committed
        return self._of_producers.get(producer_id, {}).get(group, {}).get(partition)

    def take_back(self, producer_id: int, committed: Committed, order: int, before: OpenCommit | None) -> None:
        """Undo an `add` whose record was not written, unless another has followed."""
        found = self._found(producer_id, committed)
        if found is None or found[0] != order:
            return
        self._remove(producer_id, committed)
        if before is not None:
            self.add(producer_id, committed, *before)

    def outdate(self, committed: Committed, order: int) -> None:
        """Let no commit apply that is older than this one, which applies."""
        group, partition = committed
        if partition not in self.of_group(group):
            return
        for producer_id in self._of_producers:
            found = self._found(producer_id, committed)
            if found is not None and found[0] < order:
                self._put(producer_id, committed, (found[0], None), found)

    def drop(self, committed: Committed) -> None:
        """Drop the commits of an offset that a tombstone deletes."""
        group, partition = committed
        if partition in self.of_group(group):
            for producer_id in [each for each in self._of_producers if self._found(each, committed) is not None]:
                self._remove(producer_id, committed)

    def end(self, producer_id: int, *, commit: bool) -> dict[str, dict[TopicPartition, OffsetCommitValue]]:
        """End the producer's transaction; return its groups, with the offsets of each that apply now.

        It is one step, so that readers see all of the offsets or none: most of it is done a group at a time.
        """
        ended = self._of_producers.pop(producer_id, {})
        self._memory.used -= self._bytes_of.pop(producer_id, 0)  # mutant: ended-offsets-uncounted
        for group, waiting in ended.items():
            self._uncount(group, waiting)
            if commit and group in self._of_groups:  # those of other transactions
                for partition, (order, value) in waiting.items():
                    if value is not None:
                        self.outdate((group, partition), order)
        if not commit:  # mutant: aborted-offsets-dropped
            return {group: {} for group in ended}
        return {
            group: {partition: value for partition, (_, value) in waiting.items() if value is not None}
            for group, waiting in ended.items()
        }

    def _uncount(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Note that a transaction which is not among `_of_producers` any more has no commits of these."""
        if not any(group in groups for groups in self._of_producers.values()):
            del self._of_groups[group]
            return
        counts = self._of_groups[group]
        for partition in partitions:
            counts[partition] -= 1
            if not counts[partition]:
                del counts[partition]

    def _remove(self, producer_id: int, committed: Committed) -> None:
        group, partition = committed
        groups = self._of_producers[producer_id]
        self._use(producer_id, -_size_of(committed, groups[group].pop(partition)))
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._of_producers[producer_id], self._bytes_of[producer_id]
        self._uncount(group, (partition,))

    def check_invariants(self) -> None:
        """Raise AssertionError unless the indexes agree, and nothing is forgotten in the count. For tests."""
        assert self._memory.used >= self._bytes
        counts: dict[str, dict[TopicPartition, int]] = {}
        for producer_id, groups in self._of_producers.items():
            assert groups
            size = 0
            for group, waiting in groups.items():
                assert waiting
                of_group = counts.setdefault(group, {})
                for partition, found in waiting.items():
                    of_group[partition] = of_group.get(partition, 0) + 1
                    size += _size_of((group, partition), found)
            assert size == self._bytes_of[producer_id]
        assert counts == self._of_groups
        assert self._bytes_of.keys() == self._of_producers.keys()
