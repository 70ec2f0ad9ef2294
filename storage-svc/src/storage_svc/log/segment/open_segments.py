"""The open segments of all logs: at most a fixed number, for any number of partitions.

Every segment opens itself when it is used. When there are too many, those that were not used for longest are released,
active ones too. They give back their descriptors and the memory of their indexes. A segment that was used since the
clock's hand last passed it stays for one more round.

A segment that a sync has yet to cover stays open, above the limit too: the system may forget a failed write of a file
that nobody has open. Under `flush.policy=group` each turn's writes are synced by the next sync.
"""

from __future__ import annotations

import resource
import threading
from typing import Final, Protocol

# A closed segment has three descriptors (its log and two mapped indexes). Connections need some as well.
_SHARE: Final = 8
_MIN: Final = 32
_MAX: Final = 16_384
_RELEASED_AT_ONCE: Final = 4
#: The number of segments that one addition checks. The next addition continues there.
_LOOKED_AT_MAX: Final = 16


def open_segments_max() -> int:
    """Return how many segments this process may keep open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX if soft == resource.RLIM_INFINITY else max(_MIN, min(_MAX, soft // _SHARE))


class Closable(Protocol):
    """An open segment, as far as its release is concerned."""

    #: Whether it was used since the clock's hand last passed it.
    used: bool

    def release_unused(self) -> bool:
        """Close it, and return whether that was possible."""
        ...


class OpenSegments:
    """The ring of open segments, owned by the DataFolder. Several threads add to it while logs are recovered."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ring: dict[Closable, None] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, segment: Closable) -> None:
        """Add a segment that is open now; others may be released for it."""
        with self._lock:
            self._ring[segment] = None
            for _ in range(min(2 * len(self._ring), _LOOKED_AT_MAX)):
                if len(self._ring) <= self._limit:
                    return
                oldest = next(iter(self._ring))
                if oldest is segment or oldest.used or not oldest.release_unused():
                    oldest.used = False
                    del self._ring[oldest]
                    self._ring[oldest] = None

    def release_some(self) -> bool:
        """Release a few of the segments that were not used for longest, as the system allows no more descriptors.

        Return whether there were any.
        """
        released = 0
        with self._lock:
            for segment in list(self._ring):
                released += segment.release_unused()
                if released == _RELEASED_AT_ONCE:
                    break
        return released > 0

    def discard(self, segment: Closable) -> None:
        """Remove a segment that was closed."""
        with self._lock:
            self._ring.pop(segment, None)
