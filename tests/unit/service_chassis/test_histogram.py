"""Histograms of plain integers, as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.core import HistogramMetricFamily
from service_chassis.histogram import Buckets


def test_observations_at_and_between_the_bounds() -> None:
    buckets = Buckets((0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 3.0):
        buckets.observe(value)
    buckets.observe(1.0, 5)
    family = HistogramMetricFamily("waits", "Waits.", labels=["reason"])
    buckets.add_to(family, ["none"])
    found = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
    assert found == {
        ("waits_bucket", "0.5"): 2,
        ("waits_bucket", "1.0"): 8,
        ("waits_bucket", "+Inf"): 9,
        ("waits_count", None): 9,
        ("waits_sum", None): 9.5,
    }
    assert all(sample.labels["reason"] == "none" for sample in family.samples)


def test_a_family_without_labels_and_observations() -> None:
    samples = Buckets((1.0,)).family("waits", "Waits.").samples
    assert [(sample.name, sample.value) for sample in samples] == [
        ("waits_bucket", 0),
        ("waits_bucket", 0),
        ("waits_count", 0),
        ("waits_sum", 0),
    ]
