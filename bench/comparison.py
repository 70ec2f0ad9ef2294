"""The comparison: run workloads on all sides in turns, round after round, and keep every sample.

A workload's sides are warmed up one after the other until three runs in a row differ by at most a tenth (or the plan's
time for it is over). Each side's amount of work is then chosen so that it needs the plan's seconds, and is the same in
every round. Apache Kafka is first, ours after it (A/B/A/B). The figure is the median over the rounds, the ratio to
Apache Kafka the median of the rounds' ratios: a disturbance of the machine meets both parts of a ratio.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drivers import Driver
from processes import cpu_seconds
from sides import Durability, Layout, Side, start
from workload import Sample, Workload

STEADY = 1.1
STEADY_RUNS = 3


@dataclass(frozen=True)
class Plan:
    """Times of one comparison."""

    rounds: int = 5
    round_seconds: float = 1.5
    #: longest warming up of each workload and side
    warm_seconds: float = 6.0
    #: Shortest warming up of Apache Kafka, whose JIT compiler works on each new workload.
    jit_seconds: float = 6.0
    #: Seconds to add when the broker has just started.
    fresh_seconds: float = 12.0
    layouts: tuple[Layout, ...] = tuple(Layout)


@dataclass(frozen=True)
class Warmed:
    """The warming up of a side; `spread` is the greatest of the last rates by the least, None after too few runs."""

    seconds: float
    runs: int
    spread: float | None


@dataclass
class Outcome:
    """The outcome of one workload."""

    workload: Workload
    #: amount of work in each round
    amounts: dict[Layout, int] = field(default_factory=dict)
    #: samples of each round, by layout
    rounds: list[dict[Layout, Sample]] = field(default_factory=list)
    warmed: dict[Layout, Warmed] = field(default_factory=dict)
    #: share of a core that each side used while another one was measured
    idle_cpu: dict[Layout, float] = field(default_factory=dict)
    error: str | None = None


class Sides(contextlib.AbstractContextManager["Sides"]):
    """The brokers that run, started when they are first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[tuple[Layout, Durability | None], Side] = {}
        self._number = 0

    def of(self, layout: Layout, durability: Durability) -> Side:
        """Return a side that is up; a dead one is started again.

        For Apache Kafka synced rows are a matter of the topic, so one process serves both.
        """
        key = (layout, None if layout is Layout.KAFKA else durability)
        side = self._running.get(key)
        if side is None or not side.alive():
            if side is not None:
                side.stop()
            self._number += 1
            side = start(layout, durability, self._folder / f"side-{self._number}")
            self._running[key] = side
        side.durability = durability
        return side

    def only(self, durabilities: Iterable[Durability]) -> None:
        """Stop the sides of other durabilities."""
        for layout, durability in list(self._running):
            if durability not in (None, *durabilities):
                self._running.pop((layout, durability)).stop()

    def stop(self) -> None:
        """Stop all sides."""
        while self._running:
            _, side = self._running.popitem()
            with contextlib.suppress(Exception):
                side.stop()

    def __exit__(self, *_: object) -> None:
        self.stop()


def compare(workload: Workload, plan: Plan, running: Sides, say: Callable[[str], None]) -> Outcome:
    """Run one workload. If it fails, the outcome has the error, and the next one gets brokers that have just
    started.
    """
    comparison = _Comparison(workload, plan, running, say)
    try:
        comparison.run()
    except Exception as error:
        comparison.outcome.error = f"{type(error).__name__}: {error}"
        running.stop()
        Driver.close_all()
    return comparison.outcome


class _Idle:
    """The processor time of sides while other sides are measured."""

    def __init__(self, sides: Mapping[Layout, Side]) -> None:
        self._sides = sides
        self._seconds = dict.fromkeys(sides, 0.0)
        self._cpu_seconds = dict.fromkeys(sides, 0.0)

    @contextlib.contextmanager
    def but(self, measured: Layout) -> Iterator[None]:
        """Watch all other sides to the end of the block."""
        pids = {layout: list(side.processes().values()) for layout, side in self._sides.items() if layout != measured}
        before = {layout: cpu_seconds(each) for layout, each in pids.items()}
        began = time.perf_counter()
        yield
        for layout, each in pids.items():
            self._seconds[layout] += time.perf_counter() - began
            self._cpu_seconds[layout] += cpu_seconds(each) - before[layout]

    def shares(self) -> dict[Layout, float]:
        """Return the share of a core of each side."""
        return {layout: self._cpu_seconds[layout] / spent for layout, spent in self._seconds.items() if spent}


class _Comparison:
    """One workload on its sides."""

    def __init__(self, workload: Workload, plan: Plan, running: Sides, say: Callable[[str], None]) -> None:
        self.outcome = Outcome(workload)
        self._workload, self._plan, self._running, self._say = workload, plan, running, say
        self._sides: dict[Layout, Side] = {}

    def run(self) -> None:
        workload = self._workload
        with contextlib.ExitStack() as at_end:
            for layout in workload.layouts:
                if layout in self._plan.layouts:
                    side = self._running.of(layout, workload.durability_of(layout))
                    self._sides[layout] = side
                    at_end.callback(self._finish, side)
                    workload.prepare(side)
            for layout, side in self._sides.items():
                self.outcome.amounts[layout] = self._warm(layout, side) if workload.amount else 0
            self._rounds()

    def _finish(self, side: Side) -> None:
        with contextlib.suppress(Exception):  # of a broker that failed: the first error is reported
            self._workload.finish(side)
        with contextlib.suppress(Exception):
            side.delete_topics()

    def _warm(self, layout: Layout, side: Side) -> int:
        """Warm a side up until its rate is steady; return the amount of work of its rounds."""
        workload, plan = self._workload, self._plan
        least = 0.0
        if layout is Layout.KAFKA:
            least = plan.jit_seconds + (plan.fresh_seconds if side.fresh else 0.0)
            side.fresh = False
        most = least + plan.warm_seconds
        amount, rates, spread, seconds = workload.amount, list[float](), math.inf, 0.0
        began = time.perf_counter()
        while seconds < least or (spread > STEADY and seconds < most):
            rates.append(amount / workload.run(side, amount).seconds)
            last = rates[-STEADY_RUNS:]
            spread = max(last) / min(last) if len(last) == STEADY_RUNS else math.inf
            amount = min(workload.amount_max, max(workload.amount, int(rates[-1] * plan.round_seconds / 2)))
            seconds = time.perf_counter() - began
        self.outcome.warmed[layout] = Warmed(seconds, len(rates), spread if spread < math.inf else None)
        steady = f"the last {STEADY_RUNS} within {spread - 1:.0%}" if spread < math.inf else "not steady"
        self._say(f"  warm-up  {layout}: {len(rates)} runs in {seconds:.1f} s, {steady}")
        return min(workload.amount_max, max(workload.amount, int(rates[-1] * plan.round_seconds)))

    def _rounds(self) -> None:
        workload, outcome = self._workload, self.outcome
        idle = _Idle(self._sides)
        for number in range(min(self._plan.rounds, workload.rounds_max or self._plan.rounds)):
            samples: dict[Layout, Sample] = {}
            for layout, side in self._sides.items():
                os.sync()  # so that data of the last turn is not written during this one
                with idle.but(layout):
                    samples[layout] = workload.run(side, outcome.amounts[layout])
            outcome.rounds.append(samples)
            outcome.idle_cpu = idle.shares()
            for measure in workload.measures:
                values = (f"{layout} {sample.values[measure.name]:,.4g}" for layout, sample in samples.items())
                self._say(f"  round {number + 1}  {measure.name}, {measure.unit}:  {'  '.join(values)}")
