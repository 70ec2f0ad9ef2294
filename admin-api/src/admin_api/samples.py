"""The last 15 minutes of topics, groups and the volume, as storage has sampled them: a ring, read from storage.

Storage takes a sample each 15 s and keeps them, so that every admin-api has the same ones, also after a restart. A
series has one number of 8 bytes for each sample, and there are at most SERIES_MAX: 2,000 topics with five series each
and 2,000 groups with two take 7 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from array import array
from collections.abc import AsyncIterator, Callable, Iterator

from broker_contract import administration_pb2
from service_chassis import logs

from admin_api import errors
from admin_api.storage import Storage

#: Seconds between two samples of storage, and between two looks for new ones.
SAMPLE_S = 15.0
LOOK_S = 5.0
SAMPLES = 60
SERIES_MAX = 14_000
#: Seconds over which a rate is the mean.
RATE_S = 60.0
#: Bytes of the rows of a sample, decompressed.
ROWS_BYTES_MAX = 16 * 1024 * 1024
#: Seconds over which the growth of the used bytes is measured, at least.
_FILL_S = 60.0
#: No sample.
_NONE = -1
#: Kinds whose values are times: the lag of all groups is that of the last one.
_TIMES = ("lag_ms",)

log = logs.get(__name__)

Sample = administration_pb2.DescribeSamplesResponse.Sample


class Samples:
    """The ring of one server. The event loop owns it."""

    # wall clock: storage's times of samples, for people
    def __init__(self, storage: Storage, clock: Callable[[], float] = time.time) -> None:
        self._storage = storage
        self._clock = clock
        #: The run of storage, and the number of the last sample of it that is here.
        self._known = 0, 0
        #: Times of the samples in the ring's places, in seconds; 0 for no sample.
        self._times = array("d", [0.0] * SAMPLES)
        self._next = 0
        #: (kind, name) -> values in the ring's places.
        self._series: dict[tuple[str, str], array[int]] = {}

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Read samples for the length of a block."""
        task = asyncio.create_task(self._take_all(), name="samples")
        try:
            yield
        finally:
            task.cancel()

    async def take(self) -> None:
        """Read the samples that storage has taken since. Raises ApiError if storage does not answer."""
        while True:
            answer = await self._storage.calls(0).samples(*self._known)
            for sample in answer.samples:
                rows = await asyncio.to_thread(_rows, sample)
                self.add(sample, rows)
                self._known = answer.run_id, sample.number
            if not answer.has_more:
                break

    def add(self, sample: Sample, rows: administration_pb2.SampleRows) -> None:
        """Add a sample to the ring in the place of the oldest, unless it is older than the last."""
        at = sample.at_ms / 1000
        if at <= max(self._times):  # storage's clock was set back
            return
        place = self._next
        self._next = (place + 1) % SAMPLES
        self._times[place] = at
        for values in self._series.values():
            values[place] = _NONE
        if sample.usable_bytes >= 0:
            self._set("disk_used_bytes", "", place, sample.total_bytes - sample.usable_bytes)
        for topic in rows.topics:
            self._set("end_offsets", topic.name, place, topic.end_offsets)
            self._set("records", topic.name, place, topic.records)
            self._set("bytes", topic.name, place, topic.bytes)
            self._set("appended_bytes", topic.name, place, topic.appended_bytes)
            self._set("sent_bytes", topic.name, place, topic.sent_bytes)
        for group in rows.groups:
            self._set("lag", group.group_id, place, group.lag)
            self._set("lag_ms", group.group_id, place, group.lag_ms)
        for key in [key for key, values in self._series.items() if max(values) == _NONE]:
            del self._series[key]

    def full_in_s(self, usable_bytes: int) -> float | None:
        """Return the seconds until the volume is full, if it goes on to fill as in these 15 minutes; else None."""
        used = [(at, value) for at, value in self.range("disk_used_bytes", "") if value is not None]
        if len(used) < 2 or used[-1][0] - used[0][0] < _FILL_S:
            return None
        grown = used[-1][1] - used[0][1]
        return usable_bytes * (used[-1][0] - used[0][0]) / grown if grown > 0 else None

    def rate(self, topic: str, end_offsets: int) -> float | None:
        """Return the records per second that came since the oldest sample of the last minute; None without one."""
        values = self._series.get(("end_offsets", topic))
        if values is None:
            return None
        now = self._clock()
        for place in self._places():
            passed_s = now - self._times[place]
            if 1 <= passed_s <= RATE_S and values[place] != _NONE:
                return max(0, end_offsets - values[place]) / passed_s
        return None

    def oldest(self, kind: str, name: str) -> int | None:
        """Return the oldest sample of a series that is known; None without one."""
        values = self._series.get((kind, name))
        known = [] if values is None else [values[place] for place in self._places() if values[place] != _NONE]
        return known[0] if known else None

    def newest(self, kind: str, name: str) -> int | None:
        """Return a series' value in the newest sample; None without one."""
        values = self._series.get((kind, name))
        found = _NONE if values is None else values[self._next - 1]
        return None if found == _NONE else found

    def range(self, kind: str, name: str | None) -> Iterator[tuple[float, float | None]]:
        """Yield the time and the value of each sample, the oldest first.

        It is the value of one series, or of all of the kind together: the longest time, or the sum of anything else.
        """
        joined = max if kind in _TIMES else sum
        chosen = [
            values for (other, series), values in self._series.items() if other == kind and name in (None, series)
        ]
        for place in self._places():
            known = [values[place] for values in chosen if values[place] != _NONE]
            yield self._times[place], joined(known) if known else None

    def rates(self, of: str, topic: str | None) -> Iterator[tuple[float, float | None]]:
        """Yield the growth per second of a kind of series between each sample and the one before."""
        chosen = [values for (kind, name), values in self._series.items() if kind == of and topic in (None, name)]
        before = -1
        for place in self._places():
            if before >= 0:
                passed_s = self._times[place] - self._times[before]
                pairs = [(values[before], values[place]) for values in chosen]
                grown = [max(0, after - first) for first, after in pairs if first != _NONE and after != _NONE]
                yield self._times[place], sum(grown) / passed_s if grown and passed_s > 0 else None
            before = place

    def _set(self, kind: str, name: str, place: int, value: int) -> None:
        values = self._series.get((kind, name))
        if values is None:
            if len(self._series) >= SERIES_MAX:  # mutant: series-bounded
                return
            values = self._series[kind, name] = array("q", [_NONE] * SAMPLES)
        values[place] = value

    def _places(self) -> Iterator[int]:
        """Yield the places of the ring that have a sample, the oldest first."""
        for distance in range(SAMPLES):
            place = (self._next + distance) % SAMPLES
            if self._times[place]:
                yield place

    async def _take_all(self) -> None:
        while True:
            try:
                await self.take()
            except errors.ApiError as error:
                log.debug("no sample", reason=error.message)
            except Exception:
                log.exception("no sample")
            await asyncio.sleep(LOOK_S)


def _rows(sample: Sample) -> administration_pb2.SampleRows:
    return administration_pb2.SampleRows.FromString(zlib.decompressobj().decompress(sample.rows, ROWS_BYTES_MAX))
