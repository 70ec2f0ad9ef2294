"""The age of a group's lag: the time since the oldest record that the group has not committed became readable.

No record holds that time, so it is estimated from the high watermarks of earlier scrapes:

    scrape at    0 s    10 s    20 s
    high wm      100    200     200        a group that has committed 150 lags since about 5 s: by 15 s

A record from before the first scrape is as old as that scrape, at least. The error is at most the time between two
scrapes. Of a partition at most POINTS_MAX scrapes are kept: with time, every second of the older ones is forgotten.
Lightbend's kafka-lag-exporter estimates in the same way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

#: 16 points of 20,000 partitions are 8 MB.
POINTS_MAX: Final = 16

TopicPartition = tuple[str, int]


class _Points:
    """The times at which a partition was first seen at each of some high watermarks, both ascending."""

    __slots__ = ("offsets", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.times = array("d")

    def add(self, offset: int, now: float) -> None:
        offsets, times = self.offsets, self.times
        if offsets and offset < offsets[-1]:  # the topic was deleted and created again
            del offsets[:], times[:]
        if not offsets or offset > offsets[-1]:
            if len(offsets) == POINTS_MAX:
                del offsets[1:-1:2], times[1:-1:2]
            offsets.append(offset)
            times.append(now)

    def since(self, offset: int) -> float | None:
        """Return the time at which the record of this offset became readable; None where it is not."""
        offsets, times = self.offsets, self.times
        index = bisect_right(offsets, offset)
        if index == len(offsets):
            return None
        if index == 0:
            return times[0]
        before, after = offsets[index - 1], offsets[index]
        return times[index - 1] + (times[index] - times[index - 1]) * (offset - before) / (after - before)


class LagTimes:
    """The points of all partitions that groups have committed to. Owned by the exporter."""

    def __init__(self) -> None:
        self._points: dict[TopicPartition, _Points] = {}

    def lags(
        self,
        committed: Mapping[tuple[str, str, int], int],
        offsets: Mapping[TopicPartition, tuple[int, int]],
        now: float,
    ) -> dict[tuple[str, str, int], float]:
        """Note the high watermarks of a scrape, and return the age of each lag in seconds.

        Args:
            committed: by group, topic and partition.
            offsets: log start offset and high watermark of each partition.
            now: the time in seconds, of a clock that never goes back.
        """
        wanted = {(topic, partition) for _, topic, partition in committed} & offsets.keys()
        self._points = {pair: self._points.get(pair) or _Points() for pair in wanted}
        for pair in wanted:
            self._points[pair].add(offsets[pair][1], now)
        ages = {}
        for key, offset in committed.items():
            points = self._points.get(key[1:])
            if points is not None:
                since = points.since(max(offset, offsets[key[1:]][0]))
                ages[key] = 0.0 if since is None else now - since
        return ages
