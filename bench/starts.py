"""Starts, from nothing: `millrace up` in both layouts, and a `Broker()` with its import.

`python bench/starts.py [--rounds NUMBER] [--python PATH]` prints medians; `make bench-parts` runs it. Times of the
processor tell more than those of the clock where other programs run. `--python` names another checkout's interpreter,
to compare. Bytecode is stored first, since a start without it takes twice as long.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

from table import Row, show
from up_process import RunningUp

_BROKER = """
import resource, time
began = time.perf_counter()
import millrace
broker = millrace.Broker()
broker.start()
used = resource.getrusage(resource.RUSAGE_SELF)
print(time.perf_counter() - began, used.ru_utime + used.ru_stime)
broker.close()
"""


def _broker(python: str) -> tuple[float, float]:
    """Return the seconds of a start within a program, and those of the processor for the whole program until then."""
    output = subprocess.run([python, "-c", _BROKER], capture_output=True, text=True, check=True).stdout
    seconds, used = output.split()
    return float(seconds), float(used)


def measure(rounds: int, python: str) -> list[Row]:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = []
    for name, options in (("combined", ()), ("separate", ("--processes",))):
        ready, rest = [], []
        for _ in range(rounds + 1):
            with RunningUp("--kafka-port", "0", "--http-port", "0", *options, python=python) as up:
                ready.append(up.ready_after_s)
                rest.append(up.rest_after_s - up.ready_after_s)
        rows.append(Row(f"millrace up, {name}: the ready line", "0.8 s", f"{statistics.median(ready[1:]):.2f} s"))
        rows.append(Row("  a first request to REST then waits", "0.8 s", f"{statistics.median(rest[1:]):.2f} s"))
    took = [_broker(python) for _ in range(rounds + 1)][1:]
    seconds, used = (statistics.median(each) for each in zip(*took, strict=True))
    rows.append(Row("import millrace; Broker().start()", "0.25 s", f"{seconds:.2f} s, processor {used:.2f} s"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="starts of each kind (default 9), after one to warm up")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the checkout to measure")
    arguments = parser.parse_args()
    show(measure(arguments.rounds, arguments.python))


if __name__ == "__main__":
    main()
