"""Runs workloads on all sides in turns, round after round, and keeps every sample.

A workload's sides are warmed up one after the other until three runs in a row differ by at most a tenth (or
`WARM_S` are over), then the amount of work is chosen so that the slowest side needs `round_seconds` for it: all sides
do the same work in every round, Apache Kafka first, ours after it (A/B/A/B). The figure is the median over the rounds,
and the ratio to Apache Kafka the median of the rounds' own ratios: what disturbs the machine for a while disturbs
both parts of a ratio.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from processes import cpu_seconds_of
from sides import Durability, Layout, Side, start
from workload import Sample, Workload

STEADY = 1.1
STEADY_RUNS = 3


@dataclass(frozen=True)
class Plan:
    """How long everything may take."""

    rounds: int = 5
    round_seconds: float = 2.0
    warm_seconds: float = 12.0
    layouts: tuple[Layout, ...] = tuple(Layout)


@dataclass
class Outcome:
    """Of one workload."""

    workload: Workload
    amount: int = 0
    #: for each round the sample of each layout
    rounds: list[dict[Layout, Sample]] = field(default_factory=list)
    #: layout -> how long it was warmed up, and how near its last rates were: (seconds, greatest / least)
    warmed: dict[Layout, tuple[float, float]] = field(default_factory=dict)
    #: share of a core that the sides used while another one was measured
    idle_cpu: float = 0.0
    error: str | None = None

    def samples(self) -> list[dict[str, object]]:
        return [{layout.name.lower(): asdict(sample) for layout, sample in each.items()} for each in self.rounds]


class Sides(contextlib.AbstractContextManager["Sides"]):
    """The brokers that run, started when they are first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[tuple[Layout, Durability], Side] = {}
        self._number = 0

    def of(self, layout: Layout, durability: Durability) -> Side:
        """One that is up; what has died is started anew. Synced rows are a matter of the topic to Apache Kafka: one
        process serves both."""
        side = self._running.get((layout, durability))
        if side is None or not side.alive():
            if side is not None:
                side.stop()
            self._number += 1
            side = start(layout, durability, self._folder / f"side-{self._number}")
            self._running[layout, durability] = side
        return side

    def only(self, durabilities: Iterable[Durability], layouts: Iterable[Layout]) -> None:
        """Stops those of other durabilities or layouts."""
        for key in list(self._running):
            if key[0] not in layouts or key[1] not in durabilities:
                self._running.pop(key).stop()

    def all(self) -> list[Side]:
        return list(self._running.values())

    def __exit__(self, *_: object) -> None:
        for side in self._running.values():
            with contextlib.suppress(Exception):
                side.stop()
        self._running.clear()


@contextlib.contextmanager
def _prepared(workload: Workload, sides: dict[Layout, Side]):  # type: ignore[no-untyped-def]
    ready: list[Side] = []
    try:
        for side in sides.values():
            ready.append(side)
            workload.prepare(side)
        yield
    finally:
        for side in ready:
            with contextlib.suppress(Exception):
                workload.finish(side)
            with contextlib.suppress(Exception):
                side.delete_topics()


def compare(workload: Workload, plan: Plan, running: Sides, say: Callable[[str], None]) -> Outcome:
    """A workload that fails has its error in the outcome."""
    outcome = Outcome(workload)
    try:
        sides = {
            layout: running.of(layout, workload.durability_of(layout))
            for layout in workload.layouts
            if layout in plan.layouts
        }
        with _prepared(workload, sides):
            _warm(workload, plan, sides, outcome, say)
            _rounds(workload, plan, sides, outcome, running, say)
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {error}"
    return outcome


def _warm(
    workload: Workload, plan: Plan, sides: dict[Layout, Side], outcome: Outcome, say: Callable[[str], None]
) -> None:
    """Chooses `outcome.amount`."""
    if not workload.amount:
        return
    slowest = float("inf")
    for layout, side in sides.items():
        began = time.perf_counter()
        amount, rates = workload.amount, list[float]()
        spread = float("inf")
        while spread > STEADY and time.perf_counter() - began < plan.warm_seconds:
            sample = workload.run(side, amount)
            rates.append(amount / sample.seconds)
            last = rates[-STEADY_RUNS:]
            spread = max(last) / min(last) if len(last) == STEADY_RUNS else float("inf")
            amount = min(workload.amount_max, max(workload.amount, int(rates[-1] * plan.round_seconds / 2)))
        outcome.warmed[layout] = (time.perf_counter() - began, spread)
        slowest = min(slowest, rates[-1])
        say(f"  warm  {layout:24} {time.perf_counter() - began:5.1f} s, last rates within {spread - 1:.0%}")
    outcome.amount = min(workload.amount_max, max(workload.amount, int(slowest * plan.round_seconds)))


def _rounds(
    workload: Workload,
    plan: Plan,
    sides: dict[Layout, Side],
    outcome: Outcome,
    running: Sides,
    say: Callable[[str], None],
) -> None:
    idle_seconds = idle_cpu = 0.0
    for number in range(min(plan.rounds, workload.rounds_max or plan.rounds)):
        samples: dict[Layout, Sample] = {}
        for layout, side in sides.items():
            os.sync()  # what the last turn left is not written during this one
            others = {
                f"{n}": pid
                for n, other in enumerate(running.all())
                if other is not side
                for pid in other.processes().values()
            }
            began, before = time.perf_counter(), sum(cpu_seconds_of(others).values())
            samples[layout] = workload.run(side, outcome.amount)
            idle_seconds += time.perf_counter() - began
            idle_cpu += sum(cpu_seconds_of(others).values()) - before
        outcome.rounds.append(samples)
        shown = {
            measure.name: "  ".join(
                f"{layout} {sample.values[measure.name]:,.3g}" for layout, sample in samples.items()
            )
            for measure in workload.measures
        }
        say("\n".join(f"  round {number + 1}  {name}: {values}" for name, values in shown.items()))
    outcome.idle_cpu = idle_cpu / idle_seconds if idle_seconds else 0.0
