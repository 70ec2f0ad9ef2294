"""Health of a service, and the HTTP endpoint that shows it with the metrics.

    GET /healthz   200 while the process is worth keeping: its event loop turned within the last 30 s
    GET /readyz    200 when the service is ready and every check passes, else 503; the body has the reasons
    GET /metrics   Prometheus text format (OpenMetrics on request)

The endpoint answers from a separate thread, so that it works even if the event loop is stuck. Checks are called from
that thread and must be quick. `probe` is the client side.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from service_chassis import address as addresses
from service_chassis.lifecycle import StartError
from service_chassis.metrics import Collects

__all__ = ["Health", "HttpEndpoint"]

#: An event loop that did not turn for this long is stuck for good (longer than any storage sync that still succeeds).
LOOP_STUCK_AFTER_S = 30.0
_BEAT_S = 1.0
#: A health client that sends nothing is dropped after this long.
_CLIENT_TIMEOUT_S = 5.0


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
            handle = loop.call_later(_BEAT_S, beat)

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
    """The HTTP server of /metrics, /healthz and /readyz at `host:port`, in a daemon thread; port 0 is a free one."""

    def __init__(self, address: str, registry: Collects, health: Health) -> None:
        self._address = addresses.parse(address)
        self._registry = registry
        self._health = health
        self._server: _Server | None = None
        self._thread: Thread | None = None

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the endpoint is not started")
        return int(self._server.server_address[1])

    def start(self) -> HttpEndpoint:
        """Start to listen. Raises StartError when the address is in use or not of this machine."""
        try:
            server = _Server(self._address, self._registry, self._health)
        except OSError as error:
            raise StartError(f"cannot listen at {self._address}: {error.strerror}") from error
        self._server = server
        self._thread = Thread(target=server.serve, name="health", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.end()
            self._thread.join(timeout=_CLIENT_TIMEOUT_S)
            self._server.server_close()
            self._server = self._thread = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: addresses.Address, registry: Collects, health: Health) -> None:
        self.registry = registry
        self.health = health
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._ending, self._end = socket.socketpair()  # first: for an address in use, `server_close` runs
        super().__init__((address.host, address.port), _Handler)
        self.socket.setblocking(False)  # a client may be gone again when it is to be accepted

    def serve(self) -> None:
        """Serve requests until `end`. Sleeps in between, unlike the standard library's `serve_forever`."""
        with selectors.DefaultSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._ending, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._ending in ready:
                    return
                self.handle_request()

    def end(self) -> None:
        self._end.close()

    def server_close(self) -> None:
        super().server_close()
        self._ending.close()
        self._end.close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that went away in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_TIMEOUT_S
    server_version = "millrace"
    sys_version = ""

    def do_GET(self) -> None:  # the standard library's spelling
        path = self.path.partition("?")[0]
        if path == "/metrics":
            # The encoder reads collect() and nothing else, which a merged registry has too.
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            registry: CollectorRegistry = self.server.registry  # type: ignore[assignment]
            self._answer(200, content_type, encode(registry))
        elif path == "/healthz":
            live = self.server.health.is_live()
            self._answer_json(200 if live else 503, {"live": live})
        elif path == "/readyz":
            faults = self.server.health.faults()
            self._answer_json(503 if faults else 200, {"ready": not faults, "faults": faults})
        else:
            self._answer_json(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    def _answer_json(self, status: int, body: dict[str, object]) -> None:
        self._answer(status, "application/json", json.dumps(body).encode() + b"\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Ignore requests: probes come every few seconds."""
