"""Timers of several parts share the wake-ups of an event loop."""

from __future__ import annotations

import asyncio

import pytest
from service_chassis import shared_wakes


class _At(asyncio.SelectorEventLoop):
    now = 0.0

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("now", "every_s", "due"),
    [(1000.3, 1.0, 1001.0), (1000.3, 5.0, 1005.0), (1000.0, 1.0, 1001.0), (1000.9995, 1.0, 1002.0), (3.0, 0.2, 3.2)],
    ids=["of a second", "of five", "on time", "fired early", "of less than a second"],
)
def test_a_timer_is_due_at_a_multiple_of_its_interval(now: float, every_s: float, due: float) -> None:
    loop = _At()
    loop.now = now
    assert shared_wakes.next_at(loop, every_s) == pytest.approx(due)
    loop.close()
