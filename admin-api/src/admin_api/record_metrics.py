"""Metrics of the routes that read records."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge
from service_chassis.metrics import Registry


class RecordMetrics:
    """The work of browses, and the number of tails."""

    def __init__(self, registry: Registry) -> None:
        kept: Any = registry  # a metric of the library calls `register` alone
        self.scanned = Counter(
            "millrace_browse_scanned_records_total", "Records that browses have read.", registry=kept
        )
        self.tails = Gauge("millrace_sse_clients", "Clients that follow a topic now.", registry=kept)
