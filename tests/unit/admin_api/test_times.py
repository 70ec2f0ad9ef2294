"""Times of records and of requests, exact to the millisecond and independent of this machine's zone."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from admin_api.records.conditions import Condition, parse
from admin_api.times import milliseconds


def test_milliseconds_are_exact() -> None:
    """In floating point this time ends in 252."""
    assert milliseconds(datetime(2038, 12, 12, 3, 37, 15, 253_999, tzinfo=UTC)) == 2_175_737_835_253
    assert milliseconds(datetime(1970, 1, 1)) == 0
    assert milliseconds(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)) == -1


def test_a_condition_without_a_zone_is_one_of_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        wanted = Condition("timestamp", (), ">=", 1_769_860_800_000)
        assert parse('timestamp >= "2026-01-31T12:00:00"') == parse('timestamp >= "2026-01-31T12:00:00Z"') == wanted
    finally:
        monkeypatch.undo()
        time.tzset()
