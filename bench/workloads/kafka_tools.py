"""Apache Kafka's ProducerPerformance and ConsumerPerformance, on a JVM each time: reported.

Their reported figures count: the JVM's start is not in them, its warming up is.
"""

from __future__ import annotations

import re
import resource

from drivers import Driver
from flood import Flood
from processes import Usage
from readback import check
from sides import Side
from support.kafka_broker import java
from workload import Measure, Sample, Workload

from workloads.fetch import fill

RECORD_BYTES = 1_000
RECORDS = 500_000


def tool(name: str, *arguments: str) -> tuple[str, float]:
    """Run a tool; return its output and its processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = java(f"org.apache.kafka.tools.{name}", *arguments, jvm=("java", "-Xmx512m"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return output, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_tool(name: str, side: Side, topic: str, records: int, *arguments: str) -> tuple[str, Usage]:
    """Run a tool against a side; return its output, and the usage of the tool and the side."""
    places = ("--bootstrap-server", side.address, "--topic", topic, "--num-records", str(records))
    with side.watch() as usage:
        output, cpu_seconds = Driver.shared().call(tool, name, *places, *arguments).result
    usage.cpu_seconds["driver"] = cpu_seconds
    return output, usage


class ProducerPerformance(Workload):
    name, title = "producer_performance", "ProducerPerformance, 1 KB records"
    measures = (Measure("rate", "MB/s"),)
    quick = False
    rounds_max = 3

    def run(self, side: Side, amount: int) -> Sample:
        with side.topic(self.name):
            size_and_rate = ("--record-size", str(RECORD_BYTES), "--throughput", "-1")
            output, usage = run_tool("ProducerPerformance", side, self.name, RECORDS, *size_and_rate)
            (end,) = side.end_offsets(self.name)
            check(side.address, self.name, 0, end, RECORDS, None, record_bytes=RECORD_BYTES)
        found = re.findall(r"([\d.]+) records sent, ([\d.]+) records/sec", output)
        rate = float(found[-1][1]) * RECORD_BYTES / 1e6
        size = RECORDS * RECORD_BYTES
        return Sample({"rate": rate}, size / rate / 1e6, size, usage)


class ConsumerPerformance(Workload):
    """The tool's figure without the time of joining the group."""

    name, title = "consumer_performance", "ConsumerPerformance, 1 KB records"
    measures = (Measure("rate", "MB/s"),)
    quick = False
    rounds_max = 3

    def __init__(self) -> None:
        self._filled: dict[Side, tuple[int, bytes]] = {}

    def prepare(self, side: Side) -> None:
        self._filled[side] = fill(side, self.name, Flood(self.name, 100_000), RECORDS * RECORD_BYTES)

    def run(self, side: Side, amount: int) -> Sample:
        end, data = self._filled[side]
        output, usage = run_tool("ConsumerPerformance", side, self.name, end)
        (last,) = side.end_offsets(self.name)
        check(side.address, self.name, 0, last, end, data)
        heads, values = (line.split(",") for line in output.strip().splitlines()[-2:])
        figures = dict(zip((head.strip() for head in heads), (value.strip() for value in values), strict=True))
        consumed, seconds = int(figures["data.consumed.in.nMsg"]), int(figures["fetch.time.ms"]) / 1000
        if consumed < end:
            raise RuntimeError(f"{consumed} of {end} records were consumed")
        size = consumed * RECORD_BYTES
        return Sample({"rate": size / seconds / 1e6}, seconds, size, usage)

    def finish(self, side: Side) -> None:
        self._filled.pop(side, None)
        side.delete_topic(self.name)


WORKLOADS: list[Workload] = [ProducerPerformance(), ConsumerPerformance()]
