"""Latency under a load below the limit: end to end (P4), and at half of the broker's largest rate (P5)."""

from __future__ import annotations

import time

from drivers import Driver
from end_to_end import end_to_end
from raw import Connection, Figures
from sides import Durability, Layout, Side
from table import share
from workload import Measure, Must, Sample, Workload

RECORDS_PER_SECOND = 1_000
_OURS = (Layout.COMBINED, Layout.SEPARATE)


class EndToEnd(Workload):
    """Ours synced, Kafka's as it comes: unsynced."""

    name = "end_to_end"
    title = "end to end, 1,000 records/s of 1 KB, linger 0, acks=all"
    durability = Durability.SYNCED
    kafka_durability = Durability.PAGE_CACHE
    measures = tuple(
        Measure(name, "ms", "less", {layout: Must(bound, "value") for layout in _OURS})
        for name, bound in (("p50", 3), ("p99", 10), ("p99.9", 25))
    )
    amount = RECORDS_PER_SECOND  # records: how many a round takes follows from its seconds, on every side

    def run(self, side: Side, amount: int) -> Sample:
        seconds = amount / RECORDS_PER_SECOND
        with side.topic(self.name), side.watch() as usage:
            driven = Driver.shared().call(
                end_to_end,
                side.address,
                self.name,
                per_second=RECORDS_PER_SECOND,
                seconds=seconds,
                warm_seconds=seconds / 10,
            )
        usage.cpu_seconds["driver"] = driven.cpu_seconds
        values = {name: share(driven.result, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))}
        return Sample(values, seconds, usage=usage)


def produced(address: str, topic: str, seconds: float, batch_bytes: int, depth: int) -> Figures:
    """Produce flat out for a while, on one connection."""
    connection = Connection(address, topic)
    total = Figures(0, 0, 0.0, [])
    piece = max(depth, 50_000_000 // batch_bytes)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        figures = connection.produce(piece, batch_bytes, depth=depth)
        total.requests += figures.requests
        total.bytes += figures.bytes
        total.seconds += figures.seconds
    connection.close()
    return total


def paced(address: str, topic: str, seconds: float, batch_bytes: int, per_second: float, acks: int) -> Figures:
    """Produce at a steady rate for a while; latencies count from the time at which each request was due."""
    connection = Connection(address, topic)
    until = time.perf_counter() + seconds
    figures = connection.paced(lambda: time.perf_counter() >= until, batch_bytes, per_second, acks=acks)
    connection.close()
    return figures


class HalfLoad(Workload):
    """The rate is measured first, in every round, on every side its own."""

    name = "half_load"
    quick = False
    title = "p99 of 1 MB batches at half the rate the side takes them, acks=1"
    measures = (
        Measure("p50", "ms", "less"),
        Measure("p99", "ms", "less", {layout: Must(25, "value") for layout in _OURS}),
        Measure("load", "MB/s"),
    )
    batch_bytes = 1_000_000
    rounds_max = 3

    def run(self, side: Side, amount: int) -> Sample:
        drive = Driver.shared().call
        with side.topic(self.name):
            full = drive(produced, side.address, self.name, 1.0, self.batch_bytes, 5).result
            per_second = full.requests / full.seconds / 2
            half = drive(paced, side.address, self.name, 2.5, self.batch_bytes, per_second, 1).result
        values = {"p50": half.percentile(0.5), "p99": half.percentile(0.99), "load": half.megabytes_per_second}
        return Sample(values, half.seconds, half.bytes)


WORKLOADS: list[Workload] = [EndToEnd(), HalfLoad()]
