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
        self._of_producers: dict[int, dict[Committed, OpenCommit]] = {}
        #: Group -> partition -> the number of transactions that have committed its offset. Never empty inside.
        self._of_groups: dict[str, dict[TopicPartition, int]] = {}

    @property
    def count(self) -> int:
        """The number of commits whose transaction has not ended."""
        return sum(map(len, self._of_producers.values()))

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
            for waiting in self._of_producers.values():
                for (group, partition), (_, value) in waiting.items():
                    if group == group_id and value is not None:
                        yield partition, value

    def add(
        self, producer_id: int, committed: Committed, order: int, value: OffsetCommitValue | None
    ) -> OpenCommit | None:
        """Hold back a commit, and return the one of the same producer that it replaces."""
        waiting = self._of_producers.setdefault(producer_id, {})
        before = waiting.get(committed)
        self._put(waiting, committed, (order, value))
        if before is None:
            group, partition = committed
            counts = self._of_groups.setdefault(group, {})
            counts[partition] = counts.get(partition, 0) + 1
        return before

    def _put(self, waiting: dict[Committed, OpenCommit], committed: Committed, commit: OpenCommit) -> None:
        before = waiting.get(committed)
        freed = 0 if before is None else _size_of(committed, before)
        self._memory.used += _size_of(committed, commit) - freed
        waiting[committed] = commit

    def count_in(self, memory: PendingMemory) -> None:
        """Count the commits there from now on."""
        self._memory.used -= self._bytes
        self._memory = memory
        memory.used += self._bytes

    @property
    def _bytes(self) -> int:
        return sum(_size_of(*each) for waiting in self._of_producers.values() for each in waiting.items())

    def take_back(self, producer_id: int, committed: Committed, order: int, before: OpenCommit | None) -> None:
        """Undo an `add` whose record was not written, unless another has followed."""
        found = self._of_producers.get(producer_id, {}).get(committed)
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
        for waiting in self._of_producers.values():
            if committed in waiting and waiting[committed][0] < order:
                self._put(waiting, committed, (waiting[committed][0], None))

    def drop(self, committed: Committed) -> None:
        """Drop the commits of an offset that a tombstone deletes."""
        group, partition = committed
        if partition in self.of_group(group):
            for producer_id in [key for key, waiting in self._of_producers.items() if committed in waiting]:
                self._remove(producer_id, committed)

    def end(self, producer_id: int, *, commit: bool) -> dict[Committed, OffsetCommitValue | None]:
        """End the producer's transaction; return all its commits, with the values of those that apply now."""
        waiting = self._of_producers.pop(producer_id, {})
        for (
            committed,
            found,
        ) in waiting.items():  # in one step: readers see all of them or none
            self._uncount(committed, found)
        if commit and self._of_producers:
            for committed, (order, value) in waiting.items():
                if value is not None:
                    self.outdate(committed, order)
        # mutant: aborted-offsets-dropped
        return {committed: value if commit else None for committed, (_, value) in waiting.items()}

    def _remove(self, producer_id: int, committed: Committed) -> None:
        waiting = self._of_producers[producer_id]
        self._uncount(committed, waiting.pop(committed))
        if not waiting:
            del self._of_producers[producer_id]

    def _uncount(self, committed: Committed, commit: OpenCommit) -> None:
        self._memory.used -= _size_of(committed, commit)  # mutant: ended-offsets-uncounted
        group, partition = committed
        counts = self._of_groups[group]
        counts[partition] -= 1
        if not counts[partition]:
            del counts[partition]
            if not counts:
                del self._of_groups[group]

    def check_invariants(self) -> None:
        """Raise AssertionError unless both indexes agree, and nothing is forgotten in the count. For tests."""
        assert self._memory.used >= self._bytes
        counts: dict[str, dict[TopicPartition, int]] = {}
        for waiting in self._of_producers.values():
            assert waiting
            for group, partition in waiting:
                of_group = counts.setdefault(group, {})
                of_group[partition] = of_group.get(partition, 0) + 1
        assert counts == self._of_groups
