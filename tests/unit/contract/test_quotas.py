"""Quotas: the quota of a client, and rates beside those of Apache Kafka's own classes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from broker_contract.quotas import Limit, Quotas, Rate, TokenBucket, entity, entity_fault, value_fault
from support.kafka_classes import KafkaClasses

METRICS = "org.apache.kafka.common.metrics"


def test_the_most_specific_entity_decides() -> None:
    quotas, key = Quotas(), "producer_byte_rate"
    order: list[tuple[list[tuple[str, str | None]], tuple[str | None, str | None]]] = [
        ([("client-id", None)], (None, "c")),
        ([("client-id", "c")], (None, "c")),
        ([("user", None)], ("u", None)),
        ([("user", None), ("client-id", None)], ("u", "c")),
        ([("user", None), ("client-id", "c")], ("u", "c")),
        ([("user", "u")], ("u", None)),
        ([("user", "u"), ("client-id", None)], ("u", "c")),
        ([("user", "u"), ("client-id", "c")], ("u", "c")),
    ]
    assert quotas.find(key, "u", "c") is None
    for value, (components, counted) in enumerate(order, 1):
        quotas.set(entity(components), {key: float(value)})
        assert quotas.find(key, "u", "c") == Limit(value, *counted), components
        assert quotas.find("consumer_byte_rate", "u", "c") is None
    assert quotas.find(key, "x", "c") == Limit(5, "x", "c")
    assert quotas.find(key, "u", "x") == Limit(7, "u", "x")
    for components, _ in order:
        quotas.set(entity(components), {})
    assert (len(quotas), quotas.used_keys, quotas.find(key, "u", "c")) == (0, frozenset(), None)


def test_quotas_of_addresses() -> None:
    quotas = Quotas()
    assert quotas.of_address("10.0.0.1") is None
    quotas.set(entity([("ip", None)]), {"connection_creation_rate": 5.0})
    quotas.set(entity([("ip", "10.0.0.1")]), {"connection_creation_rate": 7.0})
    assert (quotas.of_address("10.0.0.1"), quotas.of_address("10.0.0.2")) == (7.0, 5.0)


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        ([("user", "a"), ("client-id", None)], ""),
        ([("ip", "::1")], ""),
        ([], "Invalid empty client quota entity"),
        ([("group", "a")], "Unhandled client quota entity type: group"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "a"), ("user", "b")], "Invalid client quota entity, duplicate entity type: user"),
        ([("ip", "1.2.3")], "1.2.3 is not a valid IP or resolvable host."),
        (
            [("ip", None), ("user", "a")],
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId",
        ),
        ([("user", "x" * 1001)], "A name has at most 1000 characters."),
    ],
)
def test_entities(components: list[tuple[str, str | None]], expected: str) -> None:
    assert entity_fault(components) == expected


@pytest.mark.parametrize(
    ("kind", "key", "value", "expected"),
    [
        ("user", "producer_byte_rate", 1000, ""),
        ("user", "request_percentage", 0.5, ""),
        ("user", "producer_byte_rate", 0.5, "Proposed value for producer_byte_rate cannot be fractional."),
        ("user", "producer_byte_rate", 1e30, "Proposed value for producer_byte_rate is too large for a LONG."),
        (
            "ip",
            "connection_creation_rate",
            1e10,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        ("user", "request_percentage", 0, "Quota request_percentage must be greater than 0"),
        ("user", "request_percentage", float("nan"), "Quota request_percentage must be greater than 0"),
        ("user", "connection_creation_rate", 1, "Invalid configuration key connection_creation_rate"),
        ("ip", "producer_byte_rate", 1, "Invalid configuration key producer_byte_rate"),
        ("user", "x", 1, "Invalid configuration key x"),
    ],
)
def test_values(kind: str, key: str, value: float, expected: str) -> None:
    assert value_fault(((kind, "127.0.0.1"),), key, value) == expected


def config_of(kafka: KafkaClasses, limit: float) -> Any:
    quota = kafka.named(f"{METRICS}.Quota").upperBound(limit)
    seconds = kafka.named("java.util.concurrent.TimeUnit").SECONDS
    return kafka.named(f"{METRICS}.MetricConfig")().samples(11).timeWindow(1, seconds).quota(quota)


@pytest.mark.parametrize("seed", range(3))
def test_rates_are_those_of_kafka(kafka_classes: KafkaClasses, seed: int) -> None:
    chance = random.Random(seed)
    config = config_of(kafka_classes, 1000.0)
    theirs, ours = kafka_classes.named(f"{METRICS}.stats.Rate")(), Rate()
    now_ms = 1_700_000_000_000
    for _ in range(150):
        now_ms += chance.choice((0, 1, 30, 400, 1000, 1500, 13_000))
        value = float(chance.randrange(5000))
        theirs.record(config, value, now_ms)
        ours.add(value, now_ms / 1000)
        assert ours.measure(now_ms / 1000) == pytest.approx(theirs.measure(config, now_ms))
        assert ours.window_s(now_ms / 1000) * 1000 == pytest.approx(theirs.windowSize(config, now_ms), abs=1)


def test_buckets_are_those_of_kafka(kafka_classes: KafkaClasses) -> None:
    chance = random.Random(1)
    config = config_of(kafka_classes, 10.0)
    now_ms = 1_700_000_000_000
    theirs, ours = kafka_classes.named(f"{METRICS}.stats.TokenBucket")(), TokenBucket(10.0, now_ms / 1000)
    for _ in range(150):
        now_ms += chance.choice((0, 100, 1000, 20_000))
        count = float(chance.randrange(100))
        theirs.record(config, count, now_ms)
        ours.take(count, 10.0, now_ms / 1000)
        assert ours.tokens == pytest.approx(theirs.measure(config, now_ms), abs=0.01)


def test_the_delay_brings_the_rate_back_within_the_quota() -> None:
    rate = Rate()
    rate.add(30_000.0, 0.0)
    assert rate.throttle_s(1000.0, 0.0) == pytest.approx((3000 - 1000) / 1000 * 10)
    assert rate.throttle_s(3000.0, 0.0) == 0
    assert rate.throttle_s(3000.0, 0.0, others=300.0) == pytest.approx(1)
