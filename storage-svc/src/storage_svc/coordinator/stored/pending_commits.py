"""Offsets that transactions have committed and that wait for the transactions' ends, while a partition is loaded.

Apache Kafka writes them as transactional batches to `__consumer_offsets`; a marker of the same producer follows. They
apply at a COMMIT marker. An ABORT marker drops them, and without a marker they never apply. Of two commits of one
offset the one with the later record counts, whichever transaction ends first (Kafka's OffsetMetadataManager).

    offset 7   producer 4   t-0: 100           waits
    offset 8   no producer  t-0: 150           applies
    offset 9   producer 4   COMMIT             100 is older than 150: nothing changes
"""

from __future__ import annotations

from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.topic_partition import TopicPartition

#: The group and the partition whose offset is committed.
Committed = tuple[str, TopicPartition]


class PendingCommits:
    """The waiting commits of one partition of `__consumer_offsets`, owned by its LoadedPartition."""

    def __init__(self) -> None:
        #: Producer id -> group and partition -> the offset and the value of the record.
        self._of_producers: dict[int, dict[Committed, tuple[int, OffsetCommitValue]]] = {}

    @property
    def count(self) -> int:
        """The number of commits whose transaction has not ended."""
        return sum(map(len, self._of_producers.values()))

    def add(self, producer_id: int, committed: Committed, offset: int, value: OffsetCommitValue) -> None:
        """Hold back a commit whose record has this offset."""
        self._of_producers.setdefault(producer_id, {})[committed] = offset, value

    def outdate(self, committed: Committed, offset: int) -> None:
        """Drop the commits that are older than one that applies, whose record has this offset."""
        for waiting in self._of_producers.values():
            if committed in waiting and waiting[committed][0] < offset:
                del waiting[committed]

    def end(self, producer_id: int, *, commit: bool) -> list[tuple[Committed, OffsetCommitValue]]:
        """End the producer's transaction; return the commits that apply now."""
        waiting = self._of_producers.pop(producer_id, {})
        if not commit:
            return []
        for committed, (offset, _) in waiting.items():
            self.outdate(committed, offset)
        return [(committed, value) for committed, (_, value) in waiting.items()]
