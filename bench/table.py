"""One row of a table of figures: its target and the measured value."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    figure: str
    must: str
    measured: str


def show(rows: Iterable[Row], *, head: bool = True) -> None:
    if head:
        print(f"{'':74}{'must':>16}{'measured':>40}")
    for figure, must, measured in rows:
        print(f"{figure:74}{must:>16}{measured:>40}", flush=True)


def share(sorted_values: Sequence[float], part: float) -> float:
    """Return the value below which that part of them lies."""
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * part))]


def alternating(rounds: int, first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """Return the medians of two measurements that took turns, so that a disturbance of the machine meets both."""
    pairs = [(first(), second()) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
