"""Subscriptions to metrics of clients are checked as Apache Kafka checks them, and are there again after a start."""

from __future__ import annotations

import pytest
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.client_metrics import PATTERNS_MAX, ClientMetrics
from storage_svc.topics.config_changes import InvalidChangeError
from storage_svc.topics.configs import InvalidConfigError

MANY = ",".join(f"client_id=a{number}" for number in range(PATTERNS_MAX + 1))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"metrics": " a , b,a", "interval.ms": " +0200 "}, {"metrics": "a,b", "interval.ms": "200"}),
        ({"metrics": "", "match": " "}, {"metrics": "", "match": ""}),
        ({"interval.ms": "100"}, {"interval.ms": "100"}),
        ({"interval.ms": "3600000"}, {"interval.ms": "3600000"}),
        ({"match": "client_id = a.*=, client_id=b"}, {"match": "client_id = a.*=,client_id=b"}),
        ({"match": MANY.rpartition(",")[0]}, {"match": MANY.rpartition(",")[0]}),
    ],
)
def test_what_may_be_set(given: dict[str, str], kept: dict[str, str]) -> None:
    assert ClientMetrics.check(given) == kept


INTERVAL = "interval must be between 100 and 3600000 (1 hour)"
ILLEGAL = "Illegal client matching pattern: "


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("bogus", "1", InvalidChangeError, "Unknown client metrics configuration: bogus"),
        ("interval.ms", "99", InvalidChangeError, f"Invalid value 99 for interval.ms, {INTERVAL}"),
        ("interval.ms", "3600001", InvalidChangeError, f"Invalid value 3600001 for interval.ms, {INTERVAL}"),
        (
            "interval.ms",
            "x",
            InvalidConfigError,
            "Invalid value x for configuration interval.ms: Not a number of type INT",
        ),
        ("metrics", "a,,b", InvalidConfigError, "Configuration 'metrics' values must not be empty."),
        ("match", "client_id", InvalidConfigError, ILLEGAL + "client_id"),
        ("match", "client_id=", InvalidConfigError, ILLEGAL + "client_id="),
        ("match", "client=x", InvalidConfigError, ILLEGAL + "client=x"),
        ("match", "client_id=x=y", InvalidConfigError, ILLEGAL + "client_id=x=y"),
        ("match", MANY, InvalidConfigError, "match has more than 100 patterns"),
        (
            "metrics",
            "x" * 32_768,
            InvalidConfigError,
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
        ),
    ],
)
def test_what_is_refused(name: str, value: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        ClientMetrics.check({name: value})
    assert str(raised.value) == message


async def test_subscriptions_are_stored(catalog: Catalog) -> None:
    subscriptions = ClientMetrics(catalog, {})
    await subscriptions.configure("b", {"metrics": "*"})
    await subscriptions.configure("a", {"metrics": "x", "match": "client_id=a"})
    await subscriptions.configure("b", {})
    assert (subscriptions.names(), len(subscriptions)) == (["a"], 1)
    again = ClientMetrics(catalog, catalog.read().client_metrics)
    assert (again.names(), again.own("a"), again.own("b")) == (["a"], {"metrics": "x", "match": "client_id=a"}, {})
