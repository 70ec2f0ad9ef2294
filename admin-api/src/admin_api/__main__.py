"""The admin-api command: administration over HTTP, until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import warnings
from typing import TYPE_CHECKING

from service_chassis import address, lifecycle, logs, loop_lag

from admin_api.settings import AdminSettings

if TYPE_CHECKING:
    from admin_api.kafka_clients import GatewayLogin

log = logs.get("admin_api")


def main() -> int:
    example = "MILLRACE_STORAGE_ADDRESS=storage:50051 MILLRACE_ADMIN_HTTP=localhost:8082 admin-api"
    return lifecycle.main("admin-api", AdminSettings, _serve, example=example)


async def _serve(settings: AdminSettings, stop: asyncio.Event) -> None:
    gc.disable()  # objects of the start stay: searching them for garbage costs a tenth of it
    _import_fastapi()
    from prometheus_client import disable_created_metrics
    from service_chassis.health import Health, HttpEndpoint
    from service_chassis.http.access import AccessError
    from service_chassis.http.connections import Connections
    from service_chassis.http.server import serving
    from service_chassis.internal_tls import internal_tls
    from service_chassis.listeners import inherited, listen
    from service_chassis.tls import TlsError

    from admin_api.app import create_app
    from admin_api.kafka_clients import KafkaClients
    from admin_api.readiness import StorageCheck
    from admin_api.rules import RULES
    from admin_api.storage import Storage

    given = address.parse(settings.admin_http)
    try:
        sockets = inherited(settings.admin_http_sockets) if settings.admin_http_sockets else listen(given)
    except ValueError as error:
        raise lifecycle.StartError(f"MILLRACE_ADMIN_HTTP_SOCKETS: {error}") from error
    except OSError as error:
        raise lifecycle.StartError(f"MILLRACE_ADMIN_HTTP: cannot listen at {given}: {error.strerror}") from error
    if settings.admin_auth == "none" and settings.authorizer == "none" and not address.is_loopback(given.host):
        log.warning(
            "anyone who reaches this address administers the cluster: there is no authentication", address=str(given)
        )
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter, for nobody
    async with contextlib.AsyncExitStack() as undo:
        try:
            tls = internal_tls(settings, settings.storage_address, "MILLRACE_STORAGE_ADDRESS", serves=False)
        except TlsError as error:
            raise lifecycle.StartError(str(error)) from error
        storage = Storage(settings.storage_address, timeout_s=settings.admin_storage_timeout_s, tls=tls)
        undo.push_async_callback(storage.close)
        clients = KafkaClients(
            settings.gateways,
            timeout_s=settings.admin_gateway_timeout_s,
            login=_gateway_login(settings),
            tls=settings.gateway_tls,
        )
        undo.push_async_callback(clients.close)
        try:
            app = create_app(settings, storage, clients)
        except AccessError as error:
            raise lifecycle.StartError(str(error)) from error
        undo.callback(app.state.logins.close)
        undo.push_async_callback(app.state.schemas.close)
        await undo.enter_async_context(app.state.samples.taken())
        health = Health()
        health.checks["storage"] = StorageCheck(settings.storage_address, tls=tls)
        undo.callback(health.watch_loop())
        undo.callback(loop_lag.observe(app.state.registry))
        endpoint = HttpEndpoint(settings.admin_health_http, app.state.registry, health).start()
        undo.callback(endpoint.close)
        served = serving(app, sockets, Connections(RULES), stop_deadline_s=settings.stop_deadline_s - 1)
        await undo.enter_async_context(served)
        health.set_ready(True)
        log.info("listening", host=given.host, port=sockets[0].getsockname()[1], health_port=endpoint.port)
        lifecycle.freeze_start_objects()
        await stop.wait()
        health.set_ready(False, "stopping")
        clients.stop()  # or tails would go on until the deadline


def _gateway_login(settings: AdminSettings) -> GatewayLogin | None:
    """Return the user at the gateways. Raises StartError."""
    from admin_api.kafka_clients import GatewayLogin

    mechanism, user = settings.admin_gateway_sasl_mechanism, settings.admin_gateway_user
    if not mechanism:
        return None
    variable = "MILLRACE_ADMIN_GATEWAY_PASSWORD_FILE"
    if not user or not settings.admin_gateway_password_file:
        raise lifecycle.StartError(f"MILLRACE_ADMIN_GATEWAY_USER and {variable}: not set, and there is a mechanism")
    try:
        with open(settings.admin_gateway_password_file, encoding="utf-8") as file:
            password = file.readline(4096).rstrip("\r\n")
    except OSError as error:
        raise lifecycle.StartError(f"{variable}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise lifecycle.StartError(f"{variable}: it is not UTF-8") from None
    if not password:
        raise lifecycle.StartError(f"{variable}: its first line is empty")
    return GatewayLogin(mechanism, user, password)


def _import_fastapi() -> None:
    """Import FastAPI without the validators of sixty shapes, of which its description of an API is made.

    FastAPI imports pydantic.v1 with the first route that is made, which would then hold up the event loop.
    """
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    import fastapi  # noqa: F401

    del BaseModel.model_config["defer_build"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Python 3.14 cannot use it
        import pydantic.v1  # noqa: F401


if __name__ == "__main__":
    sys.exit(main())
