"""`make bench-against CHECKOUT=FOLDER`: compare this tree with another checkout of Millrace, in turns of one run.

    git worktree add ../before HEAD~1 && make -C ../before setup
    .venv/bin/python bench/against.py ../before
    .venv/bin/python bench/against.py ../before produce_records heartbeats --rounds 9

Both brokers are up at once, each layout by itself. A round runs the workload on both, in alternating order.
The figure is the median of the rounds' ratios (above 1: this tree is better). Exit status 1: a ratio is below its
bound. The ratio of processor time counts the services of a side (not the client) and no wall clock, so other work on
the machine moves it less; it has no bound. Single rounds vary by a third on a shared machine; ask again with more
rounds before believing a miss.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from drivers import Driver
from sides import Layout, Millrace, Side
from workload import Measure, Sample, Workload
from workloads import WORKLOADS, group_members

BOUND = 0.97
#: The bound of rows that take a few microseconds of the broker each, and so have more noise.
BOUND_SMALL = 0.95
SMALL = ("lone", "synced_lone", "produce_records", "heartbeats", "commits")
USUAL = (
    "produce_1m",
    "produce_16k",
    "produce_16k_x4",
    "produce_records",
    "lone",
    "fetch_1m",
    "fetch_8m",
    "librdkafka_consumer",
    "heartbeats",
    "commits",
)
PROCESSOR = Measure("processor time", "s a round", "less")
KNOWN: dict[str, Workload] = {**WORKLOADS, **{each.name: each for each in group_members.WORKLOADS}}


def amount_of(workload: Workload, side: Side, seconds: float) -> int:
    """Return the amount of work that takes `seconds`, after two runs that warm the side up."""
    amount = workload.amount
    if not amount:
        return 0
    for share in (0.25, 0.5, 1.0):
        rate = amount / workload.run(side, amount).seconds
        amount = min(workload.amount_max, max(workload.amount, int(rate * seconds * share)))
    return amount


def services_seconds(sample: Sample) -> float:
    """Return the processor time of the side's services in a round, in seconds, of at least a clock tick."""
    used = {} if sample.usage is None else sample.usage.cpu_seconds
    return max(0.01, sum(seconds for name, seconds in used.items() if name != "driver"))


def ratios(measure: Measure, samples: list[tuple[float, float]]) -> list[float]:
    """Return the ratio of this tree to the other, round by round; above 1, this tree is better."""
    return [ours / theirs if measure.better == "more" else theirs / ours for ours, theirs in samples]


def compare(workload: Workload, sides: tuple[Side, Side], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the ratios of each measure; `sides` are this tree's and the other's."""
    values: dict[str, list[tuple[float, float]]] = {measure.name: [] for measure in (*workload.measures, PROCESSOR)}
    for side in sides:
        workload.prepare(side)
    amount = min(amount_of(workload, side, seconds) for side in sides)
    for number in range(rounds):
        found = {}
        for index in (0, 1) if number % 2 else (1, 0):
            os.sync()
            sample = workload.run(sides[index], amount)
            found[index] = {**sample.values, PROCESSOR.name: services_seconds(sample)}
        for name, pairs in values.items():
            pairs.append((found[0][name], found[1][name]))
    for side in sides:
        workload.finish(side)
    for measure in (*workload.measures, PROCESSOR):
        ours, theirs = (statistics.median(each) for each in zip(*values[measure.name], strict=True))
        print(f"      {measure.name}, {measure.unit}: this {ours:,.4g}, other {theirs:,.4g}", flush=True)
    return {measure.name: ratios(measure, values[measure.name]) for measure in (*workload.measures, PROCESSOR)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="another checkout, after its `make setup`")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"default: {' '.join(USUAL)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.8, help="length of a round on one side")
    parser.add_argument("--layouts", nargs="+", choices=["combined", "separate"], default=["combined", "separate"])
    arguments = parser.parse_args()
    if unknown := set(arguments.workloads) - set(KNOWN):
        parser.error(f"no workload is called {', '.join(sorted(unknown))}")
    programs = arguments.checkout.resolve() / ".venv" / "bin"
    if not (programs / "millrace").exists():
        parser.error(f"{programs} has no millrace: run `make setup` there")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    missed = []
    chosen = [KNOWN[name] for name in arguments.workloads or USUAL]
    with tempfile.TemporaryDirectory(prefix="millrace-against-", ignore_cleanup_errors=True) as folder:
        for layout in (Layout[name.upper()] for name in arguments.layouts):
            for workload in chosen:
                if layout not in workload.layouts:
                    continue
                print(f"{workload.name}, {layout}", flush=True)
                with contextlib.ExitStack() as running:
                    sides = []
                    for name, commands in (("this", None), ("other", programs)):
                        place = Path(folder) / f"{workload.name}-{layout.name}-{name}"
                        side = Millrace(layout, workload.durability, place, commands)
                        running.callback(side.stop)
                        sides.append(side)
                    found = compare(workload, (sides[0], sides[1]), arguments.rounds, arguments.seconds)
                bound = BOUND_SMALL if workload.name in SMALL else BOUND
                for measure, each in found.items():
                    median = statistics.median(each)
                    held = measure != workload.measures[0].name or median >= bound
                    print(
                        f"  {'ok  ' if held else 'MISS'}{measure}: {median:.3f} of the other"
                        f" ({min(each):.2f} to {max(each):.2f}, {len(each)} rounds)",
                        flush=True,
                    )
                    if not held:
                        missed.append(f"{workload.name}, {layout}, {measure}: {median:.3f}")
    Driver.close_all()
    print("\n".join(["", *missed] if missed else ["", "No row is below its bound."]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
