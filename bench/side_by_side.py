"""`make bench`: Millrace and Apache Kafka 4.3.0, on one machine, in one run, with the same drivers.

    .venv/bin/python bench/side_by_side.py                           everything
    .venv/bin/python bench/side_by_side.py --quick                   the short run
    .venv/bin/python bench/side_by_side.py produce_16k --rounds 3    one workload
    .venv/bin/python bench/side_by_side.py --list

Results are kept in build/benchmarks, or with --publish in docs/benchmarks: JSON with every raw sample, a Markdown table
and a chart. Each workload is written when it is done, in place of its older result. An interrupted run is continued
with --resume, and single workloads are measured again by name. The method: comparison.py. Needs Linux, and for Apache
Kafka Java 17; without it only our side is measured.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import report
import results
from chart import chart
from comparison import Plan, Sides, compare
from drivers import Driver
from regression import regressions
from sides import Durability, Layout
from support.kafka_broker import libraries
from workload import Workload
from workloads import WORKLOADS

PUBLISHED = results.TOP / "docs" / "benchmarks"
WORK = results.TOP / "build" / "benchmarks"
QUICK_PLAN = Plan(rounds=3, round_seconds=0.6, warm_seconds=1.5, jit_seconds=3.0, fresh_seconds=8.0)


def chosen(arguments: argparse.Namespace) -> list[Workload]:
    """Return the workloads in the order of the table, page-cache rows before synced ones: fewer brokers run at once."""
    names = arguments.workloads or [name for name, each in WORKLOADS.items() if each.quick or not arguments.quick]
    possible = []
    for each in (WORKLOADS[name] for name in names):
        missing = each.missing()
        if missing:
            print(f"{each.name} is left out: {missing}")
        else:
            possible.append(each)
    return sorted(possible, key=lambda each: list(Durability).index(each.durability))


def planned(arguments: argparse.Namespace) -> Plan:
    usual = QUICK_PLAN if arguments.quick else Plan()
    layouts = tuple(Layout[name.upper()] for name in arguments.layouts or [each.name for each in Layout])
    missing = why_no_kafka() if Layout.KAFKA in layouts else ""
    if missing:
        print(f"Apache Kafka is left out, our own side is measured alone: {missing}")
        layouts = tuple(each for each in layouts if each is not Layout.KAFKA)
    return Plan(
        arguments.rounds or usual.rounds,
        arguments.seconds or usual.round_seconds,
        usual.warm_seconds,
        usual.jit_seconds,
        usual.fresh_seconds,
        layouts,
    )


def why_no_kafka() -> str:
    if not shutil.which("java"):
        return "Java is not installed"
    try:
        libraries()
    except Exception as error:  # any fault between here and Maven
        return f"its jars cannot be fetched from Maven: {error}"
    return ""


def run(workloads: list[Workload], plan: Plan, folder: Path, command: str, *, resume: bool) -> dict[str, Any]:
    """Measure, and write the results after each workload; return the content of the results file."""
    kept = results.load(folder / "results.json")
    commit = results.commit()
    done = {name for name, entry in kept["workloads"].items() if entry["commit"] == commit and not entry["error"]}
    left = [each for each in workloads if not (resume and each.name in done)]
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as brokers,
        Sides(Path(brokers)) as running,
    ):
        for number, workload in enumerate(left):
            print(
                f"[{time.perf_counter() - began:5.0f} s] {workload.name}: {workload.title} ({workload.durability})",
                flush=True,
            )
            running.only({each.durability_of(layout) for each in left[number:] for layout in Layout})
            outcome = compare(workload, plan, running, lambda line: print(line, flush=True))
            if outcome.error:
                print(f"  FAILED: {outcome.error}", flush=True)
            results.add(kept, outcome, command, commit)
            kept["workloads"] = {name: kept["workloads"][name] for name in WORKLOADS if name in kept["workloads"]}
            write(kept, folder)
    return kept


def write(kept: Mapping[str, Any], folder: Path) -> None:
    results.save(kept, folder / "results.json")
    (folder / "results.md").write_text(report.markdown(kept))
    (folder / "results.svg").write_text(chart(kept))


def show(kept: Mapping[str, Any]) -> None:
    """Print the table."""
    line = "{:66} {:24}{:>34}{:>34}{:>8}{:>10}  {}".format
    print("\n" + line("least / median / greatest", "layout", "Apache Kafka", "Millrace", "ratio", "must", ""))
    for figure in results.figures(kept):
        spreads = (" / ".join(report.number(value) for value in each or ()) for each in (figure.kafka, figure.ours))
        ratio = f"{figure.ratio:.2f}" if figure.ratio is not None else ""
        verdict = {True: "reached", False: "MISSED", None: ""}[figure.reached]
        if figure.error:
            verdict = f"FAILED: {figure.error}"
        name = f"{figure.title} ({figure.durability}): {figure.measure}, {figure.unit}"
        print(line(name, figure.layout.value, *spreads, ratio, report.must(figure), verdict))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="see --list (default: all)")
    parser.add_argument("--list", action="store_true", help="what there is")
    parser.add_argument("--quick", action="store_true", help="short rounds of the most telling workloads")
    parser.add_argument("--rounds", type=int, help="how often the sides take turns")
    parser.add_argument("--seconds", type=float, help="what a round takes on the slowest side")
    parser.add_argument("--layouts", nargs="+", choices=[each.name.lower() for each in Layout])
    parser.add_argument("--publish", action="store_true", help="into docs/benchmarks")
    parser.add_argument("--resume", action="store_true", help="without what this commit's results have already")
    parser.add_argument("--render", action="store_true", help="only write table and chart from the JSON again")
    parser.add_argument(
        "--check", action="store_true", help="fail where a ratio is far below the one in docs/benchmarks"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.workloads) - set(WORKLOADS):
        parser.error(f"no workload is called {', '.join(sorted(unknown))}; --list says what there is")
    folder = PUBLISHED if arguments.publish else WORK
    if arguments.list:
        for each in WORKLOADS.values():
            print(f"{each.name:28}{each.title} ({each.durability}){'' if each.quick else ', not in the short run'}")
        return 0
    if arguments.render:
        write(results.load(folder / "results.json"), folder)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    command = shlex.join(["bench/side_by_side.py", *sys.argv[1:]])
    workloads = chosen(arguments)
    try:
        kept = run(workloads, planned(arguments), folder, command, resume=arguments.resume)
    except KeyboardInterrupt:
        print("\nBroken off; what was finished is kept, and --resume goes on from there.")
        return 130
    finally:
        Driver.close_all()
    names = {each.name for each in workloads}
    measured = {**kept, "workloads": {name: entry for name, entry in kept["workloads"].items() if name in names}}
    show(measured)
    print(f"\nWritten to {folder}")
    if arguments.check:
        found = list(regressions(results.load(PUBLISHED / "results.json"), measured))
        print("\n".join(["", *found] if found else ["", "No ratio is far below the checked-in one."]))
        return 1 if found else 0
    return 1 if any(entry["error"] for entry in measured["workloads"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
