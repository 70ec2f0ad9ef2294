"""The age of lags, with played clocks."""

from __future__ import annotations

import pytest
from storage_svc.rpc import lag_times
from storage_svc.rpc.lag_times import POINTS_MAX, LagTimes, _Points

KEY = ("t", 0)


def seen(times: LagTimes, now: float, **ends: int) -> None:
    """Play a round that sees partition 0 of these topics at these high watermarks."""
    times.begin()
    for topic, end in ends.items():
        times.note((topic, 0), end, now)
    times.finish()


def test_the_example_of_the_module() -> None:
    times = LagTimes()
    seen(times, 1000.0, t=100)
    assert times.age_s(KEY, 100, 100, 1000.0) == 0.0
    seen(times, 1010.0, t=200)
    assert times.age_s(KEY, 150, 200, 1010.0) == 5.0
    seen(times, 1020.0, t=200)
    assert times.age_s(KEY, 150, 200, 1020.0) == 15.0
    assert times.age_s(KEY, 200, 200, 1030.0) == 0.0


def test_records_that_came_after_the_last_round_are_younger_than_it() -> None:
    times = LagTimes()
    seen(times, 0.0, t=100)
    assert times.age_s(KEY, 150, 200, 10.0) == 5.0
    assert times.age_s(KEY, 100, 200, 10.0) == 10.0


def test_records_from_before_the_first_round_are_as_old_as_it() -> None:
    times = LagTimes()
    seen(times, 50.0, t=100)
    assert times.age_s(KEY, 3, 100, 50.0) == 0.0
    seen(times, 80.0, t=100)
    assert times.age_s(KEY, 3, 100, 80.0) == 30.0


def test_a_topic_that_is_created_again_begins_again() -> None:
    times = LagTimes()
    seen(times, 0.0, t=100)
    seen(times, 100.0, t=10)
    assert times.age_s(KEY, 5, 10, 107.0) == 7.0
    assert times.age_s(KEY, 10, 12, 107.0) == 7.0


def test_a_partition_that_no_round_sees_is_forgotten() -> None:
    times = LagTimes()
    seen(times, 0.0, t=1, u=1)
    seen(times, 10.0, u=1)
    assert times.age_s(KEY, 0, 1, 10.0) is None
    assert times.age_s(("u", 0), 0, 1, 10.0) == 10.0
    assert list(times._points) == [("u", 0)]


def test_partitions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_times, "PARTITIONS_MAX", 2)
    times = LagTimes()
    seen(times, 0.0, a=1, b=1, c=1)
    assert sorted(times._points) == [("a", 0), ("b", 0)]
    seen(times, 1.0, b=2, c=1)  # of the next round it has a place
    seen(times, 2.0, b=2, c=1)
    assert sorted(times._points) == [("b", 0), ("c", 0)]


def test_points_are_bounded_and_keep_the_first_and_the_newest() -> None:
    points = _Points()
    for number in range(1000):
        points.add(number, float(number))
    assert len(points.offsets) == len(points.times) <= POINTS_MAX
    assert (points.offsets[0], points.offsets[-1]) == (0, 999)
    assert points.since(500, 1000, 1000.0) == 500.0  # all of it grew evenly, so nothing is lost
