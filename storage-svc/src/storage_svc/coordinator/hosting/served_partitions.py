"""The partitions of a coordinator's topic that can be served: they are loaded, and their log accepts records.

    being read                          COORDINATOR_LOAD_IN_PROGRESS
    could not be read                   COORDINATOR_LOAD_IN_PROGRESS, until the next start
    the log went offline under it       NOT_COORDINATOR, until the next start

Offline means that it is unknown whether some appended records are on the disk. The coordinator's memory may be ahead of
the records that the next start finds. So it is forgotten, as in a Kafka broker that loses a partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol_lib.errors import ErrorCode

from storage_svc.topics.names import OFFSETS_TOPIC


class ServedPartitions:
    """The state of all partitions of one topic. Owned by the coordinator."""

    def __init__(self, topic: str = OFFSETS_TOPIC) -> None:
        self._topic = topic
        self._loading: set[int] = set()
        #: The bytes of the partitions whose loading has not begun.
        self._waiting: dict[int, int] = {}
        #: The partitions that clients have asked for while they were not loaded.
        self._asked: set[int] = set()
        self._lost: set[int] = set()
        #: A reason why some keys cannot be served; None when all can, or will be.
        self.fault: str | None = None

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def begin_loading(self, sizes: Mapping[int, int]) -> None:
        """Note the partitions that are to be loaded, with their bytes."""
        self._loading = set(sizes)
        self._waiting = dict(sizes)

    def _urgency_of(self, partition: int) -> tuple[bool, int, int]:
        return partition not in self._asked, self._waiting[partition], partition  # mutant: asked-partition-first

    @property
    def urgency(self) -> tuple[bool, int, int]:
        """The place of the next partition to load: the least comes first. There must be one."""
        return min(map(self._urgency_of, self._waiting))

    def next_to_load(self) -> int:
        """Return the partition whose loading begins now: one that was asked for, or else the shortest."""
        partition = min(self._waiting, key=self._urgency_of)
        del self._waiting[partition]
        return partition

    def loaded(self, partition: int) -> None:
        self._loading.discard(partition)

    def unreadable(self, partition: int, reason: str) -> None:
        """Leave its keys in COORDINATOR_LOAD_IN_PROGRESS: that is better than to serve them without their state."""
        self.fault = f"cannot load partition {partition} of {self._topic}: {reason}"

    def lost(self, partition: int, reason: str) -> bool:
        """Note that a partition is lost; False when that was known."""
        if partition in self._lost:
            return False
        self._lost.add(partition)
        self.fault = f"partition {partition} of {self._topic} is offline: {reason}"
        return True

    def is_lost(self, partition: int) -> bool:
        return partition in self._lost

    def error(self, partition: int) -> ErrorCode:
        """Return the error for a key of the partition. The partition is loaded before those that nobody asks for."""
        if partition in self._loading:
            self._asked.add(partition)
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR if partition in self._lost else ErrorCode.NONE

    def __bool__(self) -> bool:
        """Return whether some partitions are not served."""
        return bool(self._loading or self._lost)
