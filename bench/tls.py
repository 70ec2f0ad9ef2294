"""What TLS costs: one broker with a listener of each kind, in alternating rounds, and Apache Kafka's TLS.

`python bench/tls.py [--rounds NUMBER] [--connections NUMBER]` prints medians; `make bench-parts` runs it. The client is
Python's ssl, in this process. Where it is the slower end, the broker's processor time tells more than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # Apache Kafka's node

from millrace.ports import Reservation
from processes import cpu_seconds, memory_bytes
from protocol_lib.client import Admin
from raw import Connection
from service_chassis.probe import check
from sides import JVM, PROPERTIES
from support.kafka_broker import KafkaNode
from table import Row, show

MEGABYTE = 1_000_000
_LISTENERS = ("PLAINTEXT", "SSL")
_TOPICS = ("large", "small")


@dataclass
class Broker:
    """A running broker with two listeners."""

    pid: int
    addresses: dict[str, str]
    trust: ssl.SSLContext


@dataclass
class Pair:
    """A private key and its certificate, as PEM files in a folder of their own."""

    key: Path
    certificate: Path

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


@contextmanager
def _pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(Path(folder) / "key.pem", Path(folder) / "certificate.pem")
        made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
        files = ["-keyout", str(pair.key), "-out", str(pair.certificate)]
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run([*made.split(), *names, *files], check=True, capture_output=True)
        yield pair


@contextmanager
def running() -> Iterator[Broker]:
    with ExitStack() as held:
        pair = held.enter_context(_pair())
        folder = pair.key.parent
        ports = [held.enter_context(Reservation("127.0.0.1", 0)).address for _ in range(3)]
        addresses = dict(zip(_LISTENERS, map(str, ports[:2]), strict=True))
        settings = {
            "MILLRACE_LISTENERS": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "MILLRACE_SSL_KEY_FILE": str(pair.key),
            "MILLRACE_SSL_CERTIFICATE_FILE": str(pair.certificate),
            "MILLRACE_DATA_DIR": str(folder / "data"),
            "MILLRACE_GATEWAY_DATA_DIR": str(folder / "data"),
            "MILLRACE_BROKER_HTTP": str(ports[2]),
            "MILLRACE_STORAGE_BIND": f"unix:{folder / 'storage'}",
            "MILLRACE_TOPICS": ",".join(f"{topic}:1" for topic in _TOPICS),
            "MILLRACE_MAX_CONNECTIONS": "1000000",
            "MILLRACE_MAX_CONNECTIONS_PER_IP": "1000000",
            "MILLRACE_CONNECTIONS_PER_SECOND": "0",
            "MILLRACE_FLUSH_POLICY": "os",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "millrace.service", "broker"],
            stdin=subprocess.PIPE,
            env={**os.environ, **settings, "MILLRACE_LOG_LEVEL": "error"},
        )
        held.callback(process.wait)
        assert process.stdin is not None
        held.callback(process.stdin.close)
        while check(str(ports[2]), "/readyz") is not None:
            if process.poll() is not None:
                raise RuntimeError("the broker has not started")
            time.sleep(0.05)
        yield Broker(process.pid, addresses, pair.trust)


@contextmanager
def apache_kafka() -> Iterator[Broker]:
    with _pair() as pair, tempfile.TemporaryDirectory() as folder:
        joined = pair.key.with_name("both.pem")
        joined.write_text(pair.key.read_text() + pair.certificate.read_text())
        settings = {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(joined),
            "auto.create.topics.enable": "true",
        }
        with KafkaNode(Path(folder), PROPERTIES.read_text(), _LISTENERS, settings=settings, jvm=JVM) as node:
            asyncio.run(_create(node.bootstrap))
            yield Broker(node.pid, node.addresses, pair.trust)


async def _create(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        for topic in _TOPICS:
            await admin.topics.create(topic, partitions=1, replication_factor=1)


def _connection(broker: Broker, listener: str, topic: str) -> Connection:
    tls = broker.trust if listener == "SSL" else None
    return Connection(broker.addresses[listener], topic, tls=tls)


#: One end of a comparison: a broker and the listener whose clients it serves.
Place = tuple[Broker, str]
_Load = Callable[[Broker, str], float]


def _compared(name: str, target: str, first: Place, second: Place, rounds: int, run: _Load) -> Row:
    """Return the median ratio of rates, the first place's to the second's, and that of the broker's processor time."""
    rates, costs = [], []
    for turn in range(rounds + 1):
        figures = {}
        for place in (first, second) if turn % 2 else (second, first):
            broker, listener = place
            before = cpu_seconds([broker.pid])
            rate = run(broker, listener)
            figures[id(place)] = rate, cpu_seconds([broker.pid]) - before
        if turn:
            (rate, cost), (other_rate, other_cost) = figures[id(first)], figures[id(second)]
            rates.append(rate / other_rate)
            costs.append(cost / max(other_cost, 0.01))
    return Row(name, target, f"{statistics.median(rates):.2f}, processor time {statistics.median(costs):.2f}")


def _produce(broker: Broker, listener: str) -> float:
    connection = _connection(broker, listener, "large")
    figures = connection.produce(200, MEGABYTE, depth=5)
    connection.close()
    return figures.megabytes_per_second


def _small(broker: Broker, listener: str) -> float:
    connection = _connection(broker, listener, "small")
    figures = connection.produce(20_000, 100, depth=50, record_bytes=90)
    connection.close()
    return figures.requests / figures.seconds


def _fetch(broker: Broker, listener: str) -> float:
    connection = _connection(broker, listener, "large")
    figures = connection.fetch(400 * MEGABYTE, 8 << 20)
    connection.close()
    return figures.megabytes_per_second


def _to_plaintext(broker: Broker, rounds: int) -> list[Row]:
    tls, plain = (broker, "SSL"), (broker, "PLAINTEXT")
    return [
        _compared("produce 1 MB, TLS to plaintext", ">= 0.6", tls, plain, rounds, _produce),
        _compared("one record, 50 deep", ">= 0.6", tls, plain, rounds, _small),
        _compared("fetch 8 MB", ">= 0.25", tls, plain, rounds, _fetch),
    ]


def _to_kafka(ours: Broker, theirs: Broker, rounds: int) -> list[Row]:
    first, second = (ours, "SSL"), (theirs, "SSL")
    return [
        _compared("produce 1 MB, TLS, to Apache Kafka", ">= 1.0", first, second, rounds, _produce),
        _compared("one record, 50 deep, TLS", ">= 1.0", first, second, rounds, _small),
        _compared("fetch 8 MB, TLS", ">= 1.0", first, second, rounds, _fetch),
    ]


def _handshake(broker: Broker) -> ssl.SSLSocket:
    host, _, port = broker.addresses["SSL"].rpartition(":")
    connected = socket.create_connection((host, int(port)))
    return broker.trust.wrap_socket(connected, server_hostname="localhost")


def _idle(broker: Broker, count: int) -> list[Row]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(count, (hard if hard != resource.RLIM_INFINITY else count + 200) - 200)
    _handshake(broker).close()
    before = memory_bytes(broker.pid)[0]
    with ExitStack() as held:
        began = time.perf_counter()
        for _ in range(count):
            held.enter_context(_handshake(broker))
        seconds = time.perf_counter() - began
        growth = memory_bytes(broker.pid)[0] - before
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return [
        Row(f"{count:,} idle connections", "<= 250 MB", f"{growth / 1e6:.0f} MB, {count / seconds:.0f} handshakes/s")
    ]


def _storm(broker: Broker, seconds: float, threads: int) -> list[Row]:
    """Measure handshakes by several threads, and a plaintext client's lone requests meanwhile."""
    lone = _connection(broker, "PLAINTEXT", "small")
    lone.ping(500)
    alone = lone.ping(2000).percentile(0.99)
    until = time.perf_counter() + seconds
    made = [0] * threads

    def shake(number: int) -> None:
        while time.perf_counter() < until:
            _handshake(broker).close()
            made[number] += 1

    shaking = [threading.Thread(target=shake, args=(number,)) for number in range(threads)]
    before = cpu_seconds([broker.pid])
    for each in shaking:
        each.start()
    latencies: list[float] = []
    while time.perf_counter() < until:
        latencies += lone.ping(50).latencies_ms
    for each in shaking:
        each.join()
    used = (cpu_seconds([broker.pid]) - before) / max(1, sum(made))
    latencies.sort()
    among = latencies[int(len(latencies) * 0.99)]
    lone.close()
    return [
        Row("handshakes a second", ">= 500", f"{sum(made) / seconds:.0f}, {1000 * used:.2f} ms of processor time each"),
        Row("  p99 of lone requests meanwhile", "<= 20 ms", f"{among:.1f} ms (alone {alone:.1f} ms)"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="pairs of runs (default 7), after one to warm up")
    parser.add_argument("--connections", type=int, default=10_000, help="idle connections (default 10,000)")
    arguments = parser.parse_args()
    with running() as broker:
        rows = _to_plaintext(broker, arguments.rounds)
    if shutil.which("java"):
        with running() as broker, apache_kafka() as kafka:
            rows += _to_kafka(broker, kafka, arguments.rounds)
    with running() as broker:
        rows += _idle(broker, arguments.connections)
    with running() as broker:
        rows += _storm(broker, 5.0, 4)
    show(rows)


if __name__ == "__main__":
    main()
