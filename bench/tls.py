"""What TLS costs: one broker with a listener of each kind, in alternating rounds.

`python bench/tls.py [--rounds NUMBER] [--connections NUMBER]` prints medians; `make bench-parts` runs it. The client is
Python's ssl, in this process. Where it is the slower end, the broker's processor time tells more than the rate.
"""

from __future__ import annotations

import argparse
import os
import resource
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

from millrace.ports import Reservation
from processes import cpu_seconds, memory_bytes
from raw import Connection
from service_chassis.probe import check
from table import Row, show

MEGABYTE = 1_000_000
_LISTENERS = ("PLAINTEXT", "SSL")


@dataclass
class Broker:
    """A running broker with two listeners."""

    pid: int
    addresses: dict[str, str]
    trust: ssl.SSLContext


@contextmanager
def running() -> Iterator[Broker]:
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*made.split(), *names], check=True, capture_output=True)
        ports = [held.enter_context(Reservation("127.0.0.1", 0)).address for _ in range(3)]
        addresses = dict(zip(_LISTENERS, map(str, ports[:2]), strict=True))
        settings = {
            "MILLRACE_LISTENERS": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "MILLRACE_SSL_KEY_FILE": str(key),
            "MILLRACE_SSL_CERTIFICATE_FILE": str(certificate),
            "MILLRACE_DATA_DIR": str(folder / "data"),
            "MILLRACE_GATEWAY_DATA_DIR": str(folder / "data"),
            "MILLRACE_BROKER_HTTP": str(ports[2]),
            "MILLRACE_STORAGE_BIND": f"unix:{folder / 'storage'}",
            "MILLRACE_TOPICS": "large:1,small:1",
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
        yield Broker(process.pid, addresses, ssl.create_default_context(cafile=str(certificate)))


def _connection(broker: Broker, listener: str, topic: str) -> Connection:
    tls = broker.trust if listener == "SSL" else None
    return Connection(broker.addresses[listener], topic, tls=tls)


def _compared(name: str, target: str, broker: Broker, rounds: int, run: Callable[[str], float]) -> Row:
    """Return the median ratio of rates, TLS to plaintext, and that of the broker's processor time."""
    rates, costs = [], []
    for turn in range(rounds + 1):
        rate, cost = {}, {}
        for listener in _LISTENERS if turn % 2 else reversed(_LISTENERS):
            before = cpu_seconds([broker.pid])
            rate[listener] = run(listener)
            cost[listener] = cpu_seconds([broker.pid]) - before
        if turn:
            rates.append(rate["SSL"] / rate["PLAINTEXT"])
            costs.append(cost["SSL"] / max(cost["PLAINTEXT"], 0.01))
    return Row(name, target, f"{statistics.median(rates):.2f}, processor time {statistics.median(costs):.2f}")


def _load(broker: Broker, rounds: int) -> list[Row]:
    def produce(listener: str) -> float:
        connection = _connection(broker, listener, "large")
        figures = connection.produce(200, MEGABYTE, depth=5)
        connection.close()
        return figures.megabytes_per_second

    def small(listener: str) -> float:
        connection = _connection(broker, listener, "small")
        figures = connection.produce(20_000, 100, depth=50, record_bytes=90)
        connection.close()
        return figures.requests / figures.seconds

    def fetch(listener: str) -> float:
        connection = _connection(broker, listener, "large")
        figures = connection.fetch(400 * MEGABYTE, 8 << 20)
        connection.close()
        return figures.megabytes_per_second

    return [
        _compared("produce 1 MB, TLS to plaintext", ">= 0.6", broker, rounds, produce),
        _compared("one record, 50 deep", ">= 0.6", broker, rounds, small),
        _compared("fetch 8 MB", ">= 0.25", broker, rounds, fetch),
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
        rows = _load(broker, arguments.rounds)
    with running() as broker:
        rows += _idle(broker, arguments.connections)
    with running() as broker:
        rows += _storm(broker, 5.0, 4)
    show(rows)


if __name__ == "__main__":
    main()
