"""Many connections on which nothing happens: idle ones, and ones whose Fetch waits for a record that does not come."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from processes import cpu_seconds, memory_bytes, wake_ups
from raw import Connection, fetch_frame, metadata_frame, receive

#: A parked fetch waits longer than anybody watches it.
_PARKED_MS = 60_000


@dataclass
class Idle:
    """The cost of many idle connections."""

    connect_seconds: float
    #: growth of the process that holds them
    growth_bytes: int
    #: p99 of a lone request in ms, without them and with them
    alone_p99_ms: float
    among_them_p99_ms: float


def idle(address: str, pid: int, topic: str, count: int, requests: int) -> Idle:
    """Open `count` connections to the process `pid` and close them; lone requests go to `topic`."""
    lone = Connection(address, topic)
    lone.ping(requests // 4)
    alone = lone.ping(requests)
    before, _ = memory_bytes(pid)
    with _opened(address, count) as (_, seconds):
        growth = memory_bytes(pid)[0] - before
        among_them = lone.ping(requests)
    lone.close()
    return Idle(seconds, growth, alone.percentile(0.99), among_them.percentile(0.99))


@dataclass
class Parked:
    """The cost of parked fetches a second, less the cost of the same connections without them."""

    cpu_share: float
    wake_ups: float


def parked(address: str, pids: list[int], topic: str, count: int, seconds: float) -> Parked:
    """Measure parked fetches; `topic` must be empty and stay so."""

    def watch() -> tuple[float, float]:
        began, cpu, woken = time.perf_counter(), cpu_seconds(pids), wake_ups(pids)
        time.sleep(seconds)
        passed = time.perf_counter() - began
        return (cpu_seconds(pids) - cpu) / passed, (wake_ups(pids) - woken) / passed

    with _opened(address, count) as (connections, _):
        time.sleep(0.5)
        idle_cpu, idle_woken = watch()
        frame = fetch_frame(topic, 0, 0, 1 << 20, wait_ms=_PARKED_MS)
        for connection in connections:
            connection.sendall(frame)
        time.sleep(0.5)
        cpu, woken = watch()
        for connection in connections:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                raise RuntimeError(f"a Fetch that had to wait was answered: {connection.recv(100)!r}")
    return Parked(cpu - idle_cpu, woken - idle_woken)


@contextlib.contextmanager
def _opened(address: str, count: int) -> Iterator[tuple[list[socket.socket], float]]:
    """Open `count` connections; yield them and the seconds until the broker had accepted them all.

    Each but the last is only opened. The last one's request is answered after all were accepted, because the kernel
    returns them in order.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 100:
        raise RuntimeError(f"{count} connections are needed, and the system grants {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as held:
        began = time.perf_counter()
        connections = [held.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)]
        last = connections[-1]
        last.sendall(metadata_frame())
        receive(last, struct.unpack(">i", receive(last, 4))[0])
        yield connections, time.perf_counter() - began


def unread(address: str, pid: int, topic: str, connections: int, requests: int, seconds: float) -> int:
    """Return the most bytes that a process grows by while clients repeat requests for 8 MB and read nothing."""
    before = most = memory_bytes(pid)[0]
    frame = fetch_frame(topic, 0, 0, 8 << 20)
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as held:
        for _ in range(connections):
            client = held.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((host, int(port)))
            client.sendall(frame * requests)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            most = max(most, memory_bytes(pid)[0])
            time.sleep(0.1)
    return most - before
