"""`make profile`: the broker's time under each workload, and the cost of a megabyte, into build/profile/.

    .venv/bin/python bench/profiling.py [WORKLOAD …]

Every workload runs twice in each mode:

- under py-spy, which samples the stacks of gateway and storage a hundred times a second without stopping them:
  WORKLOAD-LAYOUT-PROCESS.svg is a flame graph of threads that ran or waited for the interpreter (not of idle ones);
- under strace, which slows the broker, so that only counts are used of it, in counters.txt:

    frames/MB        frames of records on the stream between gateway and storage, both ways together, by the gateway's
                     metric millrace_storage_frames_total, per MB of records produced or fetched, read-back included
                     (combined mode has no such stream)
    calls/request    system calls of gateway and storage per answered request
    copied/byte      bytes that recv, send, read and write calls moved between kernel and processes, per byte of
                     records; bytes of sendfile stay in the kernel and do not count. 2 is one copy in, one out.

Needs Linux, py-spy (a development dependency; root, or permission to ptrace) and strace; without one of them its half
is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from drivers import Driver
from sides import Layout, Side, start
from workload import Workload
from workloads import WORKLOADS

FOLDER = Path(__file__).parents[1] / "build" / "profile"
LAYOUTS = (Layout.COMBINED, Layout.SEPARATE)
PROFILED = ("broker", "gateway-svc", "storage-svc")
USUAL = (
    "produce_1m",
    "produce_16k_x4",
    "produce_records",
    "lone",
    "synced_1m",
    "fetch_1m",
    "librdkafka_1k",
    "tailing_50",
    "end_to_end",
)
SECONDS = 2.0
#: Share of the work under strace, where a call takes some twenty times as long.
TRACED_SHARE = 0.1
#: System calls whose result is how many bytes they moved.
_MOVING = re.compile(r"(recv|send)(from|to|msg)|p?(read|write)v?(64|2)?")
_CALL = re.compile(rb"(?:\[pid +\d+\] |\d+ +)?(?:<\.\.\. )?(\w+)(?:\(| resumed>).* = (-?\d+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", choices=[[], *WORKLOADS], default=[])
    arguments = parser.parse_args()
    chosen = [WORKLOADS[name] for name in arguments.workloads or USUAL]
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = [f"{'':24}{'layout':14}{'frames/MB':>12}{'calls/request':>16}{'copied/byte':>14}"]
    print(rows[0])
    with tempfile.TemporaryDirectory(prefix="millrace-profile-", ignore_cleanup_errors=True) as folder:
        try:
            for layout in LAYOUTS:
                for number, workload in enumerate(each for each in chosen if layout in each.layouts):
                    side = start(layout, workload.durability, Path(folder) / f"{layout.name}-{number}")
                    try:
                        row = f"{workload.name:24}{layout:14}{_profile(workload, side)}"
                    except Exception as error:
                        row = f"{workload.name:24}{layout:14}failed: {type(error).__name__}: {error}"
                    finally:
                        side.stop()
                    print(row, flush=True)
                    rows.append(row)
        finally:
            Driver.close_all()
    (FOLDER / "counters.txt").write_text("\n".join(rows) + "\n")
    print(f"flame graphs and counters.txt are in {FOLDER}")


def _profile(workload: Workload, side: Side) -> str:
    """Run the workload; return the row of counters."""
    processes = {name: pid for name, pid in side.processes().items() if name in PROFILED}
    workload.prepare(side)
    try:
        warm = workload.run(side, workload.amount)
        rate = workload.amount / warm.seconds
        amount = min(workload.amount_max, max(workload.amount, int(rate * SECONDS)))
        before = Served.of(map(_metrics, processes.values()))
        with _flame_graphs(f"{workload.name}-{side.layout.name.lower()}", processes):
            workload.run(side, amount)
        profiled = Served.of(map(_metrics, processes.values())).since(before)
        before = Served.of(map(_metrics, processes.values()))
        with _traced(processes.values()) as calls:
            workload.run(side, max(1, workload.amount // 4, int(amount * TRACED_SHARE)))
        traced = Served.of(map(_metrics, processes.values())).since(before)
    finally:
        workload.finish(side)
        side.delete_topics()
    return counters(profiled, traced, calls)


def counters(profiled: Served, traced: Served, calls: Calls) -> str:
    """Return the row's cells; those without a stream, or without strace, are empty."""
    frames = f"{profiled.frames / (profiled.record_bytes / 1e6):12.2f}" if profiled.frames else f"{'':12}"
    if not calls.count:
        return frames
    return f"{frames}{calls.count / traced.requests:16.1f}{calls.moved / traced.record_bytes:14.2f}"


@dataclass
class Served:
    """Counts of the broker's metrics, from its start to now."""

    frames: float = 0
    requests: float = 0
    record_bytes: float = 0

    @classmethod
    def of(cls, pages: Iterable[str]) -> Served:
        """Return the counts of the metrics pages of all its processes."""
        served = cls()
        for page in pages:
            for line in page.splitlines():
                name, _, value = line.rpartition(" ")
                if name.startswith("millrace_storage_frames_total{"):
                    served.frames += float(value)
                elif name.startswith('millrace_kafka_requests_total{api="'):
                    served.requests += float(value)
                elif re.match(r"kafka_server_brokertopicmetrics_bytes(in|out)_total\{", name):
                    served.record_bytes += float(value)
        return served

    def since(self, before: Served) -> Served:
        return Served(
            self.frames - before.frames,
            self.requests - before.requests,
            max(1.0, self.record_bytes - before.record_bytes),
        )


def _metrics(pid: int) -> str:
    """Return a service's metrics, whose address is in the environment that the launcher has set."""
    settings = dict(
        each.partition("=")[::2] for each in Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") if each
    )
    service = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[-2]
    variable = {"broker": "MILLRACE_BROKER_HTTP", "gateway-svc": "MILLRACE_GATEWAY_HTTP"}.get(service)
    if variable is None:
        return ""
    with urllib.request.urlopen(f"http://{settings[variable]}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@contextlib.contextmanager
def _flame_graphs(name: str, processes: dict[str, int]) -> Iterator[None]:
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if spy is None:
        yield
        return
    record = (spy, "record", "--nonblocking", "--rate", "100", "--duration", "3600")
    recording = [
        subprocess.Popen(
            [*record, "--pid", str(pid), "--output", str(FOLDER / f"{name}-{process}.svg")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for process, pid in processes.items()
    ]
    time.sleep(0.5)  # it reads the interpreter's symbols first
    try:
        yield
    finally:
        for each in recording:
            each.send_signal(signal.SIGINT)  # it writes the graph and ends
        for each in recording:
            each.wait(30)


@dataclass
class Calls:
    """System calls, and the bytes those moved whose result says so."""

    count: int = 0
    moved: int = 0

    def add(self, line: bytes) -> None:
        """Add a line of strace; a line that is no call, or not its end, does not count."""
        found = _CALL.match(line)
        if found is None:
            return
        call, result = found[1].decode(), int(found[2])
        self.count += 1
        if result > 0 and _MOVING.fullmatch(call):
            self.moved += result


@contextlib.contextmanager
def _traced(pids: Iterable[int]) -> Iterator[Calls]:
    """Trace the processes; the calls are filled in at the end of the block."""
    calls = Calls()
    if shutil.which("strace") is None:
        yield calls
        return
    with tempfile.NamedTemporaryFile(prefix="millrace-strace-") as written:
        command = [
            "strace",
            "-f",
            "-q",
            "-s",
            "0",
            "-o",
            written.name,
            *(word for pid in pids for word in ("-p", str(pid))),
        ]
        tracing = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        try:
            yield calls
        finally:
            tracing.send_signal(signal.SIGINT)
            tracing.wait(30)
        for line in written:
            calls.add(line)


if __name__ == "__main__":
    main()
