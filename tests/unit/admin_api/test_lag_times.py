"""The age of lags, with played clocks."""

from __future__ import annotations

from admin_api.exporter import Snapshot, collect
from admin_api.lag_times import POINTS_MAX, LagTimes, _Points

KEY = ("g", "t", 0)


def test_the_example_of_the_module() -> None:
    times = LagTimes()
    assert times.lags({KEY: 100}, {("t", 0): (0, 100)}, 1000.0) == {KEY: 0.0}
    assert times.lags({KEY: 150}, {("t", 0): (0, 200)}, 1010.0) == {KEY: 5.0}
    assert times.lags({KEY: 150}, {("t", 0): (0, 200)}, 1020.0) == {KEY: 15.0}
    assert times.lags({KEY: 200}, {("t", 0): (0, 200)}, 1030.0) == {KEY: 0.0}


def test_records_from_before_the_first_scrape_are_as_old_as_it() -> None:
    times = LagTimes()
    assert times.lags({KEY: 3}, {("t", 0): (0, 100)}, 50.0) == {KEY: 0.0}
    assert times.lags({KEY: 3}, {("t", 0): (0, 100)}, 80.0) == {KEY: 30.0}


def test_deleted_records_are_no_lag() -> None:
    times = LagTimes()
    times.lags({KEY: 0}, {("t", 0): (0, 10)}, 0.0)
    times.lags({KEY: 0}, {("t", 0): (0, 20)}, 10.0)
    assert times.lags({KEY: 0}, {("t", 0): (15, 20)}, 20.0) == {KEY: 15.0}
    assert times.lags({KEY: 0}, {("t", 0): (20, 20)}, 30.0) == {KEY: 0.0}


def test_a_topic_that_is_created_again_begins_again() -> None:
    times = LagTimes()
    times.lags({KEY: 5}, {("t", 0): (0, 100)}, 0.0)
    assert times.lags({KEY: 5}, {("t", 0): (0, 10)}, 100.0) == {KEY: 0.0}
    assert times.lags({KEY: 5}, {("t", 0): (0, 10)}, 107.0) == {KEY: 7.0}


def test_partitions_without_offsets_have_none_and_unused_ones_are_forgotten() -> None:
    times = LagTimes()
    assert times.lags({("g", "gone", 0): 5}, {}, 0.0) == {}
    times.lags({KEY: 0}, {("t", 0): (0, 1)}, 0.0)
    times.lags({}, {("t", 0): (0, 1)}, 10.0)
    assert times._points == {}


def test_points_are_bounded_and_keep_the_first_and_the_newest() -> None:
    points = _Points()
    for number in range(1000):
        points.add(number, float(number))
    assert len(points.offsets) == len(points.times) <= POINTS_MAX
    assert (points.offsets[0], points.offsets[-1]) == (0, 999)
    assert points.since(500) == 500.0  # all of it grew evenly, so nothing is lost
    assert points.since(999) is None


def test_the_family() -> None:
    shown = [each for family in collect(Snapshot(lag_seconds={KEY: 2.5})) for each in family.samples]
    (sample,) = [each for each in shown if each.name == "millrace_consumergroup_lag_seconds"]
    assert (sample.labels, sample.value) == ({"consumergroup": "g", "topic": "t", "partition": "0"}, 2.5)
