"""Refusals: counted always, logged one line each, but no client can fill a disk with lines."""

from __future__ import annotations

import json

import pytest
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import LINES_PER_SECOND, Refusals
from service_chassis import logs


def test_lines_are_limited_and_the_next_says_how_many_were_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    metrics = GatewayMetrics()
    refusals = Refusals(metrics, clock=lambda: now)
    with logs.configured("test", "warning", "json"):
        for number in range(LINES_PER_SECOND + 7):
            refusals.request("unknown_api", peer="p", correlation_id=number)
        now += 0.05
        refusals.connection("max_connections", peer="p")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(lines) == LINES_PER_SECOND + 1
    assert [line["correlation_id"] for line in lines[:-1]] == list(range(LINES_PER_SECOND))
    assert (lines[-1]["event"], lines[-1]["lines_left_out"]) == ("connection rejected", 7)
    assert dict(metrics.refused) == {"unknown_api": LINES_PER_SECOND + 7}
    assert dict(metrics.connections_rejected) == {"max_connections": 1}
