"""Every refusal is one log line and one count by reason, silent closes above all.

The reason is one of a fixed set of words: those of `RequestRefused` and `Connection`, and Kafka's error names for
records that were not accepted. A client that only sends refused requests must not fill the disk with lines: beyond
LINES_PER_SECOND they are counted only, and the next line says how many were left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from service_chassis import logs

from gateway_svc.metrics import GatewayMetrics

#: Lines in a burst, and per second in the long run.
LINES_PER_SECOND = 100

log = logs.get(__name__)


class Refusals:
    """The counter and the log of refusals. The gateway owns it."""

    def __init__(self, metrics: GatewayMetrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._lines_left = float(LINES_PER_SECOND)
        self._refilled_at = clock()
        self._left_out = 0

    def request(self, reason: str, **fields: object) -> None:
        """Count and log a request, or bytes that are no request. Fields: peer, client_id, api_key, version …"""
        self._metrics.refused[reason] += 1
        self._line("request refused", reason, fields)

    def connection(self, reason: str, **fields: object) -> None:
        """Count and log a connection that was closed before its first request."""
        self._metrics.connections_rejected[reason] += 1
        self._line("connection rejected", reason, fields)

    def _line(self, event: str, reason: str, fields: dict[str, object]) -> None:
        now = self._clock()
        self._lines_left = min(LINES_PER_SECOND, self._lines_left + (now - self._refilled_at) * LINES_PER_SECOND)
        self._refilled_at = now
        if self._lines_left < 1:
            self._left_out += 1
            return
        self._lines_left -= 1
        if self._left_out:
            fields["lines_left_out"] = self._left_out
            self._left_out = 0
        log.warning(event, reason=reason, **fields)
