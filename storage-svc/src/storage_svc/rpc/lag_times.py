"""The age of a group's lag: the time since the oldest record that the group has not committed became readable.

No record holds that time, so it is estimated from the high watermarks that the samples have seen:

    sample at    0 s    10 s    20 s
    high wm      100    200     200        a group that has committed 150 lags since about 5 s: by 15 s

A record from before the first sample is as old as that sample, at least. The error is at most the time between two
samples. Of a partition at most POINTS_MAX points are kept: with time, every second of the older ones is forgotten.
Lightbend's kafka-lag-exporter estimates in the same way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

from storage_svc.topic_partition import TopicPartition

#: 16 points of PARTITIONS_MAX partitions are 10 MB.
POINTS_MAX: Final = 16
PARTITIONS_MAX: Final = 20_000


class _Points:
    """The times at which a partition was first seen at each of some high watermarks, both ascending."""

    __slots__ = ("offsets", "round", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.times = array("d")
        #: The last round that has seen the partition.
        self.round = 0

    def add(self, offset: int, now: float) -> None:
        offsets, times = self.offsets, self.times
        if offsets and offset < offsets[-1]:  # the topic was deleted and created again
            del offsets[:], times[:]
        if not offsets or offset > offsets[-1]:
            if len(offsets) == POINTS_MAX:
                del offsets[1:-1:2], times[1:-1:2]
            offsets.append(offset)
            times.append(now)

    def since(self, offset: int, end: int, now: float) -> float:
        """Return the time at which the record of this offset became readable. Now, the end is after it."""
        offsets, times = self.offsets, self.times
        index = bisect_right(offsets, offset)
        if index == 0:
            return times[0]
        before, at = offsets[index - 1], times[index - 1]
        after, until = (offsets[index], times[index]) if index < len(offsets) else (end, now)
        return at + (until - at) * (offset - before) / (after - before)


class LagTimes:
    """The points of the partitions that groups have committed to. The samples own it."""

    def __init__(self) -> None:
        self._points: dict[TopicPartition, _Points] = {}
        self._round = 0

    def begin(self) -> None:
        """Begin a round over all partitions of all groups."""
        self._round += 1

    def note(self, partition: TopicPartition, end: int, now: float) -> None:
        """Note the high watermark of a partition, unless the round has it, or there are too many."""
        points = self._points.get(partition)
        if points is None:
            if len(self._points) >= PARTITIONS_MAX:  # mutant: lag-times-bounded
                return
            points = self._points[partition] = _Points()
        if points.round != self._round:
            points.round = self._round
            points.add(end, now)

    def finish(self) -> None:
        """End the round: forget the partitions that it has not seen."""
        self._points = {key: points for key, points in self._points.items() if points.round == self._round}

    def age_s(self, partition: TopicPartition, offset: int, end: int, now: float) -> float | None:
        """Return the age of the lag at an offset in seconds: 0.0 at the end, None for a partition without points.

        Args:
            partition: topic and number.
            offset: the next one that is read: no less than the log start offset.
            end: the high watermark.
            now: the time in seconds, of the clock of the rounds.
        """
        if offset >= end:
            return 0.0
        points = self._points.get(partition)
        return None if points is None else max(0.0, now - points.since(offset, end, now))
