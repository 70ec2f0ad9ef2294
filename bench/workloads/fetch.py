"""Fetch, by raw frames (P3): from the page cache, again and again the same log of 1 MB batches.

Where the gateway sees storage's files it sends from them; "no shared volume" is the layout in which records come over
gRPC.
"""

from __future__ import annotations

from drivers import Driver
from flood import Flood, produce
from raw import Connection, Figures
from readback import check
from sides import Layout, Side
from workload import Measure, Must, Sample, Workload

LOG_BYTES = 512_000_000
_FLOOD = Flood("fetched", 1_000_000)


def fill(side: Side, topic: str, flood: Flood, size: int) -> tuple[int, bytes]:
    """Fill a topic of one partition with `size` bytes of records; return its end offset and the batch it is made of."""
    side.create_topic(topic)
    requests = size // (flood.records * flood.record_bytes)
    _, data = Driver.shared().call(produce, side.address, flood, requests).result
    return requests * flood.records, data


def fetch(address: str, topic: str, size: int, max_bytes: int, end: int) -> Figures:
    connection = Connection(address, topic)
    figures = connection.fetch(size, max_bytes, end)
    connection.close()
    return figures


class Fetch(Workload):
    """Fetches of one size."""

    amount = 100_000_000

    def __init__(self, name: str, title: str, max_bytes: int, *layouts: Layout, quick: bool = False) -> None:
        self.name, self.title, self.max_bytes, self.quick = name, title, max_bytes, quick
        self.layouts = (Layout.KAFKA, *layouts)
        musts: dict[Layout, Must] = {layout: Must(1.5) for layout in layouts if layout is not Layout.BY_VALUE}
        self.measures = (Measure("rate", "MB/s", musts=musts),)
        self._filled: dict[Side, tuple[int, bytes]] = {}

    def prepare(self, side: Side) -> None:
        self._filled[side] = fill(side, _FLOOD.topic, _FLOOD, LOG_BYTES)

    def run(self, side: Side, amount: int) -> Sample:
        end, data = self._filled[side]
        with side.watch() as usage:
            driven = Driver.shared().call(fetch, side.address, _FLOOD.topic, amount, self.max_bytes, end)
        usage.cpu_seconds["driver"] = driven.cpu_seconds
        (last,) = side.end_offsets(_FLOOD.topic)
        check(side.address, _FLOOD.topic, 0, last, end, data)
        figures = driven.result
        return Sample({"rate": figures.megabytes_per_second}, figures.seconds, figures.bytes, usage)

    def finish(self, side: Side) -> None:
        self._filled.pop(side, None)
        side.delete_topic(_FLOOD.topic)


WORKLOADS: list[Workload] = [
    Fetch("fetch_8m", "fetch, 8 MB a request", 8 << 20, Layout.COMBINED, Layout.SEPARATE, quick=True),
    Fetch("fetch_1m", "fetch, 1 MB a request", 1 << 20, Layout.COMBINED, Layout.SEPARATE),
    Fetch("fetch_8m_by_value", "fetch, 8 MB a request, by value", 8 << 20, Layout.BY_VALUE),
    Fetch("fetch_1m_by_value", "fetch, 1 MB a request, by value", 1 << 20, Layout.BY_VALUE),
]
