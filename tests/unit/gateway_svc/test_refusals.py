"""Refusals: counted always, logged one line each, but no client can fill a disk with lines."""

from __future__ import annotations

import json

import pytest
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals
from service_chassis import logs
from service_chassis.rates import Rates


def test_every_refusal_is_counted_though_lines_are_limited(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    metrics = GatewayMetrics()
    refusals = Refusals(metrics)
    with logs.configured("test", "warning", "json"):
        logs._configuration.rates = Rates(logs.LINES_PER_SECOND, lambda: now)
        for number in range(1000 + 7):
            refusals.request("unknown_api", peer="p", correlation_id=number)
        now += 0.05
        refusals.connection("max_connections", peer="p")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["correlation_id"] for line in lines[:-1]] == list(range(1000))
    assert (lines[-1]["event"], lines[-1]["lines_left_out"]) == ("connection rejected", 7)
    assert dict(metrics.refused) == {"unknown_api": 1000 + 7}
    assert dict(metrics.connections_rejected) == {"max_connections": 1}
