"""How the comparison takes turns, and how it chooses each side's amount of work."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from comparison import Outcome, Plan, Sides, compare
from sides import Durability, Layout, Side
from workload import Measure, Sample, Workload

KAFKA, COMBINED = Layout.KAFKA, Layout.COMBINED


class Produce(Workload):
    """A workload that takes a second for each hundred of work on Apache Kafka, for each two hundred on ours."""

    name, title = "p", "produce"
    measures = (Measure("rate", "1/s"),)
    layouts = (KAFKA, COMBINED)
    amount = 10

    def __init__(self, fail_at: int = 0, amount_max: int = 1 << 62) -> None:
        self.turns: list[tuple[Layout, int]] = []
        self.ended: list[Layout] = []
        self._fail_at = fail_at
        self.amount_max = amount_max

    def run(self, side: Side, amount: int) -> Sample:
        self.turns.append((side.layout, amount))
        if len(self.turns) == self._fail_at:
            raise EOFError("gone")
        rate = 100 if side.layout is KAFKA else 200
        return Sample({"rate": rate}, amount / rate)

    def finish(self, side: Side) -> None:
        self.ended.append(side.layout)


class NoBrokers(Sides):
    """Sides without processes."""

    def __init__(self) -> None:
        super().__init__(Path())
        self.stopped = 0

    def of(self, layout: Layout, durability: Durability) -> Side:
        side: Any = SimpleNamespace(layout=layout, fresh=False, processes=dict, delete_topics=lambda: None)
        return side

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def compared() -> Callable[[Workload], tuple[Outcome, NoBrokers]]:
    plan = Plan(rounds=3, round_seconds=2.0, warm_seconds=60.0, jit_seconds=0.0, fresh_seconds=0.0)
    running = NoBrokers()
    return lambda workload: (compare(workload, plan, running, lambda line: None), running)


def test_a_steady_side_is_warm_after_three_runs_and_then_they_take_turns(compared: Any) -> None:
    workload = Produce()
    outcome, _ = compared(workload)

    # a run of the least amount, then half a round by the rate that was seen
    assert workload.turns[:6] == [
        (KAFKA, 10),
        (KAFKA, 100),
        (KAFKA, 100),
        (COMBINED, 10),
        (COMBINED, 200),
        (COMBINED, 200),
    ]
    assert workload.turns[6:] == [(KAFKA, 200), (COMBINED, 400)] * 3
    assert outcome.amounts == {KAFKA: 200, COMBINED: 400}
    assert [(each.runs, each.spread) for each in outcome.warmed.values()] == [(3, 1.0), (3, 1.0)]
    assert outcome.rounds == [{KAFKA: Sample({"rate": 100}, 2.0), COMBINED: Sample({"rate": 200}, 2.0)}] * 3
    assert (outcome.error, workload.ended) == (None, [COMBINED, KAFKA])


def test_the_amount_has_a_bound(compared: Any) -> None:
    outcome, _ = compared(Produce(amount_max=150))

    assert outcome.amounts == {KAFKA: 150, COMBINED: 150}


def test_a_failure_is_the_outcome_and_the_next_workload_gets_new_brokers(compared: Any) -> None:
    workload = Produce(fail_at=8)
    outcome, running = compared(workload)

    assert (outcome.error, outcome.rounds) == ("EOFError: gone", [])
    assert workload.ended == [COMBINED, KAFKA]
    assert running.stopped == 1
