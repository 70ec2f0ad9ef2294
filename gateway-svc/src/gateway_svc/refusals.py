"""Every refusal is one log line and one count by reason, silent closes above all.

The reason is one of a fixed set of words: those of `RequestRefused` and `Connection`, and Kafka's error names for
records that were not accepted. A client that only sends refused requests does not fill the disk with lines: the logger
has an allowance, and counts go on without lines.
"""

from __future__ import annotations

from service_chassis import logs

from gateway_svc.metrics import GatewayMetrics

log = logs.get(__name__)


class Refusals:
    """The counter and the log of refusals. The gateway owns it."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    def request(self, reason: str, **fields: object) -> None:
        """Count and log a request, or bytes that are no request. Fields: peer, client_id, api_key, version …"""
        self._metrics.refused[reason] += 1
        log.warning("request refused", reason=reason, **fields)

    def closed(self, reason: str, **fields: object) -> None:
        """Count and log a connection that the gateway has closed although its client broke no rule."""
        self._metrics.connections_closed[reason] += 1
        log.info("connection closed", reason=reason, **fields)

    def connection(self, reason: str, **fields: object) -> None:
        """Count and log a connection that was closed before its first request."""
        self._metrics.connections_rejected[reason] += 1
        log.warning("connection rejected", reason=reason, **fields)
