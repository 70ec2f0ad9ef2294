"""The footprint of a broker: its start, memory, and processor time without requests (P3b, P9)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from drivers import Driver
from flood import Flood, produce
from millrace.ports import Reservation
from processes import descendants, memory_bytes
from raw import Connection, metadata_frame, receive
from sides import ALIKE, JVM, PROPERTIES, Layout, Side, up_command
from support.kafka_broker import KafkaNode
from workload import Measure, Must, Sample, Workload

_START_TIMEOUT_S = 60
_OURS = (Layout.COMBINED, Layout.SEPARATE)
MEGABYTE = 1e6
LOAD_BYTES = 6_000_000_000
IDLE_TOPICS = 100


def await_metadata(address: str) -> None:
    """Ask until the broker answers."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        with contextlib.suppress(OSError, EOFError), socket.create_connection((host, int(port)), 1) as connection:
            connection.sendall(metadata_frame())
            receive(connection, struct.unpack(">i", receive(connection, 4))[0])
            return
        if time.monotonic() > deadline:
            raise RuntimeError("the broker does not answer")
        time.sleep(0.002)


@contextlib.contextmanager
def _kafka(folder: Path) -> Iterator[tuple[float, list[int]]]:
    """Start a Kafka broker; yield the seconds to its first answer, and its processes once it is ready."""
    node = KafkaNode(folder, PROPERTIES.read_text(), ["PLAINTEXT"], jvm=JVM)  # formats the folder: not timed
    try:
        began = time.perf_counter()
        node.start()
        await_metadata(node.bootstrap)
        yield time.perf_counter() - began, [node.pid]
    finally:
        node.kill()


@contextlib.contextmanager
def _millrace(folder: Path, layout: Layout) -> Iterator[tuple[float, list[int]]]:
    with Reservation("127.0.0.1", 0) as reservation:
        address = reservation.address
        began = time.perf_counter()
        process = subprocess.Popen(
            up_command(layout, folder, kafka_port=address.port),
            env={**os.environ, **ALIKE},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            await_metadata(str(address))
            seconds = time.perf_counter() - began
            assert process.stdout is not None
            if not process.stdout.readline():
                raise RuntimeError("millrace up ended")
            yield seconds, [process.pid, *descendants(process.pid)]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_START_TIMEOUT_S)


class Start(Workload):
    """The start of a new broker on an empty data folder, each round."""

    name = "start"
    title = "start to the first Metadata answer, and memory of all processes when ready"
    measures = (
        Measure("time", "s", "less", {Layout.COMBINED: Must(0.35)}),
        Measure("rss", "MB", "less", {Layout.COMBINED: Must(0.45)}),
        Measure("pss", "MB", "less"),
    )

    def run(self, side: Side, amount: int) -> Sample:
        folder = side.folder.with_name(f"{side.folder.name}-start")
        starting = _kafka(folder) if side.layout is Layout.KAFKA else _millrace(folder, side.layout)
        try:
            with starting as (seconds, pids):
                time.sleep(0.2)
                rss, pss = map(sum, zip(*map(memory_bytes, pids), strict=True))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return Sample({"time": seconds, "rss": rss / MEGABYTE, "pss": pss / MEGABYTE}, seconds)


def fetched(address: str, topic: str, total_bytes: int) -> None:
    connection = Connection(address, topic)
    connection.fetch(total_bytes, 1 << 20)
    connection.close()


class Loaded(Workload):
    """Memory after load: half of the bytes are produced, in batches of 16 KB and of 1 MB, half are fetched. Earlier
    rows count.
    """

    name = "memory_loaded"
    title = "memory of all processes after 6 GB of load"
    measures = (Measure("rss", "MB", "less", {Layout.COMBINED: Must(0.2)}), Measure("pss", "MB", "less"))
    layouts = (Layout.KAFKA, Layout.COMBINED)
    quick = False
    rounds_max = 1

    def run(self, side: Side, amount: int) -> Sample:
        drive = Driver.shared().call
        quarter = LOAD_BYTES // 4
        with side.topic(self.name):
            with side.watch() as usage:
                for batch_bytes, depth in ((16_000, 20), (1_000_000, 5)):
                    flood = Flood(self.name, batch_bytes, depth=depth)
                    drive(produce, side.address, flood, quarter // (flood.records * flood.record_bytes))
            with side.topic(f"{self.name}-fetch") as topic, side.watch() as usage:
                drive(produce, side.address, Flood(topic, 1_000_000), 200)
                drive(fetched, side.address, topic, LOAD_BYTES // 2)
        rss, pss = sum(usage.rss_bytes.values()), sum(usage.pss_bytes.values())
        return Sample({"rss": rss / MEGABYTE, "pss": pss / MEGABYTE}, usage.seconds, usage=usage)


class IdleTopics(Workload):
    name = "idle"
    quick = False
    title = "idle with 100 topics"
    measures = (
        Measure("processor", "% of a core", "less", {layout: Must(2, "value") for layout in _OURS}),
        Measure("rss", "MB", "less", {Layout.SEPARATE: Must(250, "value")}),
    )
    rounds_max = 1

    def prepare(self, side: Side) -> None:
        for number in range(IDLE_TOPICS):
            side.create_topic(f"idle-{number}")
        time.sleep(2)

    def run(self, side: Side, amount: int) -> Sample:
        with side.watch() as usage:
            time.sleep(8)
        cpu = sum(usage.cpu_seconds.values()) / usage.seconds * 100
        return Sample({"processor": cpu, "rss": sum(usage.rss_bytes.values()) / MEGABYTE}, usage.seconds, usage=usage)


WORKLOADS: list[Workload] = [Start(), Loaded(), IdleTopics()]
