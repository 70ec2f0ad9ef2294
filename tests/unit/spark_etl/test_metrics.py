"""Metrics of a run, as Prometheus reads them."""

import errno
import socket
import urllib.request

import pytest
from millrace.ports import Reservation
from spark_etl.config import MetricsConfig
from spark_etl.metrics import Metrics
from spark_etl.server import served


@pytest.fixture
def port():
    """A free port, reserved for this test."""
    with Reservation("127.0.0.1", 0) as reservation:
        yield reservation.address.port


def test_rows_rules_and_progress_are_served(port):
    metrics = Metrics("flights")
    with served(metrics, MetricsConfig(port=port)):
        metrics.active(True)
        metrics.committed({"in": 10, "out": 7, "dlq": 3}, {("decode", "json"): 2, ("rules", "real_date"): 1})
        metrics.progress(
            {
                "durationMs": {"addBatch": 1500},
                "sources": [{"latestOffset": {"flights": {"0": 12}}, "endOffset": {"flights": {"0": 10}}}],
            }
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            lines = response.read().decode().splitlines()
    for line in (
        'millrace_etl_rows_total{pipeline="flights",stage="in"} 10.0',
        'millrace_etl_rows_total{pipeline="flights",stage="out"} 7.0',
        'millrace_etl_rows_total{pipeline="flights",stage="dlq"} 3.0',
        'millrace_etl_refused_total{check_stage="decode",pipeline="flights",rule="json"} 2.0',
        'millrace_etl_batch_duration_seconds{phase="addBatch",pipeline="flights"} 1.5',
        'millrace_etl_source_lag_records{partition="0",pipeline="flights",topic="flights"} 2.0',
        'millrace_etl_query_active{pipeline="flights"} 1.0',
    ):
        assert line in lines
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_no_port_no_server():
    with served(Metrics("flights"), MetricsConfig()):
        pass
