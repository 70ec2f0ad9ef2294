"""Many partitions: start, stop, recovery, memory and creation of a combined broker with 1,000, 5,000 and 10,000.

Each start is timed from the process to the first answered request. Before `kill -9` each partition gets a record that
no clean stop covered. The rows give seconds of the clock and of the broker's processors: a busy machine stretches
the former only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from millrace.ports import Reservation
from raw import Connection
from service_chassis.probe import check
from table import Row

COUNTS = (1_000, 5_000, 10_000)
PARTITIONS_OF_TOPIC = 50
_TARGETS = {"stop": 2.0, "start": 4.0, "recovery": 5.0}
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds for one step on the slowest machine.
_PATIENCE_S = 300.0


@dataclass
class _Broker:
    process: subprocess.Popen[bytes]
    kafka: str

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_megabytes(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE / 1e6

    def stop(self) -> tuple[float, float]:
        """Stop in order; return seconds, and those of the processors."""
        assert self.process.stdin is not None
        before, began = self.processor_seconds(), time.perf_counter()
        self.process.stdin.close()
        _, _, used = os.wait4(self.process.pid, 0)
        return time.perf_counter() - began, used.ru_utime + used.ru_stime - before

    def kill(self) -> None:
        """End without a stop."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def _addresses() -> Iterator[tuple[str, str]]:
    with Reservation("127.0.0.1", 0) as kafka, Reservation("127.0.0.1", 0) as http:
        yield str(kafka.address), str(http.address)


def _started(folder: Path, kafka: str, http: str) -> tuple[_Broker, float, float]:
    """Start a broker; return it, the seconds to its readiness, and those of the processors."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "millrace.service", "broker"],
        stdin=subprocess.PIPE,
        env={
            **os.environ,
            "MILLRACE_DATA_DIR": str(folder),
            "MILLRACE_GATEWAY_DATA_DIR": str(folder),
            "MILLRACE_LISTENERS": f"EXTERNAL://{kafka}",
            "MILLRACE_BROKER_HTTP": http,
            "MILLRACE_STORAGE_BIND": f"unix:{folder}.sock",
            "MILLRACE_PARTITIONS_MAX": "20000",
            "MILLRACE_STOP_DEADLINE_S": "3600",
            "MILLRACE_LOG_LEVEL": "error",
        },
    )
    broker = _Broker(process, kafka)
    while (fault := check(http)) is not None:
        if process.poll() is not None or time.perf_counter() - began > _PATIENCE_S:
            raise RuntimeError(f"the broker did not start: {fault}")
        time.sleep(0.01)
    return broker, time.perf_counter() - began, broker.processor_seconds()


def _create(kafka: str, count: int) -> float:
    topics = [NewTopic(f"t{number}", PARTITIONS_OF_TOPIC, 1) for number in range(count // PARTITIONS_OF_TOPIC)]
    admin, began = AdminClient({"bootstrap.servers": kafka}), time.perf_counter()
    for future in admin.create_topics(topics, request_timeout=_PATIENCE_S).values():
        future.result()
    return time.perf_counter() - began


def _produce(kafka: str, count: int) -> float:
    """Produce a record to each partition; return the seconds."""
    producer = Producer({"bootstrap.servers": kafka, "acks": "all", "linger.ms": 5})
    began = time.perf_counter()
    for number in range(count // PARTITIONS_OF_TOPIC):
        for partition in range(PARTITIONS_OF_TOPIC):
            producer.produce(f"t{number}", b"x" * 100, partition=partition)
        producer.poll(0)
    if producer.flush(_PATIENCE_S):
        raise RuntimeError("records were not acknowledged")
    return time.perf_counter() - began


def _measure(folder: Path, count: int) -> list[Row]:
    def row(figure: str, kind: str, clock: float, processor: float | None = None) -> Row:
        target = f"<= {_TARGETS[kind]:g} s" if count == COUNTS[-1] and kind in _TARGETS else ""
        cell = f"{clock:.2f} s" + ("" if processor is None else f", of the processors {processor:.2f} s")
        return Row(f"{count:,} partitions: {figure}", target, cell)

    with _addresses() as (kafka, http):
        broker, _, _ = _started(folder, kafka, http)
        rows = [row("making them", "", _create(kafka, count)), row("a record to each", "", _produce(kafka, count))]
        rows.append(Row(f"{count:,} partitions: resident memory", "", f"{broker.resident_megabytes():.0f} MB"))
        rows.append(row("stop after records to each", "stop", *broker.stop()))
        broker, *seconds = _started(folder, kafka, http)
        rows.append(row("clean start", "start", *seconds))
        rows.append(
            Row(f"{count:,} partitions: resident memory after a start", "", f"{broker.resident_megabytes():.0f} MB")
        )
        rows.append(row("stop without records", "stop", *broker.stop()))
        broker, _, _ = _started(folder, kafka, http)
        _produce(kafka, count)
        broker.kill()
        began = time.perf_counter()
        broker, _, processor = _started(folder, kafka, http)
        connection = Connection(kafka, "t0", 0)
        connection.produce(1, 100, acks=-1)
        rows.append(row("kill -9 to the first acks=all record", "recovery", time.perf_counter() - began, processor))
        connection.close()
        rows.append(row("stop after a recovery", "stop", *broker.stop()))
    return rows


def measure(folder: Path, scale: float) -> list[Row]:
    counts = [max(PARTITIONS_OF_TOPIC, int(count * scale)) for count in COUNTS]
    return [row for count in counts for row in _measure(folder / str(count), count)]
