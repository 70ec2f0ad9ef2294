"""`gateway-svc` with several worker processes, over real sockets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from millrace.folders import private_folder
from millrace.ports import Reservation
from prometheus_client.parser import text_string_to_metric_families
from service_chassis.probe import check
from support.late import confluent

from tests.support.frozen import freeze
from tests.support.waiting import until

WORKERS = 2
CONNECTIONS = 40
#: Status of a service that cannot start, as when another process has its port.
TAKEN = 78


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@dataclass
class Rig:
    process: subprocess.Popen[bytes]
    kafka: str
    http: str

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return sorted(int(pid) for each in children for pid in each.read_text().split() if alive(int(pid)))

    def samples(self, name: str) -> dict[str, float]:
        """Return the sum of a metric's samples, by worker."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name:
                    worker = sample.labels["worker"]
                    found[worker] = found.get(worker, 0) + sample.value
        return found


def started(module: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", module], env={**os.environ, **settings}, stdin=subprocess.DEVNULL)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with contextlib.ExitStack() as held:
        socket_dir, _ = held.enter_context(private_folder())

        def free() -> str:
            return str(held.enter_context(Reservation("127.0.0.1", 0)).address)

        storage_http, http = free(), free()
        address = f"unix:{socket_dir}/storage.sock"
        storage = started(
            "storage_svc",
            {
                "MILLRACE_DATA_DIR": str(tmp_path / "data"),
                "MILLRACE_STORAGE_BIND": address,
                "MILLRACE_STORAGE_HTTP": storage_http,
                "MILLRACE_TOPICS": "t:4",
                "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            },
        )
        held.callback(storage.wait)
        held.callback(storage.kill)
        for _ in range(5):
            with Reservation("127.0.0.1", 0) as reserved:  # workers share a port, so nobody can hold it for them
                kafka = str(reserved.address)
            gateway = started(
                "gateway_svc",
                {
                    "MILLRACE_STORAGE_ADDRESS": address,
                    "MILLRACE_LISTENERS": f"EXTERNAL://{kafka}",
                    "MILLRACE_GATEWAY_NAME": "several",
                    "MILLRACE_GATEWAY_HTTP": http,
                    "MILLRACE_GATEWAY_WORKERS": str(WORKERS),
                    "MILLRACE_GATEWAY_LEASE_MS": "600000",
                },
            )
            held.callback(gateway.wait)
            held.callback(gateway.kill)
            until(lambda: gateway.poll() is not None or check(http) is None)  # noqa: B023
            if gateway.poll() != TAKEN:
                break
        yield Rig(gateway, kafka, http)


def test_workers_are_one_broker_to_clients(rig: Rig) -> None:
    assert len(rig.workers()) == WORKERS
    connections = [
        socket.create_connection(("127.0.0.1", int(rig.kafka.rpartition(":")[2]))) for _ in range(CONNECTIONS)
    ]
    until(lambda: sum(rig.samples("millrace_kafka_connections_open").values()) == CONNECTIONS)
    open_at = rig.samples("millrace_kafka_connections_open")
    assert open_at.keys() == {"1", "2"}
    assert min(open_at.values()) > 0
    for each in connections:
        each.close()

    producers = [confluent.Producer({"bootstrap.servers": rig.kafka, "acks": "all"}) for _ in range(6)]
    errors: list[object] = []
    for number, producer in enumerate(producers):
        producer.produce("t", str(number), on_delivery=lambda error, _: errors.append(error))
    assert [producer.flush(60) for producer in producers] == [0] * 6
    assert errors == [None] * 6
    assert len(producers[0].list_topics(timeout=60).brokers) == 1
    consumer = confluent.Consumer({"bootstrap.servers": rig.kafka, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    values: list[str] = []
    until(
        lambda: (
            [values.append(m.value().decode()) for m in [consumer.poll(0.2)] if m and not m.error()]
            and len(values) == 6
        )
    )
    consumer.close()
    assert sorted(values) == [str(number) for number in range(6)]
    with urllib.request.urlopen(f"http://{rig.http}/healthz", timeout=30) as answer:
        assert answer.status == 200

    rig.process.send_signal(signal.SIGTERM)
    workers = rig.workers()
    assert rig.process.wait(60) == 0
    assert not any(map(alive, workers))


def test_a_worker_that_dies_comes_back_and_the_others_go_on_serving(rig: Rig) -> None:
    first, second = rig.workers()
    os.kill(first, signal.SIGKILL)
    until(lambda: len(rig.workers()) == WORKERS and first not in rig.workers())
    until(lambda: check(rig.http) is None)
    assert second in rig.workers()
    producer = confluent.Producer({"bootstrap.servers": rig.kafka, "acks": "all"})
    producer.produce("t", "after")
    assert producer.flush(60) == 0
    assert rig.process.poll() is None


def test_a_worker_that_is_away_makes_the_whole_unready_and_a_frozen_one_makes_it_dead(rig: Rig) -> None:
    first, _ = rig.workers()
    freeze(first)
    fault = check(rig.http, timeout_s=30)
    assert fault is not None
    assert "answered 503" in fault
    assert "worker" in fault
    assert "answered 503" in (check(rig.http, "/healthz", timeout_s=30) or "")
    os.kill(first, signal.SIGCONT)
    until(lambda: check(rig.http) is None)
    assert check(rig.http, "/healthz", timeout_s=30) is None


def test_workers_end_with_their_parent(rig: Rig) -> None:
    workers = rig.workers()
    rig.process.kill()
    until(lambda: not any(map(alive, workers)))


def test_a_port_in_use_is_refused(rig: Rig) -> None:
    second = started(
        "gateway_svc",
        {"MILLRACE_LISTENERS": f"EXTERNAL://{rig.kafka}", "MILLRACE_GATEWAY_WORKERS": "2", "MILLRACE_GATEWAY_HTTP": ""},
    )
    assert second.wait(60) == TAKEN
    assert rig.process.poll() is None
