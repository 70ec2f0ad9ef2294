"""Metrics and health of a driver, which server.py serves.

One registry per run, no module state. Rows are counted when a batch is committed, so in = out + dlq + dropped + late +
duplicates at any scrape.
"""

import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from spark_etl.counts import OUTCOMES, Check


class Metrics:
    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        own = self.registry
        self._rows = Counter(
            "millrace_etl_rows", "records of committed batches, by outcome", ["pipeline", "stage"], registry=own
        )
        self._letters = Counter(
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
        self._restarts = Counter(
            "millrace_etl_restarts", "restarts of the query after a failure", ["pipeline"], registry=own
        )
        self._window_rows = Counter(
            "millrace_etl_window_rows",
            "records of committed batches of windows, by topic and outcome",
            ["pipeline", "topic", "stage"],
            registry=own,
        )
        self._skipped = Counter(
            "millrace_etl_skipped_offsets",
            "offsets that had expired before they were read",
            ["pipeline"],
            registry=own,
        )
        self._state = "starting"
        self._batches = 0
        self._last_batch = time.monotonic()
        self._restarts.labels(pipeline)
        self._skipped.labels(pipeline)
        for stage in OUTCOMES:
            self._rows.labels(pipeline, stage)
        self._active.labels(pipeline).set(0)

    def committed(self, rows: Mapping[str, int], letters: Mapping[Check, int]) -> None:
        """Count the records of a batch by outcome, and its dead letters by check."""
        for stage, count in rows.items():
            self._rows.labels(self._pipeline, stage).inc(count)
        self.refused(letters)
        self._progress.labels(self._pipeline).set_to_current_time()
        self._batches += 1
        self._last_batch = time.monotonic()

    def refused(self, letters: Mapping[Check, int]) -> None:
        """Count dead letters by check."""
        for (stage, rule), count in letters.items():
            self._letters.labels(self._pipeline, stage, rule).inc(count)

    def active(self, active: bool) -> None:
        self._active.labels(self._pipeline).set(active)
        self._state = "running" if active else "stopped"

    def restarted(self) -> None:
        self._restarts.labels(self._pipeline).inc()
        self._state = "restarting"

    def windows(self, topic: str, rows: Mapping[str, int], letters: Mapping[Check, int]) -> None:
        """Count the records of a batch of windows by outcome; those of `out` were folded into a window."""
        self.refused(letters)
        for stage, count in rows.items():
            self._window_rows.labels(self._pipeline, topic, stage).inc(count)

    def skipped(self, offsets: int) -> None:
        """Count offsets that `on_data_loss: continue` went past."""
        self._skipped.labels(self._pipeline).inc(offsets)

    def health(self) -> dict[str, Any]:
        """Return the document of /healthz. `state` is starting, running, restarting or stopped."""
        return {
            "pipeline": self._pipeline,
            "state": self._state,
            "batches": self._batches,
            "seconds_since_batch": round(time.monotonic() - self._last_batch, 1),
        }

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
