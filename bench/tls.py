"""What TLS costs: one broker with a listener of each kind, in alternating rounds, and Apache Kafka's TLS.

`python bench/tls.py [--rounds NUMBER] [--connections NUMBER]` prints medians; `make bench-parts` runs it. The client is
Python's ssl, in this process. Where it is the slower end, the broker's processor time tells more than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # Apache Kafka's node

from processes import cpu_seconds, memory_bytes
from protocol_lib.client import Admin
from raw import Connection
from secured import TOPICS, Broker, compared, pair, running
from sides import JVM, PROPERTIES
from support.kafka_broker import KafkaNode
from table import Row, show

MEGABYTE = 1_000_000
_LISTENERS = ("PLAINTEXT", "SSL")
_MANY = {
    "MILLRACE_MAX_CONNECTIONS": "1000000",
    "MILLRACE_MAX_CONNECTIONS_PER_IP": "1000000",
    "MILLRACE_CONNECTIONS_PER_SECOND": "0",
}


@contextmanager
def _running() -> Iterator[Broker]:
    with pair() as made, running({name: name for name in _LISTENERS}, {**_MANY, **made.settings}) as broker:
        broker.trust = made.trust
        yield broker


@contextmanager
def apache_kafka() -> Iterator[Broker]:
    with pair() as made, tempfile.TemporaryDirectory() as folder:
        joined = made.key.with_name("both.pem")
        joined.write_text(made.key.read_text() + made.certificate.read_text())
        settings = {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(joined),
            "auto.create.topics.enable": "true",
        }
        with KafkaNode(Path(folder), PROPERTIES.read_text(), _LISTENERS, settings=settings, jvm=JVM) as node:
            asyncio.run(_create(node.bootstrap))
            yield Broker(node.pid, node.addresses, made.trust)


async def _create(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        for topic in TOPICS:
            await admin.topics.create(topic, partitions=1, replication_factor=1)


def _connection(broker: Broker, listener: str, topic: str) -> Connection:
    tls = broker.trust if listener == "SSL" else None
    return Connection(broker.addresses[listener], topic, tls=tls)


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
        compared("produce 1 MB, TLS to plaintext", ">= 0.6", tls, plain, rounds, _produce),
        compared("one record, 50 deep", ">= 0.6", tls, plain, rounds, _small),
        compared("fetch 8 MB", ">= 0.25", tls, plain, rounds, _fetch),
    ]


def _to_kafka(ours: Broker, theirs: Broker, rounds: int) -> list[Row]:
    first, second = (ours, "SSL"), (theirs, "SSL")
    return [
        compared("produce 1 MB, TLS, to Apache Kafka", ">= 1.0", first, second, rounds, _produce),
        compared("one record, 50 deep, TLS", ">= 1.0", first, second, rounds, _small),
        compared("fetch 8 MB, TLS", ">= 1.0", first, second, rounds, _fetch),
    ]


def _handshake(broker: Broker) -> ssl.SSLSocket:
    assert broker.trust is not None
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
    with _running() as broker:
        rows = _to_plaintext(broker, arguments.rounds)
    if shutil.which("java"):
        with _running() as broker, apache_kafka() as kafka:
            rows += _to_kafka(broker, kafka, arguments.rounds)
    with _running() as broker:
        rows += _idle(broker, arguments.connections)
    with _running() as broker:
        rows += _storm(broker, 5.0, 4)
    show(rows)


if __name__ == "__main__":
    main()
