"""Metrics of the routes that read records."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class RecordMetrics:
    """The work of browses, and the number of tails."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.scanned = Counter(
            "millrace_browse_scanned_records_total", "Records that browses have read.", registry=registry
        )
        self.tails = Gauge("millrace_sse_clients", "Clients that follow a topic now.", registry=registry)
