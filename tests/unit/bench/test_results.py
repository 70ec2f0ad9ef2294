"""The bench's table of samples: spreads, ratios, reached targets and fallen ratios."""

from typing import Any

import pytest
from chart import chart
from regression import regressions
from report import markdown, number
from results import figures


def results(
    kafka: list[float],
    ours: list[float],
    better: str = "more",
    must: tuple[str, float] = ("ratio", 1.5),
    error: str = "",
) -> dict[str, Any]:
    samples = [
        {side: {"values": {"rate": value}, "seconds": 1, "bytes": 10**9, "usage": None} for side, value in pair.items()}
        for pair in ({"kafka": a, "combined": b} for a, b in zip(kafka, ours, strict=True))
    ]
    workload = {
        "title": "produce",
        "durability": "page cache",
        "kafka_durability": "page cache",
        "measures": [{"name": "rate", "unit": "MB/s", "better": better, "musts": {"combined": list(must)}}],
        "rounds": samples,
        "error": error or None,
        "commit": "abc",
        "command": "bench",
        "time": "now",
    }
    machine = {"cores": 2, "processor": "x", "memory_bytes": 10**9, "kernel": "6"}
    versions = {"python": "3", "java": "17", "confluent-kafka": "2", "apache_kafka": "4.3.0", "jvm": "java"}
    return {"machine": machine, "versions": versions, "apache_kafka": "", "workloads": {"p": workload}}


def test_a_figure_is_the_median_and_the_ratio_that_of_the_rounds() -> None:
    (figure,) = figures(results([100, 10, 200], [200, 40, 300]))

    assert figure.kafka == (10, 100, 200)
    assert figure.ours == (40, 200, 300)
    assert figure.ratio == 2.0  # of 2, 4 and 1.5
    assert figure.reached is True


@pytest.mark.parametrize(
    ("ours", "better", "must", "reached"),
    [
        (149, "more", ("ratio", 1.5), False),
        (150, "more", ("ratio", 1.5), True),
        (120, "less", ("ratio", 1.2), True),
        (121, "less", ("ratio", 1.2), False),
        (3, "less", ("value", 3), True),
        (3.1, "less", ("value", 3), False),
    ],
)
def test_what_has_to_be_is_at_least_or_at_most(
    ours: float, better: str, must: tuple[str, float], reached: bool
) -> None:
    (figure,) = figures(results([100], [ours], better, must))

    assert figure.reached is reached


def test_what_failed_is_not_reached() -> None:
    (figure,) = figures(results([], [], error="ReadBackError: lost"))

    assert figure.reached is False
    assert "failed: ReadBackError: lost" in markdown(results([], [], error="ReadBackError: lost"))


@pytest.mark.parametrize(
    ("now", "better", "fallen"),
    [(121, "more", False), (119, "more", True), (330, "less", False), (340, "less", True)],
)
def test_a_ratio_that_has_fallen_far_is_a_regression(now: float, better: str, fallen: bool) -> None:
    was = results([100], [200], better)

    assert list(regressions(was, results([100], [now], better))) == (
        [f"p, rate, combined: {now / 100:.2f} of Apache Kafka, in the table 2.00"] if fallen else []
    )


def test_a_ratio_that_is_nothing_now_is_a_regression() -> None:
    fallen = regressions(results([100], [200]), results([100], [0]))

    assert list(fallen) == ["p, rate, combined: 0.00 of Apache Kafka, in the table 2.00"]


def test_without_apache_kafka_there_is_no_ratio_and_nothing_to_say_of_it() -> None:
    alone = results([100, 10], [200, 40])
    for each in alone["workloads"]["p"]["rounds"]:
        del each["kafka"]
    (figure,) = figures(alone)

    assert (figure.kafka, figure.ours, figure.ratio, figure.reached) == (None, (40, 120, 200), None, None)
    assert list(regressions(results([100], [200]), alone)) == []


def test_what_it_cost_is_per_gb_and_the_median() -> None:
    shown = results([100, 100, 100], [200, 200, 200])
    for nth, each in enumerate(shown["workloads"]["p"]["rounds"], 1):
        memory = {"gateway-svc": nth * 10**8}
        each["combined"] |= {
            "bytes": 2 * 10**9,
            "usage": {"cpu_seconds": {"gateway-svc": nth**2}, "rss_bytes": memory, "pss_bytes": memory},
        }

    # CPU seconds 1, 4 and 9 for 2 GB each
    assert "| produce (page cache) | combined | gateway-svc | 2.00 | 200 | 200 |" in markdown(shown)


def test_a_failure_and_a_missing_table_are_regressions() -> None:
    good = results([100], [200])

    assert list(regressions(good, results([], [], error="EOFError: x"))) == ["p: failed: EOFError: x"]
    assert list(regressions({"workloads": {}}, good)) == ["there is no checked-in table to compare with"]


def test_the_page_and_the_chart_show_it() -> None:
    shown = results([100, 10, 200], [200, 40, 300])

    cells = "| page cache | combined | 10.0 · **100** · 200 | 40.0 · **200** · 300 | 2.00 | ≥ 1.5 | reached |"
    assert f"| produce: rate, MB/s {cells}" in markdown(shown)
    assert ">2.00<" in chart(shown)


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (0.0512, "0.0512"), (1.0, "1.00"), (99.96, "100.0"), (1234.5, "1,234")]
)
def test_numbers_have_three_digits_that_count(value: float, shown: str) -> None:
    assert number(value) == shown
