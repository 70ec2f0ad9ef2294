"""The application, built from the settings, the storage and the clients that the caller passes in."""

from __future__ import annotations

import functools
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from service_chassis import address, metrics
from service_chassis.version import VERSION
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from admin_api import errors
from admin_api.access import Access, authorize
from admin_api.exporter import Exporter
from admin_api.kafka_clients import KafkaClients
from admin_api.middleware import HttpMetrics, RequestRing, error_response
from admin_api.origins import Hosts
from admin_api.record_metrics import RecordMetrics
from admin_api.routers import (
    acls,
    broker_configs,
    brokers,
    clusters,
    consumer_groups,
    group_offsets,
    health,
    insight,
    lags,
    partitions,
    produce,
    record_streams,
    records,
    service,
    topic_configs,
    topics,
)
from admin_api.routers.operations import JsonRoute, described
from admin_api.samples import Samples
from admin_api.settings import AdminSettings
from admin_api.storage import Storage
from admin_api.tags import TAGS

__all__ = ["create_app"]

#: Most faults of one request that its answer names.
_FAULTS_MAX = 5
_FAULT_LENGTH_MAX = 200
_DESCRIPTION = """\
Administration of a Kafka-compatible broker. `/v3` has the shape of Confluent's REST API v3; `/api/v1` has more.

- Errors are always `{error_code, message}`.
- In a path, `-` names the one cluster: `/v3/clusters/-/topics`.
- Each GET also serves HEAD.
- `x-required-role` is the role that an operation needs, if the server requires tokens.

These paths are not listed below:

- `/healthz`: the process answers. `/readyz`: storage answers, too. Neither needs a token.
- `/metrics`: Prometheus text of this process, of its requests, and of topics and consumer groups.
- `/openapi.json`: this description. `/docs`: this description as a page. `/`: links.
"""


def create_app(settings: AdminSettings, storage: Storage, clients: KafkaClients) -> FastAPI:
    """Return the ASGI application. The caller owns `storage` and `clients` and closes them. Raises AccessError."""
    access = Access(settings)
    app = FastAPI(
        title="Millrace administration API",
        version=VERSION,
        description=_DESCRIPTION,
        openapi_tags=[{"name": name, "description": description} for name, description in TAGS.items()],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        servers=[{"url": "/"}, {"url": "/kafka", "description": "The same, where Confluent Server has it."}],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(authorize)],
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.router.route_class = JsonRoute
    app.openapi = functools.partial(described, app)  # type: ignore[method-assign]  # as FastAPI documents it
    app.state.read_bodies = []
    registry = metrics.registry("admin-api")
    app.state.settings = settings
    app.state.access = access
    app.state.storage = storage
    app.state.clients = clients
    app.state.registry = registry
    app.state.record_metrics = RecordMetrics(registry)
    app.state.exporter = Exporter(storage, settings.admin_listener)
    app.state.samples = Samples(storage)
    # Order matters where a path with "-" and one with a parameter both match: the first added wins.
    for noun in (
        *(clusters, acls, broker_configs, brokers, topic_configs, topics, partitions, produce),
        *(consumer_groups, lags, group_offsets, insight, health, records, record_streams, service),
    ):
        noun.add_operations(app)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_faults)
    app.add_middleware(RequestRing, metrics=HttpMetrics(registry), hosts=_hosts(settings), access=access)
    return app


def _hosts(settings: AdminSettings) -> Hosts:
    named = {name.strip().lower() for name in settings.admin_allowed_hosts.split(",") if name.strip()}
    host = address.parse(settings.admin_http).host
    if named:
        return Hosts(frozenset(named), addresses=not address.is_loopback(host))
    return Hosts(frozenset({"localhost", "127.0.0.1", "[::1]", host}) if address.is_loopback(host) else None)


async def _answer_http_error(request: Request, error: Exception) -> Response:
    if isinstance(error, errors.ApiError):
        return error_response(error)
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    message = ""
    if error.status_code == 404:
        return error_response(errors.no_such_path())
    if error.status_code == 405:
        headers = {"allow": ", ".join(_allowed_methods(request))}
        message = f"This path does not have this method. It has: {headers['allow']}."
    elif error.status_code == 400:
        # FastAPI's own 400 is a body that its JSON parser gave up on: not UTF-8, too deep, a number too long.
        message = "The body cannot be read as JSON."
    return error_response(errors.of_status(error.status_code, message, headers))


async def _answer_faults(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [_fault(fault) for fault in error.errors()[:_FAULTS_MAX]]
    return error_response(errors.of_status(400, "; ".join(faults)))


def _fault(fault: Any) -> str:
    """Return one line about a fault: its place and kind, without the value."""
    if fault["type"] == "json_invalid":
        return f"The body is not JSON: {fault['ctx']['error']} (character {fault['loc'][-1]})"
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}"[:_FAULT_LENGTH_MAX]


def _allowed_methods(request: Request) -> list[str]:
    """Return every method of the path. The router knows only the first one's, because each method has a route."""
    methods: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods
    if "GET" in methods:
        methods.add("HEAD")
    return sorted(methods)
