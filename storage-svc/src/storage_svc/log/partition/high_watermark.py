"""How far a log is readable and acknowledged, and who waits for it to move.

Two kinds of waiting: for an offset (acks=all, coordinators), called once, in the order of offsets; and for any move
(parked reads), told until they leave.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from storage_svc.log.segment.segment import Segment

if TYPE_CHECKING:
    from storage_svc.log.partition.partition_log import PartitionLog


class Watcher(Protocol):
    """Somebody who waits for a log's high watermark to move."""

    def touched(self, log: PartitionLog) -> None: ...


class HighWatermark:
    """Owned by its PartitionLog. The offset is found at `position` of `segment`: readers stop there."""

    __slots__ = ("_count", "_waiters", "_watchers", "offset", "position", "segment")

    def __init__(self, offset: int, segment: Segment, position: int) -> None:
        self.offset = offset
        self.segment = segment
        self.position = position
        self._waiters: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        self._watchers: dict[Watcher, None] = {}

    def place(self, segment: Segment, position: int) -> None:
        """The same offset, as a position of another segment."""
        self.segment = segment
        self.position = position

    def advance(self, offset: int, segment: Segment, position: int, log: PartitionLog) -> None:
        log.places.note(self.offset, self.segment, self.position)
        if log.told:
            log.changed()
        self.offset = offset
        self.segment = segment
        self.position = position
        # Watchers first: they look when the turn is over, before the stream's writer that an acknowledgement wakes. So
        # what they find leaves with it in one frame.
        if self._watchers:
            self.touch(log)
        waiters = self._waiters
        while waiters and waiters[0][0] <= offset:
            heapq.heappop(waiters)[2](0)

    def wait(self, offset: int, callback: Callable[[int], None]) -> None:
        """Call back with 0 once the offset is reached; it is not yet."""
        self._count += 1
        heapq.heappush(self._waiters, (offset, self._count, callback))

    def fail(self, error_code: int) -> None:
        """No offset that is waited for will be reached."""
        waiters, self._waiters = self._waiters, []
        for _, _, callback in sorted(waiters):
            callback(error_code)

    def watch(self, watcher: Watcher) -> None:
        """Tell the watcher whenever the offset moves or the log goes away."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    @property
    def watcher_count(self) -> int:
        return len(self._watchers)

    def touch(self, log: PartitionLog) -> None:
        for watcher in list(self._watchers):
            watcher.touched(log)
