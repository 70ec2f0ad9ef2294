"""The counts of a channel or a server as metrics, `millrace_rpc_*`, in separate mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from service_chassis.http2.limits import TransportCounts

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class TransportMetrics:
    """The metrics of one TransportCounts, read at each scrape."""

    def __init__(self, counts: TransportCounts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        counts = self._counts
        directed = {
            "frames": ("HTTP/2 frames between the services.", counts.frames_sent, counts.frames_received),
            "bytes": ("Bytes between the services.", counts.bytes_sent, counts.bytes_received),
            "resets": ("Calls that were ended by RST_STREAM.", counts.resets_sent, counts.resets_received),
        }
        for name, (text, sent, received) in directed.items():
            family = CounterMetricFamily(f"millrace_rpc_{name}", text, labels=["direction"])
            family.add_metric(["sent"], sent)
            family.add_metric(["received"], received)
            yield family
        yield CounterMetricFamily("millrace_rpc_calls", "Calls between the services that began.", counts.streams)
        yield CounterMetricFamily(
            "millrace_rpc_connections", "Connections between the services; each but the first is a new attempt.",
            counts.connections,
        )  # fmt: skip
        yield CounterMetricFamily(
            "millrace_rpc_clogged_seconds", "Time that calls waited for the peer to read, summed over calls.",
            counts.clogged_s,
        )  # fmt: skip
        yield CounterMetricFamily(
            "millrace_rpc_floods", "Connections that were ended because the peer broke a limit.", counts.floods
        )
