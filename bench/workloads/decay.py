"""Work whose cost should not grow: many partitions, a long log (P11), syncing (P6)."""

from __future__ import annotations

import time

from drivers import Driver
from flood import Flood, produce
from raw import Connection, batch, produce_frame
from sides import Durability, Layout, Side, start
from workload import Measure, Must, Sample, Workload

_OURS = (Layout.COMBINED, Layout.SEPARATE)
PARTITIONS = 100


def spread(address: str, topic: str, partitions: int, requests: int, batch_bytes: int, depth: int) -> float:
    """Return MB/s of batches sent to one partition after the other, `depth` in flight, on one connection."""
    data = batch(max(1, batch_bytes // 1010), 1000)
    frames = [produce_frame(topic, partition, 1, data) for partition in range(partitions)]
    connection = Connection(address, topic)
    seconds = connection.send(frames, requests, depth)
    connection.close()
    return requests * len(data) / seconds / 1e6


class ManyPartitions(Workload):
    name = "partitions_100"
    quick = False
    title = "16 KB batches to 100 partitions in turn, against 1 partition, acks=1"
    measures = (
        Measure("share", "of the rate with 1", musts={layout: Must(0.7, "value") for layout in _OURS}),
        Measure("rate", "MB/s"),
    )
    batch_bytes, depth = 16_000, 100
    rounds_max = 3

    def prepare(self, side: Side) -> None:
        side.create_topic("partitions-many", PARTITIONS)
        side.create_topic("partitions-one")

    def run(self, side: Side, amount: int) -> Sample:
        began = time.perf_counter()
        rates: dict[str, float] = {}
        requests = 8_000
        for topic, count in (("partitions-one", 1), ("partitions-many", PARTITIONS)) * 2:
            driven = Driver.shared().call(spread, side.address, topic, count, requests, self.batch_bytes, self.depth)
            rates[topic] = max(driven.result, rates.get(topic, 0.0))
        share = rates["partitions-many"] / rates["partitions-one"]
        return Sample({"share": share, "rate": rates["partitions-many"]}, time.perf_counter() - began)


class LongLog(Workload):
    name = "log_4gb"
    title = "1 MB batches to a log of 4 GB, against an empty one, acks=1"
    measures = (
        Measure("share", "of the rate with an empty one", musts={layout: Must(0.9, "value") for layout in _OURS}),
        Measure("rate", "MB/s"),
    )
    layouts = (Layout.KAFKA, Layout.COMBINED)
    quick = False
    rounds_max = 3
    piece = 300

    def prepare(self, side: Side) -> None:
        side.create_topic("log-long")
        Driver.shared().call(produce, side.address, Flood("log-long", 1_000_000), 4_100)

    def run(self, side: Side, amount: int) -> Sample:
        began = time.perf_counter()
        with side.topic("log-empty"):
            rates: dict[str, float] = {}
            for topic in ("log-long", "log-empty"):
                figures, _ = Driver.shared().call(produce, side.address, Flood(topic, 1_000_000), self.piece).result
                rates[topic] = figures.megabytes_per_second
        share = rates["log-long"] / rates["log-empty"]
        return Sample({"share": share, "rate": rates["log-long"]}, time.perf_counter() - began)


class SyncCost(Workload):
    """The cost of syncing. A second broker, which commits in groups, runs next to the side, which lets the kernel
    sync.
    """

    name = "sync_cost"
    quick = False
    title = "1 MB batches with group commit, acks=all, against flush.policy=os"
    layouts = _OURS
    measures = (Measure("share", "of the rate unsynced", musts={layout: Must(0.6, "value") for layout in _OURS}),)
    rounds_max = 3

    def __init__(self) -> None:
        self._synced: dict[Layout, Side] = {}

    def prepare(self, side: Side) -> None:
        folder = side.folder.with_name(f"{side.folder.name}-synced")
        self._synced[side.layout] = start(side.layout, Durability.SYNCED, folder)

    def run(self, side: Side, amount: int) -> Sample:
        began = time.perf_counter()
        rates = []
        for each, acks in ((side, 1), (self._synced[side.layout], -1)):
            with each.topic(self.name):
                figures, _ = (
                    Driver.shared().call(produce, each.address, Flood(self.name, 1_000_000, acks=acks), 500).result
                )
                rates.append(figures.megabytes_per_second)
        return Sample({"share": rates[1] / rates[0]}, time.perf_counter() - began)

    def finish(self, side: Side) -> None:
        self._synced.pop(side.layout).stop()


WORKLOADS: list[Workload] = [ManyPartitions(), LongLog(), SyncCost()]
