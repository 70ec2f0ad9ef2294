"""`make bench`: Millrace beside Apache Kafka 4.3.0, on one machine, in one run, by the same drivers.

    .venv/bin/python tests/load/side_by_side.py                        everything
    .venv/bin/python tests/load/side_by_side.py --quick                the short run
    .venv/bin/python tests/load/side_by_side.py produce_16k --rounds 3 one workload
    .venv/bin/python tests/load/side_by_side.py --list

How it measures: comparison.py. Needs Linux; for Apache Kafka Java 17 too, without which our own side is measured alone.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import results
from comparison import Plan, Sides, compare
from drivers import Driver
from sides import Durability, Layout
from workload import Workload
from workloads import WORKLOADS

BENCHMARKS = results.TOP / "docs" / "benchmarks"
QUICK_PLAN = Plan(rounds=3, round_seconds=0.5, warm_seconds=2.0)


def chosen(names: list[str], *, quick: bool) -> list[Workload]:
    """In the order of the table, the page-cache rows before the synced ones: fewer brokers run at once."""
    found = [WORKLOADS[name] for name in names] or [each for each in WORKLOADS.values() if each.quick or not quick]
    return sorted(found, key=lambda each: list(Durability).index(each.durability))


def run(workloads: list[Workload], plan: Plan, results_path: Path, command: str, folder: Path) -> dict[str, object]:
    kept = results.load(results_path)
    began = time.perf_counter()
    with Sides(folder) as running:
        for number, workload in enumerate(workloads):
            print(f"[{time.perf_counter() - began:5.0f} s] {workload.name}: {workload.title}", flush=True)
            needed = {each.durability_of(layout) for each in workloads[number:] for layout in Layout}
            running.only(needed, Layout)
            outcome = compare(workload, plan, running, lambda line: print(line, flush=True))
            if outcome.error:
                print(f"  FAILED {outcome.error}", flush=True)
            results.add(kept, outcome, command)
            results.save(kept, results_path)
    return kept


def table(kept: dict[str, object]) -> None:
    print(f"\n{'':64}{'layout':>24}{'Apache Kafka min/med/max':>34}{'Millrace min/med/max':>34}{'ratio':>8}{'must':>8}")
    for figure in results.figures(kept):
        spreads = [" / ".join(f"{value:,.4g}" for value in each or ()) for each in (figure.kafka, figure.ours)]
        ratio = f"{figure.ratio:.2f}" if figure.ratio is not None else ""
        verdict = {True: "reached", False: "MISSED", None: ""}[figure.reached]
        must = f"{figure.must[1]:g}" if figure.must else ""
        name = f"{figure.title}, {figure.measure} ({figure.unit})"
        print(f"{name:64}{figure.layout:>24}{spreads[0]:>34}{spreads[1]:>34}{ratio:>8}{must:>8} {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", choices=[[], *WORKLOADS], default=[])
    parser.add_argument("--list", action="store_true", help="what there is")
    parser.add_argument("--quick", action="store_true", help="short rounds of the most telling workloads")
    parser.add_argument("--rounds", type=int, help="how often the sides take turns")
    parser.add_argument("--seconds", type=float, help="what a round takes on the slowest side")
    parser.add_argument("--layouts", nargs="+", choices=[each.name.lower() for each in Layout])
    parser.add_argument("--results", type=Path, help="the JSON file that gets the results")
    arguments = parser.parse_args()
    if arguments.list:
        for each in WORKLOADS.values():
            print(f"{each.name:32}{each.title}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    usual = QUICK_PLAN if arguments.quick else Plan()
    layouts = tuple(Layout[name.upper()] for name in arguments.layouts) if arguments.layouts else tuple(Layout)
    if not shutil.which("java"):
        print("Apache Kafka is left out: there is no Java here")
        layouts = tuple(each for each in layouts if each is not Layout.KAFKA)
    plan = Plan(arguments.rounds or usual.rounds, arguments.seconds or usual.round_seconds, usual.warm_seconds, layouts)
    path = arguments.results or results.TOP / "build" / "benchmarks" / "results.json"
    command = shlex.join(["tests/load/side_by_side.py", *sys.argv[1:]])
    with tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as folder:
        try:
            kept = run(chosen(arguments.workloads, quick=arguments.quick), plan, path, command, Path(folder))
        finally:
            Driver.shared().close()
    table(kept)


if __name__ == "__main__":
    main()
