"""A broker for the demo: `millrace up` on a temporary folder and free ports."""

import queue
import re
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import IO

from millrace_demo.children import Child, Household
from millrace_demo.errors import DemoError

READY = re.compile(r"^ready kafka=(\S+) http=(\S+)$")
READY_SECONDS = 300.0  # one that dies is noticed at once
SETTINGS = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "500"}  # two members join at once; Kafka's 3 s is for many
LOG_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True)
class Addresses:
    kafka: str
    http: str


def start(household: Household, folder: Path) -> Addresses:
    """Start the broker and wait for its one line `ready kafka=HOST:PORT http=HOST:PORT`."""
    data, log = folder / "data", folder / "broker.log"
    command = [str(_command()), "up", "--data-dir", str(data), "--kafka-port", "0", "--http-port", "0"]
    with log.open("w") as errors:
        child = household.start("broker", command, environment=SETTINGS, stdout=PIPE, stderr=errors)
    addresses = _ready(child)
    if addresses is None:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
        raise DemoError(f"the broker did not get ready (exit status {child.process.poll()}):\n{tail}")
    return addresses


def _command() -> Path:
    """Return the `millrace` of the environment that this Python runs in."""
    command = Path(sys.executable).with_name("millrace")
    if not command.exists():
        raise DemoError(f"{command} is not there: run `make setup`")
    return command


def _ready(child: Child) -> Addresses | None:
    """Return the addresses from the broker's output; None if it ends or stays silent. Further output is dropped."""
    lines: queue.Queue[str | None] = queue.Queue(maxsize=1)
    assert child.process.stdout is not None
    threading.Thread(target=_watch, args=(child.process.stdout, lines), daemon=True).start()
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:  # short waits: a signal must be able to come through
        try:
            line = lines.get(timeout=0.1)
        except queue.Empty:
            continue
        match = READY.match(line) if line is not None else None
        return Addresses(match[1], match[2]) if match else None
    return None


def _watch(output: IO[str], lines: "queue.Queue[str | None]") -> None:
    found = False
    try:
        for line in output:
            if not found and READY.match(line.strip()):
                found = True
                lines.put(line.strip())
    except ValueError:  # closed while the demo ends
        pass
    if not found:
        lines.put(None)
