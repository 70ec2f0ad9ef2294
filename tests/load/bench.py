"""Produce, fetch and latency of both layouts, without Apache Kafka beside them, by raw frames on one connection.

Prints one table a flush policy. Figures of one run on a shared machine vary by a third: compare rows of one run only.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import resident_bytes
from raw import Connection

LAYOUTS = {"one process": [], "apart": ["--processes"]}


@contextmanager
def broker(flags: list[str], flush_policy: str) -> Iterator[tuple[str, float, int]]:
    """`millrace up`; its Kafka address, the seconds until it was ready, the resident bytes of all its processes."""
    command = [str(Path(sys.executable).with_name("millrace")), "up", "--kafka-port", "0", "--http-port", "0", *flags]
    environment = {**os.environ, "MILLRACE_FLUSH_POLICY": flush_policy, "MILLRACE_TOPICS": "big:1,small:1,ping:1"}
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - begin
        found = re.search(r"kafka=(\S+)", line)
        if found is None:
            raise RuntimeError(f"millrace up said {line!r}")
        yield found[1], seconds, resident_bytes(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def measure(address: str, scale: float) -> list[tuple[str, str]]:
    rows = []
    big = Connection(address, "big")
    figures = big.produce(int(2000 * scale), 1_000_000, acks=-1)
    rows.append(("produce, 1 MB batches, acks=all", f"{figures.megabytes_per_second:,.0f} MB/s"))
    for name, limit in (("8 MB", 8 << 20), ("1 MB", 1 << 20)):
        figures = big.fetch(int(4e9 * scale), limit)
        rows.append((f"fetch, {name} a request", f"{figures.megabytes_per_second:,.0f} MB/s"))
    small = Connection(address, "small")
    figures = small.produce(int(20_000 * scale), 16_000, acks=-1, depth=20)
    rows.append(("produce, 16 KB batches, acks=all", f"{figures.megabytes_per_second:,.0f} MB/s"))
    ping = Connection(address, "ping")
    figures = ping.produce(int(50_000 * scale), 100, record_bytes=100, depth=50)
    rows.append(("one-record requests, 50 deep, acks=1", f"{figures.requests / figures.seconds:,.0f} requests/s"))
    for acks, name in ((1, "1"), (-1, "all")):
        figures = ping.ping(int(5000 * scale), acks=acks)
        lone = f"p50 {figures.percentile(0.5):.3f} ms, p99 {figures.percentile(0.99):.3f} ms"
        rows.append((f"lone one-record request, acks={name}", lone))
    for connection in (big, small, ping):
        connection.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full amount of work (default 1)")
    parser.add_argument("--flush-policy", choices=("group", "os"), nargs="*", default=["group", "os"])
    arguments = parser.parse_args()
    for policy in arguments.flush_policy:
        columns = {}
        for layout, flags in LAYOUTS.items():
            with broker(flags, policy) as (address, seconds, resident):
                columns[layout] = [
                    ("start to ready", f"{seconds:.2f} s"),
                    ("resident when ready", f"{resident / 1e6:.0f} MB"),
                    *measure(address, arguments.scale),
                ]
        print(f"\nflush.policy={policy}\n{'':40}" + "".join(f"{layout:>34}" for layout in columns))
        for row in zip(*columns.values(), strict=True):
            print(f"{row[0][0]:40}" + "".join(f"{value:>34}" for _, value in row))


if __name__ == "__main__":
    main()
