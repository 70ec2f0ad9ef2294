"""What logins and ACLs cost: `python bench/logins.py [--rounds NUMBER] [PART…]`, where a part is `cost` or `floods`.

cost     a client that has logged in by SCRAM and is judged by 1,000 ACLs, against one of an open broker
floods   the p99 of a client's lone requests while strangers besiege its broker, against quiet rounds;
         the ratio of a broker that is left alone is what the machine does by itself
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from login_flood import ATTACKS
from processes import cpu_seconds, memory_bytes
from protocol_lib.client import Admin, ClientSettings, SaslScram
from protocol_lib.client.acl_admin import Acl, AclOperation, AclPattern, AclPermission, AclResource
from raw import Connection
from secured import Broker, compared, pair, running
from table import Row, share, show

ACLS = 1000
MEGABYTE = 1_000_000
PASSWORDS = {"admin": "of the admin", "alice": "correct horse"}
_LISTENERS = {"EXTERNAL": "SASL_PLAINTEXT", "ENCRYPTED": "SASL_SSL"}
_ALICE = SaslScram("alice", PASSWORDS["alice"])


@contextmanager
def _secured() -> Iterator[Broker]:
    """Run a broker with logins, and ACLs by which alice may use every topic."""
    with tempfile.TemporaryDirectory() as folder:
        users = Path(folder) / "users"
        users.write_text("".join(f"{name} {password}\n" for name, password in PASSWORDS.items()))
        settings = {
            "MILLRACE_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "MILLRACE_USERS_FILE": str(users),
            "MILLRACE_AUTHORIZER": "acl",
            "MILLRACE_SUPER_USERS": "User:admin",
        }
        with pair() as made, running(_LISTENERS, {**made.settings, **settings}) as broker:
            asyncio.run(_create_acls(broker))
            yield broker


async def _create_acls(broker: Broker) -> None:
    login = SaslScram("admin", PASSWORDS["admin"])
    async with Admin(ClientSettings(bootstrap_servers=broker.addresses["EXTERNAL"], sasl=login)) as admin:
        await admin.acls.create(list(_acls()))


def _acls() -> Iterator[Acl]:
    """Yield rows of other users and topics, some of which cover the topics of the measurement."""
    for number in range(ACLS - 2):
        yield Acl(
            resource=AclResource.TOPIC,
            name=f"topic-{number}" if number % 4 else "s",
            pattern=AclPattern.LITERAL if number % 2 else AclPattern.PREFIXED,
            principal=f"User:other-{number}",
            operation=AclOperation.READ,
            permission=AclPermission.DENY if number % 8 == 0 else AclPermission.ALLOW,
        )
    for operation in (AclOperation.READ, AclOperation.WRITE):
        yield Acl(resource=AclResource.TOPIC, name="*", principal="User:alice", operation=operation)


def _cost(rounds: int) -> Iterator[Row]:
    with ExitStack() as held:
        open_one = held.enter_context(running({"EXTERNAL": "PLAINTEXT"}, {}))
        secured = held.enter_context(_secured())

        first, second = (secured, "EXTERNAL"), (open_one, "EXTERNAL")

        def connection(broker: Broker, topic: str) -> Connection:
            made = Connection(broker.addresses["EXTERNAL"], topic, sasl=_ALICE if broker is secured else None)
            held.callback(made.close)
            return made

        def lone(broker: Broker, _listener: str) -> float:
            figures = connection(broker, "small").ping(3_000)
            return figures.requests / figures.seconds

        def deep(broker: Broker, _listener: str) -> float:
            figures = connection(broker, "small").produce(40_000, 100, depth=50, record_bytes=90)
            return figures.requests / figures.seconds

        def fetch(broker: Broker, _listener: str, *, total: int, max_bytes: int) -> float:
            figures = connection(broker, "large").fetch(total, max_bytes)
            return figures.requests / figures.seconds

        for broker, _ in (first, second):
            connection(broker, "large").produce(200, 16_000, record_bytes=1_000)
        works: dict[str, Callable[[Broker, str], float]] = {
            "lone requests of one record": lone,
            "one record, 50 deep": deep,
            "fetch of 16 KB": partial(fetch, total=80 * MEGABYTE, max_bytes=16_000),
            "fetch of 1 MB": partial(fetch, total=800 * MEGABYTE, max_bytes=MEGABYTE),
        }
        for name, work in works.items():
            yield compared(f"SCRAM and {ACLS:,} ACLs to neither: {name}", ">= 0.97", first, second, rounds, work)


def _floods(rounds: int, seconds: float) -> Iterator[Row]:
    for attack in ATTACKS:
        with ExitStack() as held:
            besieged, calm = held.enter_context(_secured()), held.enter_context(_secured())
            lone = [Connection(each.addresses["EXTERNAL"], "small", sasl=_ALICE) for each in (besieged, calm)]
            for each in lone:
                held.callback(each.close)
                each.ping(500)
            yield from _besieged(attack, besieged, lone, rounds, seconds)


def _besieged(attack: str, broker: Broker, lone: list[Connection], rounds: int, seconds: float) -> Iterator[Row]:
    before, most = memory_bytes(broker.pid)[0], 0
    among, quiet, came, used = [], [], 0, 0.0
    for _ in range(rounds):
        quiet.append(_p99(lone, seconds))
        command = [sys.executable, str(Path(__file__).with_name("login_flood.py")), attack]
        began = cpu_seconds([broker.pid])
        given = [broker.addresses["EXTERNAL"], broker.addresses["ENCRYPTED"], str(seconds + 1)]
        with subprocess.Popen([*command, *given], stdout=subprocess.PIPE, text=True) as crowd:
            time.sleep(0.5)
            among.append(_p99(lone, seconds))
            most = max(most, memory_bytes(broker.pid)[0] - before)
            came += int(crowd.communicate()[0])
        used += cpu_seconds([broker.pid]) - began
        time.sleep(0.5)
    ratio = statistics.median(own / other for own, other in among)
    own, other = (statistics.median(each) for each in zip(*among, strict=True))
    alone = statistics.median(own for own, _ in quiet)
    yield Row(
        f"{attack}: p99 of a lone client, to a broker left alone",
        "<= 2",
        f"{ratio:.2f} ({own:.2f} and {other:.2f} ms, quiet {alone:.2f})",
    )
    rate = came / (rounds * (seconds + 1))
    yield Row(
        "  growth", "", f"{most / 1e6:.0f} MB; {rate:.0f} strangers/s, {1000 * used / came:.2f} ms of processor each"
    )


def _p99(lone: list[Connection], seconds: float) -> list[float]:
    """Return the p99 of each client's requests, which take turns."""
    taken: list[list[float]] = [[] for _ in lone]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for client, into in zip(lone, taken, strict=True):
            into += client.ping(1).latencies_ms
    return [share(sorted(each), 0.99) for each in taken]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", metavar="PART", help="cost or floods (default: both)")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default 5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds of a flood (default 4)")
    given = parser.parse_args()
    if "cost" in (given.parts or ["cost"]):
        show(_cost(given.rounds))
    if "floods" in (given.parts or ["floods"]):
        show(_floods(given.rounds, given.seconds))


if __name__ == "__main__":
    main()
