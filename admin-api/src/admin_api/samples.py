"""The last 15 minutes of each topic's size and records, and of each group's lag: samples in a ring, in this process.

There is a sample each SAMPLE_S. A series has one number of 8 bytes for each sample, and there are at most SERIES_MAX:
2,000 topics with three series each and 2,000 groups take 4 MB. A restart begins with none.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator

from service_chassis import logs

from admin_api import errors, overview
from admin_api.overview import Overview
from admin_api.storage import Storage

SAMPLE_S = 15.0
SAMPLES = 60
SERIES_MAX = 8000
#: Seconds over which a rate is the mean.
RATE_S = 60.0
#: No sample.
_NONE = -1

log = logs.get(__name__)


class Samples:
    """The ring of one server. The event loop owns it."""

    # wall clock: times of samples, for people
    def __init__(self, storage: Storage, clock: Callable[[], float] = time.time) -> None:
        self._storage = storage
        self._clock = clock
        #: Times of the samples in the ring's places, in seconds; 0 for no sample.
        self._times = array("d", [0.0] * SAMPLES)
        self._next = 0
        #: (kind, name) -> values in the ring's places.
        self._series: dict[tuple[str, str], array[int]] = {}

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Take samples for the length of a block."""
        task = asyncio.create_task(self._take_all(), name="samples")
        try:
            yield
        finally:
            task.cancel()

    async def take(self) -> None:
        """Take one sample. Raises ApiError if storage does not answer."""
        self.add(await overview.take(self._storage.calls(0)))

    def add(self, seen: Overview) -> None:
        """Add a sample to the ring in the place of the oldest."""
        place = self._next
        self._next = (place + 1) % SAMPLES
        self._times[place] = self._clock()
        for values in self._series.values():
            values[place] = _NONE
        for topic in seen.topics.values():
            self._set("end_offsets", topic.name, place, topic.end_offsets)
            self._set("records", topic.name, place, topic.records)
            self._set("bytes", topic.name, place, topic.size_bytes)
        for group_id, lag in seen.lags.items():
            self._set("lag", group_id, place, lag)
        for key in [key for key, values in self._series.items() if max(values) == _NONE]:
            del self._series[key]

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

    def range(self, kind: str, name: str | None) -> Iterator[tuple[float, float | None]]:
        """Yield the time and the value of each sample, the oldest first: one series, or the sum of a kind's."""
        chosen = [
            values for (other, series), values in self._series.items() if other == kind and name in (None, series)
        ]
        for place in self._places():
            known = [values[place] for values in chosen if values[place] != _NONE]
            yield self._times[place], sum(known) if known else None

    def rates(self, topic: str | None) -> Iterator[tuple[float, float | None]]:
        """Yield the records per second between each sample and the one before."""
        chosen = [
            values for (kind, name), values in self._series.items() if kind == "end_offsets" and topic in (None, name)
        ]
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
            await asyncio.sleep(SAMPLE_S)
