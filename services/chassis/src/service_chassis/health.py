"""Health of a service, and the HTTP endpoint that shows it with the metrics.

    GET /healthz   200 while the process is worth keeping: its event loop turned within the last 30 s
    GET /readyz    200 when the service is ready and every check passes, else 503; the body has the reasons
    GET /metrics   Prometheus text format (OpenMetrics on request)

The endpoint answers from a separate thread, so that it works even if the event loop is stuck. Checks are called from
that thread and must be quick; metrics are collected on another one. `probe` is the client side.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping

from service_chassis import address as addresses
from service_chassis import shared_wakes
from service_chassis.lifecycle import StartError
from service_chassis.metrics import Collects
from service_chassis.small_http import Answer, Route, SmallHttpServer

#: An event loop that did not turn for this long is stuck for good (longer than any storage sync that still succeeds).
LOOP_STUCK_AFTER_S = 30.0
_BEAT_S = 5.0


class Health:
    """The state that a service reports. The event loop writes it, the endpoint's threads read single references."""

    def __init__(self) -> None:
        #: Named checks, asked at every /readyz: None when passed, else the reason. They run on the endpoint's thread.
        self.checks: dict[str, Callable[[], str | None]] = {}
        #: False makes /healthz fail: the process should be replaced.
        self.live = True
        self._unready_reason: str | None = "starting"
        self._beat_at: float | None = None

    def set_ready(self, ready: bool, reason: str = "") -> None:
        self._unready_reason = None if ready else reason or "not ready"

    def watch_loop(self) -> Callable[[], None]:
        """Make liveness depend on the running event loop; return the function that ends the watch."""
        loop = asyncio.get_running_loop()
        handle: asyncio.Handle = loop.call_soon(lambda: None)

        def beat() -> None:
            nonlocal handle
            self._beat_at = time.monotonic()
            handle = loop.call_at(shared_wakes.next_at(loop, _BEAT_S), beat)

        def end() -> None:
            handle.cancel()
            self._beat_at = None

        beat()
        return end

    def faults(self) -> dict[str, str]:
        """Return the reasons why the service is not ready, by name; empty if it is ready."""
        faults = {}
        if self._unready_reason is not None:
            faults["service"] = self._unready_reason
        for name, passes in list(self.checks.items()):
            try:
                fault = passes()
            except Exception as error:
                fault = f"{type(error).__name__}: {error}"
            if fault is not None:
                faults[name] = fault
        return faults

    def is_live(self) -> bool:
        beat_at = self._beat_at
        return self.live and (beat_at is None or time.monotonic() - beat_at < LOOP_STUCK_AFTER_S)


class HttpEndpoint:
    """The HTTP server of /metrics, /healthz and /readyz at `host:port`; port 0 is a free one."""

    def __init__(self, address: str, registry: Collects, health: Health) -> None:
        self._address = addresses.parse(address)
        self._registry = registry
        self._health = health
        self._server: SmallHttpServer | None = None

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the endpoint is not started")
        return self._server.port

    def start(self) -> HttpEndpoint:
        """Start to listen. Raises StartError when the address is in use or not of this machine."""
        routes = {
            "/metrics": Route(self._metrics, is_slow=True),
            "/healthz": Route(self._healthz),
            "/readyz": Route(self._readyz),
        }
        try:
            self._server = SmallHttpServer(self._address, routes)
        except OSError as error:
            raise StartError(f"cannot listen at {self._address}: {error.strerror}") from error
        return self

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _metrics(self, headers: Mapping[str, str]) -> Answer:
        from prometheus_client.exposition import choose_encoder  # the first time it takes long, on this thread

        encode, content_type = choose_encoder(headers.get("accept", ""))
        return Answer(200, content_type, encode(self._registry))

    def _healthz(self, _headers: Mapping[str, str]) -> Answer:
        live = self._health.is_live()
        return _json(200 if live else 503, {"live": live})

    def _readyz(self, _headers: Mapping[str, str]) -> Answer:
        faults = self._health.faults()
        return _json(503 if faults else 200, {"ready": not faults, "faults": faults})


def _json(status: int, body: dict[str, object]) -> Answer:
    return Answer(status, "application/json", json.dumps(body).encode() + b"\n")
