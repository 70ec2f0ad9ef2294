"""The HTTP server of a driver, on the pipeline's metrics port (0: none): GET /metrics and GET /healthz.

/healthz answers 200 while the run is starting or its query is active, else 503, with a JSON object:

    {"pipeline": "orders", "state": "running", "batches": 17, "seconds_since_batch": 4.2}
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from spark_etl.config import MetricsConfig
from spark_etl.errors import ConfigError
from spark_etl.metrics import Metrics

REQUEST_SECONDS = 10.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    metrics: Metrics


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "millrace-etl"
    sys_version = ""
    timeout = REQUEST_SECONDS

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, generate_latest(self.server.metrics.registry))
        elif path == "/healthz":
            health = self.server.metrics.health()
            status = 200 if health["state"] in ("starting", "running") else 503
            self._answer(status, "application/json", json.dumps(health).encode())
        else:
            self._answer(404, "text/plain", b"GET /metrics or /healthz\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Log nothing: a probe asks every few seconds."""


@contextmanager
def served(metrics: Metrics, config: MetricsConfig) -> Iterator[None]:
    """Serve until the block ends. ConfigError: the address is in use."""
    if not config.port:
        yield
        return
    try:
        server = _Server((config.host, config.port), _Handler)
    except OSError as error:
        raise ConfigError(f"metrics: cannot listen at {config.host}:{config.port}: {error.strerror}") from error
    server.metrics = metrics
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
