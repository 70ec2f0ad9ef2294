"""From kill -9 to the first acknowledged record: `millrace up` with 100 partitions and 2 GB of 16 KB batches.

Under flush.policy=group everything was synced before the kill. Under os the first three quarters were, by a stop in
order; of the last quarter the kernel decided.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from processes import descendants
from raw import Connection
from table import Row

PARTITIONS = 100


def _started(folder: Path, policy: str) -> tuple[subprocess.Popen[str], str]:
    """Start a broker in combined mode; return it, once ready, and its address."""
    millrace = str(Path(sys.executable).with_name("millrace"))
    command = [millrace, "up", "--data-dir", str(folder), "--kafka-port", "0", "--http-port", "0"]
    environment = {
        **os.environ,
        "MILLRACE_FLUSH_POLICY": policy,
        "MILLRACE_TOPICS": f"t:{PARTITIONS}",
        "MILLRACE_LOG_LEVEL": "error",
    }
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"kafka=(\S+)", line)
    if found is None:
        raise RuntimeError(f"millrace up printed {line!r}")
    return process, found[1]


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the broker first. Its supervisor, which would start it again or stop it in order, is halted."""
    process.send_signal(signal.SIGSTOP)
    for pid in descendants(process.pid):
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _fill(address: str, size: float) -> None:
    for partition in range(PARTITIONS):
        connection = Connection(address, "t", partition)
        connection.produce(int(size / PARTITIONS / 16_000), 16_000, acks=-1, depth=20)
        connection.close()


def _measure(folder: Path, policy: str, scale: float) -> Row:
    process, address = _started(folder, policy)
    _fill(address, 1.5e9 * scale)
    if policy == "os":
        process.terminate()
        process.wait()
        process, address = _started(folder, policy)
    _fill(address, 0.5e9 * scale)
    seconds = []
    for _ in range(3):
        _kill(process)
        began = time.perf_counter()
        process, address = _started(folder, policy)
        connection = Connection(address, "t", PARTITIONS - 1)
        connection.produce(1, 16_000, acks=-1)
        seconds.append(time.perf_counter() - began)
        connection.close()
    _kill(process)
    figure = f"kill -9 to the first acks=all record, {PARTITIONS} partitions, {2 * scale:.1f} GB, flush.policy={policy}"
    return Row(figure, "<= 3 s", f"{seconds[0]:.2f} s, again {min(seconds[1:]):.2f} s")


def measure(folder: Path, scale: float) -> list[Row]:
    return [_measure(folder / policy, policy, scale) for policy in ("group", "os")]
