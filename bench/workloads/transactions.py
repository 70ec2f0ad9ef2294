"""Transactions: committed per second, their cost and that of idempotence, and consumers that read committed records.

A transaction writes 100 records of 100 bytes to four partitions by one request, and commits. Kafka's synced side syncs
each record of the topic and of `__transaction_state` (flush.messages=1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from drivers import Driver
from flood import Flood, produce
from raw import Connection, Figures
from readback import check
from sides import Durability, Layout, Side
from transactions import Transactions, transact
from workload import Measure, Must, Sample, Workload

from workloads.fetch import fill

_OURS = (Layout.COMBINED, Layout.SEPARATE)
_STATE_TOPIC = "__transaction_state"
_LOG_BYTES = 256_000_000
#: Turns of the two loads in a round of a cost.
_TURNS = 4


def _sync_state(side: Side) -> None:
    """Have Kafka sync the coordinator's log, too. A first transaction has made the topic."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    admin = AdminClient({"bootstrap.servers": side.address})
    entry = ConfigEntry("flush.messages", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, _STATE_TOPIC, incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(30)


class Committed(Workload):
    """Transactions one after the other, of one or several producers."""

    def __init__(
        self, name: str, title: str, producers: int, bound: float, durability: Durability, *, quick: bool = True
    ) -> None:
        self.name, self.title, self.durability, self.quick = name, title, durability, quick
        self.load = Transactions(name, producers=producers)
        self.measures = (Measure("rate", "transactions/s", musts={layout: Must(bound) for layout in _OURS}),)
        self.amount = 20 * producers

    def prepare(self, side: Side) -> None:
        if side.layout is Layout.KAFKA and self.durability is Durability.SYNCED:
            with side.topic(self.name, self.load.partitions):
                Driver.shared().call(transact, side.address, self.load, self.load.producers)
            _sync_state(side)

    def run(self, side: Side, amount: int) -> Sample:
        load = self.load
        with side.topic(self.name, load.partitions):
            with side.watch() as usage:
                driven = Driver.shared().call(transact, side.address, load, amount)
            usage.cpu_seconds["driver"] = driven.cpu_seconds
            for partition, end in enumerate(side.end_offsets(self.name, load.partitions)):
                expected = amount * (load.records + 1)  # and a marker
                check(side.address, self.name, partition, end, expected, None, record_bytes=load.record_bytes)
        seconds, size = driven.result
        return Sample({"rate": amount / seconds}, seconds, size, usage)


class Cost(Workload):
    """The rate of a load as a share of the rate of the same requests without idempotence or transactions, in turns."""

    quick = False
    rounds_max = 3

    def __init__(
        self, name: str, title: str, partitions: int, amount: int, *loads: Callable[[str, int], float]
    ) -> None:
        """Compare two loads; each gets an address and a number of requests, and returns the seconds."""
        self.name, self.title, self.partitions, self.amount = name, title, partitions, amount
        self.plain, self.other = loads
        self.measures = (Measure("share of the plain rate", "×"),)

    def run(self, side: Side, amount: int) -> Sample:
        seconds = [0.0, 0.0]
        part = max(1, amount // _TURNS)
        with side.topic(self.name, self.partitions):
            for _ in range(_TURNS):
                for number, load in enumerate((self.plain, self.other)):
                    seconds[number] += load(side.address, part)
        return Sample({"share of the plain rate": seconds[0] / seconds[1]}, sum(seconds))


def _flooding(flood: Flood) -> Callable[[str, int], float]:
    return lambda address, requests: Driver.shared().call(produce, address, flood, requests).result[0].seconds


def _transacting(load: Transactions, *, plain: bool) -> Callable[[str, int], float]:
    def run(address: str, requests: int) -> float:
        count = max(1, requests // load.requests)
        return Driver.shared().call(transact, address, load, count, plain=plain).result[0]

    return run


def fetch(address: str, topic: str, size: int, end: int, *, committed: bool) -> Figures:
    connection = Connection(address, topic)
    figures = connection.fetch(size, 1 << 20, end, committed=committed)
    connection.close()
    return figures


class ReadCommitted(Workload):
    """Fetches of 1 MB from a log without transactions, with both isolation levels in turns."""

    name = "read_committed"
    quick = False
    title = "fetch, 1 MB a request, read_committed, no transactions"
    amount = 100_000_000
    measures = (
        Measure("share of the read_uncommitted rate", "×", musts={layout: Must(0.95, "value") for layout in _OURS}),
    )

    def __init__(self) -> None:
        self._ends: dict[Side, int] = {}

    def prepare(self, side: Side) -> None:
        self._ends[side], _ = fill(side, self.name, Flood(self.name, 100_000), _LOG_BYTES)

    def run(self, side: Side, amount: int) -> Sample:
        seconds = [0.0, 0.0]
        with side.watch() as usage:
            for turn in range(2 * _TURNS):
                part = amount // (2 * _TURNS)
                committed = turn % 2 > 0
                call = Driver.shared().call
                driven = call(fetch, side.address, self.name, part, self._ends[side], committed=committed)
                seconds[committed] += driven.result.seconds / driven.result.bytes
        share = seconds[False] / seconds[True]
        return Sample({"share of the read_uncommitted rate": share}, usage.seconds, amount, usage)

    def finish(self, side: Side) -> None:
        self._ends.pop(side, None)
        side.delete_topic(self.name)


def _cost_of_idempotence() -> Cost:
    flood = Flood("cost_idempotence", 16_000, acks=-1)
    title = "cost of idempotence: 16 KB batches, 1 connection, acks=all"
    return Cost(flood.topic, title, 1, 2_000, _flooding(flood), _flooding(replace(flood, idempotent=True)))


def _cost_of_transactions(name: str, title: str, requests: int) -> Cost:
    load = Transactions(name, requests=requests)
    return Cost(name, title, load.partitions, 160, _transacting(load, plain=True), _transacting(load, plain=False))


WORKLOADS: list[Workload] = [
    Committed("transactions", "transactions, 1 producer", 1, 0.7, Durability.PAGE_CACHE),
    Committed("transactions_x32", "transactions, 32 producers", 32, 0.7, Durability.PAGE_CACHE, quick=False),
    Committed("synced_transactions", "transactions, 1 producer", 1, 2.0, Durability.SYNCED),
    Committed("synced_transactions_x32", "transactions, 32 producers", 32, 2.0, Durability.SYNCED, quick=False),
    _cost_of_idempotence(),
    _cost_of_transactions("cost_transactions", "cost of transactions: 100 records each, 1 producer", 1),
    _cost_of_transactions("cost_long_transactions", "cost of transactions: 4,000 records each, 1 producer", 40),
    ReadCommitted(),
]
