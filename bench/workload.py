"""A workload of the comparison: a class with `run`, and the targets of its figures.

    class Produce(Workload):
        name, title, durability = "produce_16k", "produce, 16 KB batches, 1 connection", Durability.PAGE_CACHE
        measures = (Measure("rate", "MB/s", musts={Layout.COMBINED: Must(1.8), Layout.SEPARATE: Must(1.0)}),)
        amount = 2_000

        def run(self, side: Side, amount: int) -> Sample: ...

`run` does one round on one side. It makes its topic, drives the broker (from separate processes: drivers.py), counts
and reads back the written records, and deletes its topic. It raises an error when something is wrong. The workload is
then reported as failed, and the others continue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from processes import Usage
from sides import Durability, Layout, Side


@dataclass(frozen=True)
class Must:
    """The target of a figure: at least `bound` where more is better, at most `bound` where less is.

    It holds for the ratio to Apache Kafka in the same run (median of the rounds' ratios), or for the value (median).
    """

    bound: float
    of: Literal["ratio", "value"] = "ratio"


@dataclass(frozen=True)
class Measure:
    """One figure of a workload. Layouts without a must are reported only."""

    name: str
    unit: str
    better: Literal["more", "less"] = "more"
    musts: Mapping[Layout, Must] = field(default_factory=dict)


@dataclass
class Sample:
    """One round on one side."""

    #: measure name -> value in its unit
    values: dict[str, float]
    #: Seconds of the timed part, by which the amount of work of the rounds is chosen.
    seconds: float
    #: Record bytes the broker took or gave in the timed part; 0: cost per GB is not shown.
    bytes: int = 0
    usage: Usage | None = None


class Workload(ABC):
    name: str
    title: str
    measures: tuple[Measure, ...]
    durability: Durability = Durability.PAGE_CACHE
    #: None: the same as ours.
    kafka_durability: Durability | None = None
    layouts: tuple[Layout, ...] = (Layout.KAFKA, Layout.COMBINED, Layout.SEPARATE)
    #: Work of the first, shortest run, in units of the workload's own (requests, bytes). From there the bench warms up
    #: until the rate is steady and chooses the amount that takes a round's seconds. 0: nothing to warm up or choose,
    #: `run` gets 0.
    amount: int = 0
    amount_max: int = 1 << 62
    #: Whether it belongs to the short run (QUICK=1).
    quick: bool = True
    #: Largest number of rounds; None: as many as requested.
    rounds_max: int | None = None

    def missing(self) -> str:
        """Return the reason why this machine cannot run it; empty if it can."""
        return ""

    def prepare(self, side: Side) -> None:  # noqa: B027  most have nothing to prepare
        """Prepare each side once, before it is warmed up."""

    @abstractmethod
    def run(self, side: Side, amount: int) -> Sample: ...

    def finish(self, side: Side) -> None:  # noqa: B027
        """Finish each side once, after the last round, also of a failed workload."""

    def durability_of(self, layout: Layout) -> Durability:
        if layout is Layout.KAFKA and self.kafka_durability is not None:
            return self.kafka_durability
        return self.durability
