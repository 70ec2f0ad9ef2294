"""Produce, by raw frames: the broker's largest rate, of each codec as well, a lone request, and both synced."""

from __future__ import annotations

from drivers import Driver
from flood import Flood, produce
from protocol_lib.records.compression import Codec
from raw import Connection, Figures, batch
from readback import check
from sides import Durability, Layout, Side
from workload import Measure, Must, Sample, Workload

ROUND_BYTES_MAX = 1_200_000_000
#: Factor of the targets of an idempotent producer.
IDEMPOTENT = 0.9


class Produce(Workload):
    """Requests of equal batches, flat out."""

    def __init__(
        self,
        name: str,
        title: str,
        flood: Flood,
        musts: dict[Layout, float],
        durability: Durability = Durability.PAGE_CACHE,
        *,
        unit: str = "MB/s",
        quick: bool = True,
        rounds_max: int | None = None,
    ) -> None:
        self.name, self.title, self.flood, self.durability, self.quick = name, title, flood, durability, quick
        self.rounds_max = rounds_max
        self.measures = (Measure("rate", unit, musts={layout: Must(bound) for layout, bound in musts.items()}),)
        batch_bytes = flood.records * flood.record_bytes
        self.amount = max(flood.connections * flood.depth, min(2_000, 6_000_000 // batch_bytes))
        self.amount_max = ROUND_BYTES_MAX // batch_bytes

    def run(self, side: Side, amount: int) -> Sample:
        flood = self.flood
        with side.topic(flood.topic, flood.partitions):
            with side.watch() as usage:
                driven = Driver.shared().call(produce, side.address, flood, amount)
            usage.cpu_seconds["driver"] = driven.cpu_seconds
            figures, data = driven.result
            ends = side.end_offsets(flood.topic, flood.partitions)
            for partition, end in enumerate(ends):
                requests = sum(flood.shares(amount)[partition :: flood.partitions])
                check(side.address, flood.topic, partition, end, requests * flood.records, data)
        rate = figures.megabytes_per_second if self.measures[0].unit == "MB/s" else amount / figures.seconds
        return Sample({"rate": rate}, figures.seconds, figures.bytes, usage)


def ping(address: str, topic: str, requests: int, acks: int) -> tuple[Figures, int]:
    """Send lone requests of one record of 100 bytes; return the figures and the length of their batch."""
    connection = Connection(address, topic)
    figures = connection.ping(requests, acks=acks)
    connection.close()
    return figures, len(batch(1, 100))


class Lone(Workload):
    """One-record requests, one at a time: each waits for the answer to the last."""

    amount = 500

    def __init__(self, name: str, title: str, acks: int, musts: dict[Layout, float], durability: Durability) -> None:
        self.name, self.title, self.acks, self.durability = name, title, acks, durability
        bounds = {layout: Must(bound) for layout, bound in musts.items()}
        self.measures = (Measure("p50", "ms", "less", bounds), Measure("p99", "ms", "less"))

    def run(self, side: Side, amount: int) -> Sample:
        with side.topic(self.name):
            with side.watch() as usage:
                driven = Driver.shared().call(ping, side.address, self.name, amount, self.acks)
            usage.cpu_seconds["driver"] = driven.cpu_seconds
            figures, batch_bytes = driven.result
            (end,) = side.end_offsets(self.name)
            check(side.address, self.name, 0, end, amount, None, record_bytes=batch_bytes)
        values = {"p50": figures.percentile(0.5), "p99": figures.percentile(0.99)}
        return Sample(values, figures.seconds, figures.bytes, usage)


def _idempotent(name: str, title: str, flood: Flood, musts: dict[Layout, float], unit: str = "MB/s") -> Produce:
    """Return the same workload by producers with an id."""
    flood = Flood(
        f"{flood.topic}-idempotent",
        flood.batch_bytes,
        flood.record_bytes,
        flood.connections,
        flood.depth,
        acks=-1,
        idempotent=True,
    )
    lower = {layout: round(bound * IDEMPOTENT, 3) for layout, bound in musts.items()}
    return Produce(
        f"{name}_idempotent", f"produce, {title}, idempotent", flood, lower, unit=unit, quick=False, rounds_max=3
    )


COMBINED, SEPARATE, SYNCED = Layout.COMBINED, Layout.SEPARATE, Durability.SYNCED
_PLAIN = [
    ("produce_1m", "1 MB batches, 1 connection", Flood("p", 1_000_000), {COMBINED: 1.3, SEPARATE: 1.2}, "MB/s"),
    ("produce_16k", "16 KB batches, 1 connection", Flood("p", 16_000), {COMBINED: 1.8, SEPARATE: 1.0}, "MB/s"),
    (
        "produce_16k_x4",
        "16 KB batches, 4 connections",
        Flood("p", 16_000, connections=4),
        {COMBINED: 1.8, SEPARATE: 1.5},
        "MB/s",
    ),
    (
        "produce_records",
        "one-record requests, 50 deep",
        Flood("p", 100, 100, depth=50),
        {COMBINED: 2.5, SEPARATE: 1.5},
        "requests/s",
    ),
    (
        "produce_records_x4",
        "one-record requests, 4 connections, 20 deep each",
        Flood("p", 100, 100, connections=4, depth=20),
        {COMBINED: 2.0, SEPARATE: 1.7},
        "requests/s",
    ),
]

WORKLOADS: list[Workload] = [
    *(
        Produce(name, f"produce, {title}", flood, musts, unit=unit, quick=name != "produce_records_x4")
        for name, title, flood, musts, unit in _PLAIN
    ),
    Produce(
        "produce_1m_100",
        "produce, 1 MB batches of 100 B records, 1 connection",
        Flood("p", 1_000_000, 100),
        {COMBINED: 1.0, SEPARATE: 1.0},
    ),
    *(
        Produce(
            f"produce_1m_{codec.name.lower()}",
            f"produce, 1 MB batches in {codec.name.lower()}, 1 connection",
            Flood("p", 1_000_000, codec=codec),
            {COMBINED: 1.0, SEPARATE: 1.0},
            quick=codec is Codec.LZ4,
            rounds_max=None if codec is Codec.LZ4 else 3,
        )
        for codec in (Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP)
    ),
    Lone("lone", "lone one-record request", 1, {COMBINED: 1.2, SEPARATE: 4.0}, Durability.PAGE_CACHE),
    *(_idempotent(name, title, flood, musts, unit) for name, title, flood, musts, unit in _PLAIN),
    Produce(
        "synced_1m",
        "produce, 1 MB batches, 1 connection",
        Flood("s", 1_000_000, acks=-1),
        {COMBINED: 1.2},
        SYNCED,
        quick=False,
    ),
    Produce(
        "synced_16k_x4",
        "produce, 16 KB batches, 4 connections",
        Flood("s", 16_000, connections=4, acks=-1),
        {COMBINED: 3.0},
        SYNCED,
    ),
    Produce(
        "synced_16k_x4_partitions",
        "produce, 16 KB batches, 4 connections, a partition each",
        Flood("s", 16_000, connections=4, acks=-1, partitions=4),
        {},
        SYNCED,
        quick=False,
    ),
    Lone("synced_lone", "lone one-record request", -1, {COMBINED: 1.2}, SYNCED),
]
