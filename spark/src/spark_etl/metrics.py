"""Metrics of a driver for Prometheus, on the pipeline's metrics port (0: nothing is served).

One registry per run, no module state. Rows are counted when a batch is committed, so in = out + dlq at any scrape.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from spark_etl.config import MetricsConfig

STAGES = ("in", "out", "dlq")


class Metrics:
    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        own = self.registry
        self._rows = Counter("millrace_etl_rows", "records of committed batches", ["pipeline", "stage"], registry=own)
        self._refused = Counter(
            "millrace_etl_refused",
            "dead letters by the check that failed",
            ["pipeline", "check_stage", "rule"],
            registry=own,
        )
        self._batch_seconds = Gauge(
            "millrace_etl_batch_duration_seconds",
            "the last batch, by Spark's phases",
            ["pipeline", "phase"],
            registry=own,
        )
        self._progress = Gauge(
            "millrace_etl_last_progress_timestamp_seconds",
            "when the last batch was committed",
            ["pipeline"],
            registry=own,
        )
        self._active = Gauge("millrace_etl_query_active", "1 while the query runs", ["pipeline"], registry=own)
        self._lag = Gauge(
            "millrace_etl_source_lag_records",
            "records in the topic that the last batch had not reached",
            ["pipeline", "topic", "partition"],
            registry=own,
        )
        for stage in STAGES:
            self._rows.labels(pipeline, stage)
        self._active.labels(pipeline).set(0)

    def committed(self, rows: Mapping[str, int], refused: Mapping[tuple[str, str], int]) -> None:
        for stage, count in rows.items():
            self._rows.labels(self._pipeline, stage).inc(count)
        for (check_stage, rule), count in refused.items():
            self._refused.labels(self._pipeline, check_stage, rule).inc(count)
        self._progress.labels(self._pipeline).set_to_current_time()

    def active(self, active: bool) -> None:
        self._active.labels(self._pipeline).set(active)

    def progress(self, progress: Mapping[str, Any]) -> None:
        """Update the metrics from Spark's progress report of a query (StreamingQuery.lastProgress)."""
        for phase, milliseconds in progress.get("durationMs", {}).items():
            self._batch_seconds.labels(self._pipeline, phase).set(milliseconds / 1000)
        for source in progress.get("sources", []):
            latest, end = source.get("latestOffset"), source.get("endOffset")
            if isinstance(latest, dict) and isinstance(end, dict):
                for topic, partitions in latest.items():
                    for partition, offset in partitions.items():
                        lag = offset - end.get(topic, {}).get(partition, 0)
                        self._lag.labels(self._pipeline, topic, partition).set(lag)


@contextmanager
def served(metrics: Metrics, config: MetricsConfig) -> Iterator[None]:
    if not config.port:
        yield
        return
    server, thread = start_http_server(config.port, config.host, metrics.registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
