"""Which offsets partitions' groups can be served: those that are loaded, and whose log takes records.

    being read                          COORDINATOR_LOAD_IN_PROGRESS
    could not be read                   COORDINATOR_LOAD_IN_PROGRESS, until the next start
    the log went offline under it       NOT_COORDINATOR, until the next start

Offline means that records were appended of which nobody knows whether they are on the disk. What the groups hold in
memory may be ahead of what the next start finds, so it is forgotten, as a Kafka broker does that loses a partition.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol_lib.errors import ErrorCode

from storage_svc.topics.names import OFFSETS_TOPIC


class ServedPartitions:
    """Owned by the coordinator."""

    def __init__(self) -> None:
        self._loading: set[int] = set()
        self._lost: set[int] = set()
        #: Why some groups cannot be served; None when all can, or will be.
        self.fault: str | None = None

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def begin_loading(self, partitions: Iterable[int]) -> None:
        self._loading = set(partitions)

    def loaded(self, partition: int) -> None:
        self._loading.discard(partition)

    def unreadable(self, partition: int, reason: str) -> None:
        """Its groups stay in COORDINATOR_LOAD_IN_PROGRESS: better than to serve them without their offsets."""
        self.fault = f"cannot load partition {partition} of {OFFSETS_TOPIC}: {reason}"

    def lost(self, partition: int, reason: str) -> bool:
        """False when that was known."""
        if partition in self._lost:
            return False
        self._lost.add(partition)
        self.fault = f"partition {partition} of {OFFSETS_TOPIC} is offline: {reason}"
        return True

    def error(self, partition: int) -> ErrorCode:
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR if partition in self._lost else ErrorCode.NONE

    def __bool__(self) -> bool:
        """Whether some are not served."""
        return bool(self._loading or self._lost)
