"""A broker with several listeners, and comparisons of them: of TLS with plaintext, of logins and ACLs with neither."""

from __future__ import annotations

import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.ports import Reservation
from processes import cpu_seconds
from service_chassis.probe import check
from table import Row

TOPICS = ("large", "small")


@dataclass
class Broker:
    """A running broker; an address for each listener."""

    pid: int
    addresses: dict[str, str]
    #: The trust in its certificate, if it has one.
    trust: ssl.SSLContext | None = None


@dataclass
class Pair:
    """A private key and its certificate, as PEM files in a folder of their own."""

    key: Path
    certificate: Path

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a broker that has it."""
        return {"MILLRACE_SSL_KEY_FILE": str(self.key), "MILLRACE_SSL_CERTIFICATE_FILE": str(self.certificate)}


@contextmanager
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory() as folder:
        made = Pair(Path(folder) / "key.pem", Path(folder) / "certificate.pem")
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
        files = ["-keyout", str(made.key), "-out", str(made.certificate)]
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
        yield made


@contextmanager
def running(listeners: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Broker]:
    """Run a combined broker. `listeners`: their security protocols by name."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        http, *ports = [str(held.enter_context(Reservation("127.0.0.1", 0)).address) for _ in range(1 + len(listeners))]
        addresses = dict(zip(listeners, ports, strict=True))
        own = {
            "MILLRACE_LISTENERS": ",".join(f"{name}://{address}" for name, address in addresses.items()),
            "MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP": ",".join(f"{name}:{kind}" for name, kind in listeners.items()),
            "MILLRACE_DATA_DIR": str(folder / "data"),
            "MILLRACE_GATEWAY_DATA_DIR": str(folder / "data"),
            "MILLRACE_BROKER_HTTP": http,
            "MILLRACE_STORAGE_BIND": f"unix:{folder / 'storage'}",
            "MILLRACE_TOPICS": ",".join(f"{topic}:1" for topic in TOPICS),
            "MILLRACE_FLUSH_POLICY": "os",
            "MILLRACE_LOG_LEVEL": "error",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "millrace.service", "broker"],
            stdin=subprocess.PIPE,
            env={**os.environ, **own, **settings},
        )
        held.callback(process.wait)
        assert process.stdin is not None
        held.callback(process.stdin.close)
        while check(http, "/readyz") is not None:
            if process.poll() is not None:
                raise RuntimeError("the broker has not started")
            time.sleep(0.05)
        yield Broker(process.pid, addresses)


#: One end of a comparison: a broker and the listener whose clients it serves.
Place = tuple[Broker, str]


def compared(
    name: str, target: str, first: Place, second: Place, rounds: int, run: Callable[[Broker, str], float]
) -> Row:
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
