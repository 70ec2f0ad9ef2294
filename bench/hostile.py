"""Hostile and slow clients, and the memory and patience that they cost: `python bench/hostile.py [NAME…]`.

Each attack goes to one broker. A second broker is left alone. A lone client sends its requests to both in turns, so
that the ratio of its delays shows the attack and not the machine. HOSTILE_SCALE=0.1 sends a tenth of each attack.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from processes import memory_bytes
from raw import Connection, batch, fetch_frame, frame, metadata_frame, produce_frame, receive
from sides import Durability, Layout, Side, start
from table import Row, share, show

MB = 1_000_000
#: The greatest length of a request.
LONG = struct.pack(">i", 100 << 20)
#: The first bytes of a Produce request of the greatest length.
LONG_PRODUCE = LONG + struct.pack(">hhih", 0, 7, 1, -1)
#: A time that is longer than anybody watches.
PARKED_MS = 2**31 - 1
TOPIC = "hostile"
#: Batches of less than one answer may hold: a fetch that wants more of them waits.
BATCHES, BATCH_BYTES = 6, 900_000


@dataclass
class Cost:
    """The cost of one attack."""

    #: most bytes that the broker grew by while it lasted
    growth_bytes: int = 0
    #: attackers that were closed, and the seconds for which the longest of them was open
    closed: int = 0
    longest_seconds: float = 0.0
    #: round trips in ms of a lone client that is attacked as well, and of one that is not
    attacked_ms: list[float] = field(default_factory=list)
    calm_ms: list[float] = field(default_factory=list)

    @property
    def delay_ratio(self) -> float:
        """The p99 of the lone client, as a multiple of the one without the attack."""
        return share(sorted(self.attacked_ms), 0.99) / share(sorted(self.calm_ms), 0.99)


class Crowd:
    """Many connections of one attack; a context manager."""

    def __init__(self, address: str, hosts: int = 1) -> None:
        """Connect from `hosts` addresses of this machine in turns."""
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._hosts = hosts
        self._poll = select.epoll()
        self.sockets: dict[int, socket.socket] = {}
        self._opened_at: dict[int, float] = {}
        self.closed = 0
        self.longest_seconds = 0.0

    def add(self, *parts: bytes, receives: int | None = None) -> socket.socket:
        """Open a connection and send these bytes, as far as its socket accepts them."""
        made = socket.socket()
        if receives is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        made.bind((f"127.0.1.{1 + len(self.sockets) % self._hosts}", 0))
        made.settimeout(30)
        made.connect(self._address)
        made.setblocking(False)
        self.sockets[made.fileno()] = made
        self._opened_at[made.fileno()] = time.monotonic()
        self._poll.register(made, select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)
        self.send(made, b"".join(parts))
        return made

    def send(self, client: socket.socket, data: bytes) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            client.send(data)

    def send_all(self, data: bytes) -> None:
        for each in self.sockets.values():
            self.send(each, data)

    def look(self) -> None:
        """Count the connections that the broker has closed."""
        found = [descriptor for descriptor, _ in self._poll.poll(0, 1 << 16)]
        for descriptor in found:
            self._poll.unregister(descriptor)
            self.sockets.pop(descriptor).close()
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - self._opened_at[descriptor])
        self.closed += len(found)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self.sockets.values():
            each.close()
        self._poll.close()


#: A function that begins an attack on an address; each call of its result goes on with it.
Attack = Callable[[Crowd, float], Callable[[float], None] | None]


def stalled(crowd: Crowd, scale: float) -> None:
    """Announce 100 MB as 900 clients, send 80 KB each, and no more."""
    for _ in range(round(900 * scale)):
        crowd.add(LONG_PRODUCE, bytes(80_000))


def known_and_stalled(crowd: Crowd, scale: float) -> None:
    """Do the same after a request each that is answered."""
    for _ in range(round(900 * scale)):
        crowd.add(metadata_frame(), LONG_PRODUCE, bytes(80_000))


def announced(crowd: Crowd, scale: float) -> None:
    """Announce 100 MiB as 1,000 clients, and send 60 KB each."""
    for _ in range(round(1000 * scale)):
        crowd.add(LONG_PRODUCE)
    crowd.send_all(bytes(60_000))


def slowloris(crowd: Crowd, scale: float) -> Callable[[float], None]:
    """Send a byte of a request every ten seconds, as 5,000 clients."""
    for _ in range(round(5000 * scale)):
        crowd.add(struct.pack(">i", 1000))
    sent_at = time.monotonic()

    def go_on(now: float) -> None:
        nonlocal sent_at
        if now - sent_at >= 10:
            sent_at = now
            crowd.send_all(b"\0")

    return go_on


def held(crowd: Crowd, scale: float) -> None:
    """Send 256 KB of requests after a fetch that waits, as 400 clients."""
    request = frame(3, 5, struct.pack(">ib", 0, 0))
    for _ in range(round(400 * scale)):
        crowd.add(metadata_frame(), fetch_frame("empty", 0, 0, 1 << 20, wait_ms=PARKED_MS))
    for _ in range(8):
        time.sleep(0.2)
        crowd.send_all(request * (32 * 1024 // len(request)))


def unread(crowd: Crowd, scale: float) -> None:
    """Ask for records and for descriptions of all topics as 300 clients, and read nothing."""
    everything = frame(3, 5, struct.pack(">ib", -1, 0))
    requests = everything + fetch_frame(TOPIC, 0, 0, 8 << 20)
    for _ in range(round(300 * scale)):
        crowd.add(requests * 20, receives=4096)


def parked(crowd: Crowd, scale: float) -> None:
    """Fetch more than the 5 MB that there are, as 60 clients."""
    body = struct.pack(">iii", -1, PARKED_MS, PARKED_MS) + struct.pack(">i", 1)
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    body += name + struct.pack(">iiqi", 1, 0, 0, 60_000_000)
    for _ in range(round(60 * scale)):
        crowd.add(frame(1, 2, body))


def sessions(crowd: Crowd, scale: float) -> Callable[[float], None]:
    """Begin 10,000 fetch sessions of 1,000 partitions each."""
    partitions = b"".join(struct.pack(">iiqqi", number, -1, 0, -1, 1 << 20) for number in range(1000))
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    body = struct.pack(">iiiibii", -1, 0, 0, 1 << 20, 0, 0, 0) + struct.pack(">i", 1)
    body += name + struct.pack(">i", 1000) + partitions + struct.pack(">i", 0) + struct.pack(">h", 0)
    request = frame(1, 11, body)
    clients = [crowd.add() for _ in range(50)]
    left = round(10_000 * scale)
    unsent = dict.fromkeys(clients, b"")

    def go_on(_: float) -> None:
        nonlocal left
        for each in clients:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                while True:
                    each.recv(1 << 20)
            if not unsent[each] and left > 0:
                left -= 1
                unsent[each] = request
            with contextlib.suppress(BlockingIOError, ConnectionError):
                unsent[each] = unsent[each][each.send(unsent[each]) :]

    return go_on


@dataclass(frozen=True)
class Case:
    """One attack, how long it is watched, and its targets."""

    name: str
    attack: Attack
    seconds: float
    #: Megabytes by which the broker may grow: the budget of docs/guarantees.md, and 20 KB for each connection.
    growth_mb: float
    #: Whether all attackers are to be closed before the end.
    ends: bool = False
    hosts: int = 1


CASES = (
    Case("900 stalled requests of new connections", stalled, 12, 34 + 8 + 18 + 20),
    Case("900 stalled requests of known connections", known_and_stalled, 12, 235 + 18 + 20),
    Case("S2: 1,000 connections announce 100 MiB", announced, 10, 64),
    Case("S3: slowloris, 5,000 connections", slowloris, 45, 150, ends=True, hosts=10),
    Case("400 connections with 256 KB of held requests", held, 8, 105 + 8 + 20),
    Case("300 connections that read nothing", unread, 10, 268 + 20 + 20),
    Case("60 parked fetches of 5 MB", parked, 5, 20),
    Case("10,000 fetch sessions of 1,000 partitions", sessions, 30, 268 + 20),
)


class Victims:
    """A broker that is attacked and one that is not, each with a topic of 5 MB, and a lone client of both."""

    def __init__(self, folder: Path) -> None:
        self._held = contextlib.ExitStack()
        self.attacked, self.calm = (self._started(folder / name) for name in ("attacked", "calm"))
        self.pid = max(self.attacked.processes().values(), key=lambda pid: memory_bytes(pid)[0])
        self._lone = [Connection(each.address, TOPIC, 1) for each in (self.attacked, self.calm)]
        for each in self._lone:
            self._held.callback(each.close)
            each.ping(200)

    def _started(self, folder: Path) -> Side:
        side = start(Layout.COMBINED, Durability.PAGE_CACHE, folder)
        self._held.callback(side.stop)
        side.create_topic(TOPIC, 2)
        side.create_topic("empty")
        filler = Connection(side.address, TOPIC)
        filler.send([produce_frame(TOPIC, 0, 1, batch(BATCH_BYTES // 1010, 1000))], BATCHES, 1)
        filler.close()
        return side

    def ping(self, cost: Cost) -> None:
        """Send a request to each, one after the other."""
        for lone, into in zip(self._lone, (cost.attacked_ms, cost.calm_ms), strict=True):
            into += lone.ping(1).latencies_ms

    def close(self) -> None:
        self._held.close()


def run(victims: Victims, case: Case, scale: float) -> Cost:
    """Run the attack, and watch the broker and a lone client."""
    cost = Cost()
    before = _resident(victims.pid)
    with Crowd(victims.attacked.address, case.hosts) as crowd:
        began = time.monotonic()
        go_on = case.attack(crowd, scale)
        seconds = case.seconds if case.ends else case.seconds * max(scale, 0.3)
        while (now := time.monotonic()) - began < seconds and (crowd.sockets or not case.ends):
            if go_on is not None:
                go_on(now)
            crowd.look()
            victims.ping(cost)
            cost.growth_bytes = max(cost.growth_bytes, _resident(victims.pid) - before)
        cost.closed, cost.longest_seconds = crowd.closed, crowd.longest_seconds
    _settle(victims.attacked.address)
    return cost


def _resident(pid: int) -> int:
    """Return RSS without stopping the process, as `memory_bytes` does."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def _settle(address: str) -> None:
    """Wait until the broker has seen the attackers go: it answers a connection that came after them."""
    time.sleep(1.0)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as last:
        last.sendall(metadata_frame())
        receive(last, struct.unpack(">i", receive(last, 4))[0])


def rows(folder: Path, cases: Sequence[Case], scale: float) -> Iterator[Row]:
    """Run each case against a new broker."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for number, case in enumerate(cases):
        victims = Victims(folder / str(number))
        try:
            cost = run(victims, case, scale)
        finally:
            victims.close()
        yield Row(f"{case.name}: growth", f"<= {case.growth_mb:.0f} MB", f"{cost.growth_bytes / MB:.1f} MB")
        if case.ends:
            yield Row("  all closed within", "<= 30 s", f"{cost.closed} within {cost.longest_seconds:.1f} s")
        p99 = share(sorted(cost.attacked_ms), 0.99)
        delays = f"{p99:.1f} ms, longest {max(cost.attacked_ms):.0f} ms, {cost.closed} closed"
        yield Row("  p99 of a lone client, to one without the attack", "<= 2", f"{cost.delay_ratio:.2f}: {delays}")


def main() -> None:
    scale = float(os.environ.get("HOSTILE_SCALE", "1"))
    cases = [case for case in CASES if not sys.argv[1:] or any(part in case.name for part in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as folder:
        show(rows(Path(folder), cases, scale))


if __name__ == "__main__":
    main()
