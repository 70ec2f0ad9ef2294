"""From the open port until groups and transactions are served: 100 MB in one partition of each coordinators' topic.

The brokers take turns: `millrace up` in combined mode, and Apache Kafka where Java 17 is installed. Each fills its own
data folder with commits of 100 groups and producers of 4 transactional ids, and is stopped in order. The largest
partition of `__consumer_offsets` and of `__transaction_state` then gets its own records again and again, as hours of a
steady load leave them. Each start has a fresh copy of that folder.

Served are all groups and all ids: an OffsetFetch of each group has its offset, an InitProducerId of each id a producer.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from log_restart import GROUPS, TRANSACTIONAL_IDS, Coordinators
from millrace.ports import Reservation
from protocol_lib.client import Admin
from sides import JVM, PROPERTIES, Layout, up_command
from support.kafka_broker import KafkaNode
from table import Row

TOPICS = ("__consumer_offsets", "__transaction_state")
#: Bytes of the enlarged partitions, with a scale of 1; commits of each group and producers of each id before that.
PARTITION_BYTES = 100_000_000
COMMITS, PRODUCERS = 20, 200
STARTS = 2
#: A batch's base offset and its length, which are its first bytes, and its last offset delta.
_BASE, _LENGTH, _LAST_DELTA = struct.Struct(">q"), struct.Struct(">i"), struct.Struct(">i")
_HEAD_BYTES, _LAST_DELTA_AT = 12, 23
#: Files that a broker makes again from a segment.
_DERIVED = {".index", ".timeindex", ".snapshot", ".txnindex"}


class Broker(ABC):
    """A broker that is started and stopped on one data folder, under one address."""

    name: str
    address: str
    data: Path

    @abstractmethod
    def start(self) -> None:
        """Return when it serves its address."""

    @abstractmethod
    def stop(self) -> None:
        """Stop in order."""


class Millrace(Broker):
    name = "combined"

    def __init__(self, folder: Path, address: Reservation) -> None:
        self.address, self.data = str(address.address), folder / "data"
        self._command = up_command(Layout.COMBINED, self.data, address.address.port)
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError("millrace up is not ready")

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class ApacheKafka(Broker):
    name = "Apache Kafka"

    def __init__(self, folder: Path) -> None:
        self._node = KafkaNode(folder, PROPERTIES.read_text(), ["PLAINTEXT"], jvm=JVM)
        self.address, self.data = self._node.bootstrap, self._node.data

    def start(self) -> None:
        self._node.start()

    def stop(self) -> None:
        self._node.stop()


def _fill(broker: Broker) -> None:
    """Have a broker store some records of each group and of each transactional id, and stop it."""
    broker.start()
    asyncio.run(_create_topic(broker.address))
    coordinators = Coordinators(broker.address)
    coordinators.find()
    coordinators.fill(COMMITS, PRODUCERS)
    coordinators.close()
    broker.stop()


async def _create_topic(address: str) -> None:
    async with Admin(address) as admin:
        await admin.topics.create("t", partitions=1, replication_factor=1, configs={})


def _enlarge(data: Path, topic: str, size: int) -> None:
    """Repeat the records of the largest partition of a topic until its one segment has this size."""
    segment = max(data.rglob(f"{topic}-*/*.log"), key=lambda path: path.stat().st_size)
    batches = list(_batches(segment.read_bytes()))
    offset = written = 0
    with segment.open("wb") as file:
        while written < size:
            for batch in batches:
                file.write(_BASE.pack(offset) + batch[_BASE.size :])
                offset += _LAST_DELTA.unpack_from(batch, _LAST_DELTA_AT)[0] + 1
                written += len(batch)
    for path in segment.parent.iterdir():
        if path.suffix in _DERIVED:
            path.unlink()


def _batches(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + _HEAD_BYTES < len(data) and (length := _LENGTH.unpack_from(data, at + _BASE.size)[0]) > 0:
        yield data[at : at + _HEAD_BYTES + length]
        at += _HEAD_BYTES + length


def _served_s(broker: Broker) -> float:
    """Start a broker; return the seconds from its open port until everything is served. Then stop it."""
    opened: list[float] = []
    watch = threading.Thread(target=_await_port, args=(broker.address, opened))
    watch.start()
    broker.start()
    watch.join()
    coordinators = Coordinators(broker.address)
    coordinators.wait()
    seconds = time.perf_counter() - opened[0]
    coordinators.close()
    broker.stop()
    return seconds


def _await_port(address: str, opened: list[float]) -> None:
    """Note the time at which an address first accepts a connection."""
    host, _, port = address.rpartition(":")
    while not opened:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
            opened.append(time.perf_counter())
        time.sleep(0.005)


def measure(folder: Path, scale: float) -> list[Row]:
    size = int(PARTITION_BYTES * scale)
    seconds: dict[str, list[float]] = {}
    with Reservation("127.0.0.1", 0) as address:
        brokers: list[Broker] = [Millrace(folder / "millrace", address)]
        if shutil.which("java"):
            brokers.append(ApacheKafka(folder / "kafka"))
        for broker in brokers:
            broker.data.parent.mkdir(parents=True, exist_ok=True)
            _fill(broker)
            for topic in TOPICS:
                _enlarge(broker.data, topic, size)
            broker.data.rename(broker.data.with_name("enlarged"))
        for _ in range(STARTS):
            for broker in brokers:
                shutil.copytree(broker.data.with_name("enlarged"), broker.data)
                seconds.setdefault(broker.name, []).append(_served_s(broker))
                shutil.rmtree(broker.data)
    figure = f"open port to {len(GROUPS)} groups and {len(TRANSACTIONAL_IDS)} ids served, {size / 1e6:.0f} MB each"
    ours, theirs = seconds[Millrace.name], seconds.get(ApacheKafka.name)
    must = "≤ 3 s" if theirs is None else f"≤ 3 s, ≤ {min(theirs):.2f} s"
    rows = [Row(figure, must, ", ".join(f"{each:.2f} s" for each in ours))]
    if theirs is not None:
        rows.append(Row("  Apache Kafka in the same run", "", ", ".join(f"{each:.2f} s" for each in theirs)))
    return rows
