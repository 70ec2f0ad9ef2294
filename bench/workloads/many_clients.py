"""Many clients: idle ones (P8), waiting ones, greedy ones, ones that read nothing, many consumers of one topic."""

from __future__ import annotations

import time

from connections import idle, parked, unread
from drivers import Driver
from flood import Flood, produce
from raw import batch
from sides import Layout, Side
from tailing import tail
from workload import Measure, Must, Sample, Workload

from workloads.footprint import MEGABYTE
from workloads.latency import paced, produced

_OURS = (Layout.COMBINED, Layout.SEPARATE)
IDLE_CONNECTIONS = 10_000
PARKED = 100
CONSUMERS = 50


def _front(side: Side) -> int:
    """Return the process that clients are connected to."""
    processes = side.processes()
    return next(processes[name] for name in ("kafka", "broker", "gateway-svc") if name in processes)


class IdleConnections(Workload):
    name = "connections_10k"
    # Apache Kafka leaves most of such a burst to its clients' next tries: its queue has 50 places.
    layouts = _OURS
    quick = False
    title = "10,000 idle connections"
    measures = (
        Measure("growth", "MB of RSS", "less", {layout: Must(50, "value") for layout in _OURS}),
        Measure("connect", "a second", "more", {layout: Must(5_000, "value") for layout in _OURS}),
        Measure("p99", "times of a lone request's", "less", {layout: Must(1.2, "value") for layout in _OURS}),
    )
    rounds_max = 3

    def run(self, side: Side, amount: int) -> Sample:
        with side.topic(self.name):
            found = Driver.shared().call(idle, side.address, _front(side), self.name, IDLE_CONNECTIONS, 5_000).result
        time.sleep(1)  # the broker closes them
        values = {
            "growth": found.growth_bytes / MEGABYTE,
            "connect": IDLE_CONNECTIONS / found.connect_seconds,
            "p99": found.among_them_p99_ms / found.alone_p99_ms,
        }
        return Sample(values, found.connect_seconds)


class ParkedFetches(Workload):
    name = "parked_fetches"
    # Their cost is a difference around zero, so its ratio to that of Apache Kafka has no meaning.
    layouts = _OURS
    quick = False
    title = "100 fetches that wait for a record, more than the same connections without"
    measures = (
        # A timer that polled once a second would be 100; the wake-ups of gRPC's threads differ by a few.
        Measure("wake-ups", "a second", "less", {layout: Must(10, "value") for layout in _OURS}),
        Measure("processor", "% of a core", "less"),
    )
    rounds_max = 3

    def run(self, side: Side, amount: int) -> Sample:
        with side.topic(self.name):
            pids = list(side.processes().values())
            found = Driver.shared().call(parked, side.address, pids, self.name, PARKED, 4.0).result
        return Sample({"wake-ups": found.wake_ups, "processor": found.cpu_share * 100}, 8.0)


class Fairness(Workload):
    name = "fairness"
    quick = False
    rounds_max = 3
    title = "lone requests, 200 a second, while another client produces 1 MB batches flat out, acks=1"
    measures = (
        Measure("p99", "ms", "less", {layout: Must(10, "value") for layout in _OURS}),
        Measure("p50", "ms", "less"),
        Measure("flood", "MB/s"),
    )
    seconds = 3.0

    def run(self, side: Side, amount: int) -> Sample:
        with side.topic("fairness-flood") as flooded, side.topic("fairness-lone") as lone:
            flood = Driver.second().start(produced, side.address, flooded, self.seconds, 1_000_000, 5)
            time.sleep(0.3)
            figures = Driver.shared().call(paced, side.address, lone, self.seconds - 0.6, 1, 200, 1).result
            flooding = flood.result().result
        values = {
            "p99": figures.percentile(0.99),
            "p50": figures.percentile(0.5),
            "flood": flooding.megabytes_per_second,
        }
        return Sample(values, self.seconds)


class Unread(Workload):
    name = "unread"
    quick = False
    title = "10 clients that ask for 8 MB twenty times each and read nothing"
    measures = (Measure("growth", "MB of RSS", "less", {layout: Must(64, "value") for layout in _OURS}),)
    rounds_max = 1

    def run(self, side: Side, amount: int) -> Sample:
        with side.topic(self.name):
            Driver.shared().call(produce, side.address, Flood(self.name, 1_000_000), 200)
            growth = Driver.shared().call(unread, side.address, _front(side), self.name, 10, 20, 3.0).result
        return Sample({"growth": growth / MEGABYTE}, 3.0)


class Tailing(Workload):
    name = "tailing_50"
    title = "50 consumers at the end of one topic, 16 KB batches, acks=1"
    measures = (Measure("rate", "MB/s", musts={layout: Must(1.0) for layout in _OURS}),)
    amount = 500

    def run(self, side: Side, amount: int) -> Sample:
        flood = Flood(self.name, 16_000)
        size = len(batch(flood.records, flood.record_bytes))
        with side.topic(self.name), side.watch() as usage:
            tails = Driver.second().start(
                tail, side.address, self.name, CONSUMERS, size, flood.records, amount * flood.records
            )
            time.sleep(0.2)
            driven = Driver.shared().call(produce, side.address, flood, amount)
            seconds = tails.result().result
        usage.cpu_seconds["driver"] = driven.cpu_seconds + tails.result().cpu_seconds
        taken = CONSUMERS * amount * size
        return Sample({"rate": taken / seconds / 1e6}, seconds, taken, usage)


WORKLOADS: list[Workload] = [IdleConnections(), ParkedFetches(), Fairness(), Unread(), Tailing()]
