"""Produce, by raw frames: what the broker takes (P1, P1b), a lone request (P1c), and both synced (P1d)."""

from __future__ import annotations

from drivers import Driver
from flood import Flood, produce
from readback import check
from sides import Durability, Layout, Side
from workload import Measure, Must, Sample, Workload

ROUND_BYTES_MAX = 1_200_000_000


class Produce(Workload):
    """Requests of equal batches, flat out."""

    def __init__(
        self,
        name: str,
        title: str,
        flood: Flood,
        musts: dict[Layout, float],
        *,
        unit: str = "MB/s",
        durability: Durability = Durability.PAGE_CACHE,
        idempotent: bool = False,
        quick: bool = True,
    ) -> None:
        self.name, self.title, self.flood, self.durability, self.quick = name, title, flood, durability, quick
        self.idempotent = idempotent
        self.measures = (Measure("rate", unit, musts={layout: Must(bound) for layout, bound in musts.items()}),)
        batch_bytes = flood.records * flood.record_bytes
        self.amount = max(flood.connections * flood.depth, min(2_000, 20_000_000 // batch_bytes))
        self.amount_max = ROUND_BYTES_MAX // batch_bytes

    def run(self, side: Side, amount: int) -> Sample:
        flood = self.flood
        with side.topic(flood.topic, flood.partitions):
            with side.watch() as usage:
                driven = Driver.shared().call(produce, side.address, flood, amount)
            usage.cpu_seconds["driver"] = driven.cpu_seconds
            figures, data = driven.result
            ends = side.end_offsets(flood.topic, flood.partitions)
            lanes = [amount // flood.connections + (n < amount % flood.connections) for n in range(flood.connections)]
            for partition, end in enumerate(ends):
                expected = sum(lanes[partition :: flood.partitions]) * flood.records
                check(side.address, flood.topic, partition, end, expected, data)
        rate = figures.megabytes_per_second if self.measures[0].unit == "MB/s" else amount / figures.seconds
        return Sample({"rate": rate}, figures.seconds, figures.bytes, usage)


WORKLOADS: list[Workload] = [
    Produce(
        "produce_16k",
        "produce, 16 KB batches, 1 connection, acks=1",
        Flood("produce-16k", 16_000),
        {Layout.ONE: 1.8, Layout.APART: 1.0},
    ),
]
