"""How far a log is readable and acknowledged, and the callers that wait for it to move.

A waiter waits for an offset (acks=all, coordinators) and is called back once, in the order of offsets. A watcher waits
for any move (parked reads) and is called back until it leaves.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable

from service_chassis import logs

from storage_svc.log.partition.read_positions import ReadPositions
from storage_svc.log.segment.segment import Segment

_log = logs.get(__name__)


class HighWatermark:
    """The high watermark of one log, owned by its PartitionLog.

    The offset is found at `position` of `segment`: readers stop there.
    """

    __slots__ = ("_count", "_moved", "_positions", "_waiters", "_watchers", "largest", "offset", "position", "segment")

    def __init__(
        self, offset: int, segment: Segment, position: int, positions: ReadPositions, moved: Callable[[], None]
    ) -> None:
        """Start at the end of a segment. `moved` is called at every `advance`, before any watcher or waiter is."""
        self.offset = offset
        self.segment = segment
        self.position = position
        #: The largest timestamp in the readable part of the segment and the last offset of its batch; -1 without one.
        self.largest = segment.max_timestamp, segment.max_timestamp_offset
        self._positions = positions
        self._moved = moved
        self._waiters: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        self._watchers: dict[Hashable, Callable[[], None]] = {}

    def relocate(self, segment: Segment, position: int) -> None:
        """Refer to the same offset by the begin of another segment."""
        self.segment = segment
        self.position = position
        self.largest = -1, -1

    def retreat(self, offset: int, segment: Segment, position: int) -> None:
        """Make readers stop at an older offset. No waiter is called back."""
        self.offset = offset
        self.relocate(segment, position)

    def advance(self, offset: int, segment: Segment, position: int, largest: tuple[int, int]) -> None:
        """Move to a later offset and call back watchers and the waiters it reaches."""
        self._positions.note(self.offset, self.segment, self.position)
        self._moved()
        self.offset = offset
        self.segment = segment
        self.position = position
        self.largest = largest
        # Watchers first: they check their log at the end of the turn, before the stream's writer that an
        # acknowledgement wakes. So the records that they find leave in the same frame.
        if self._watchers:
            self.notify_watchers()
        waiters = self._waiters
        while waiters and waiters[0][0] <= offset:
            _call(heapq.heappop(waiters)[2], 0)

    def wait(self, offset: int, callback: Callable[[int], None]) -> None:
        """Call back with 0 once the offset, which is a later one, is reached."""
        self._count += 1
        heapq.heappush(self._waiters, (offset, self._count, callback))

    def fail(self, error_code: int) -> None:
        """Call back every waiter with an error code: no offset will be reached."""
        waiters, self._waiters = self._waiters, []
        for _, _, callback in sorted(waiters):
            _call(callback, error_code)

    def watch(self, watcher: Hashable, callback: Callable[[], None]) -> None:
        """Call back whenever the offset moves or the log goes away, until `unwatch`."""
        self._watchers[watcher] = callback

    def unwatch(self, watcher: Hashable) -> None:
        """Stop calling back; nothing happens if the watcher is not watching."""
        self._watchers.pop(watcher, None)

    @property
    def watcher_count(self) -> int:
        """The number of watchers."""
        return len(self._watchers)

    def notify_watchers(self) -> None:
        """Call back every watcher."""
        for callback in list(self._watchers.values()):
            _call(callback)


def _call(callback: Callable[..., None], *arguments: int) -> None:
    """Call back one of several, each of which answers another request: an exception concerns that one alone."""
    try:
        callback(*arguments)
    except Exception:
        _log.exception("a callback failed")
