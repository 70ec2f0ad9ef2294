"""The application, built from the settings, the storage and the clients that the caller passes in."""

from __future__ import annotations

import functools

from fastapi import Depends, FastAPI
from service_chassis import metrics
from service_chassis.authorizer_settings import parse_super_users
from service_chassis.http.access import Access, authorize
from service_chassis.http.bodies import JsonRoute
from service_chassis.http.errors import add_error_handlers
from service_chassis.http.origins import Hosts
from service_chassis.http.ring import HttpMetrics, RequestRing
from service_chassis.version import VERSION

from admin_api import errors
from admin_api.console_files import ConsoleFiles
from admin_api.exporter import Exporter
from admin_api.kafka_clients import KafkaClients
from admin_api.logins import ClusterLogins
from admin_api.needs import check_declared
from admin_api.record_metrics import RecordMetrics
from admin_api.registry.schemas import Schemas
from admin_api.rights import Policy
from admin_api.routers import (
    acls,
    broker_configs,
    brokers,
    clusters,
    console,
    consumer_groups,
    documented_configs,
    group_offsets,
    group_summaries,
    health,
    insight,
    lags,
    partitions,
    produce,
    quotas,
    record_streams,
    records,
    scrub,
    service,
    session,
    subjects,
    topic_configs,
    topics,
    transactions,
    users,
)
from admin_api.routers.operations import described
from admin_api.rules import RULES
from admin_api.samples import Samples
from admin_api.settings import AdminSettings
from admin_api.storage import Storage
from admin_api.tags import TAGS

_DESCRIPTION = """\
Administration of a Kafka-compatible broker. `/v3` has the shape of Confluent's REST API v3; `/api/v1` has more.

- Errors are always `{error_code, message}`.
- In a path, `-` names the one cluster: `/v3/clusters/-/topics`.
- Each GET also serves HEAD.
- `x-required-role` is the role that an operation needs, if the server requires logins.
- `x-required-rights` are the Kafka rights that it needs, if ACLs decide.

These paths are not listed below:

- `/healthz`: the process answers. `/readyz`: storage answers, too. Neither needs a token.
- `/metrics`: Prometheus text of this process, of its requests, and of topics and consumer groups.
- `/openapi.json`: this description. `/docs`: this description as a page. `/`: the console.
"""


def create_app(settings: AdminSettings, storage: Storage, clients: KafkaClients) -> FastAPI:
    """Return the ASGI application. The caller owns `storage` and `clients`.

    It closes them, `app.state.logins` and `app.state.schemas`.

    Raises AccessError.
    """
    logins = ClusterLogins(settings, storage)
    # With an authorizer a login decides what the sender may do, also where none is wanted.
    has_users = settings.admin_auth == "users" or settings.authorizer != "none"
    access = Access(RULES, settings.http, logins if has_users else None)
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
    registry = metrics.Registry("admin-api")
    app.state.settings = settings
    app.state.access = access
    app.state.storage = storage
    app.state.clients = clients
    app.state.logins = logins
    app.state.schemas = Schemas(settings)
    app.state.policy = _policy(settings)
    app.state.registry = registry
    app.state.record_metrics = RecordMetrics(registry)
    app.state.exporter = Exporter(storage, settings.admin_listener)
    app.state.samples = Samples(storage)
    app.state.console_files = ConsoleFiles()
    # Order matters where a path with "-" and one with a parameter both match: the first added wins.
    for noun in (
        *(clusters, acls, broker_configs, brokers, topic_configs, topics, partitions, produce),
        *(consumer_groups, lags, group_offsets, group_summaries, insight, scrub, health, records, record_streams),
        *(transactions, documented_configs, subjects, users, quotas, session, service, console),
    ):
        noun.add_operations(app)
    check_declared(app.routes)
    add_error_handlers(app, errors.rendered, errors.no_such_path)
    app.add_middleware(RequestRing, metrics=HttpMetrics(registry), hosts=Hosts.of(settings.http), access=access)
    return app


def _policy(settings: AdminSettings) -> Policy | None:
    if settings.authorizer == "none":
        return None
    return Policy(parse_super_users(settings.super_users), settings.allow_everyone_if_no_acl_found)
