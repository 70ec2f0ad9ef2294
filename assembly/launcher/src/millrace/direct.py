"""The combined broker: gateway and storage joined by function calls instead of gRPC, in one event loop.

The storage core's service objects have the methods of the gateway's Protocols, so `direct_storage` only names them.
Storage serves (and imports) gRPC only if it has an address for that: admin-api, always a separate process, connects
there. `main` is the `broker` process of `millrace up`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import uvloop
from gateway_svc.app import Gateway
from gateway_svc.errors import ListenerError
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.protocols import StoragePorts
from service_chassis import lifecycle, metrics
from service_chassis.health import Health, HttpEndpoint
from service_chassis.lifecycle import StartError
from service_chassis.settings import setting
from service_chassis.tls import TlsError
from storage_svc import app as storage_app
from storage_svc.log.errors import DataFolderError
from storage_svc.settings import StorageSettings
from storage_svc.topics.catalog_file import CatalogError

if TYPE_CHECKING:
    from storage_svc.rpc.server import StorageServer

#: Calls of admin-api still under way at a stop get this long.
_CALLS_GRACE_S = 0.5


class DirectSettings(StorageSettings, GatewaySettings):
    """Both services' settings: one environment describes the process."""

    broker_http: str = setting(
        "127.0.0.1:9103", description="Address of /metrics, /healthz and /readyz in combined mode."
    )
    poll_us: int = setting(
        200,
        ge=0,
        le=10_000,
        description="Time in µs that the broker polls for the next request before it sleeps. 0: it sleeps at once. "
        "`millrace.Broker()`, which shares the interpreter with its clients, uses 0.",
    )


def direct_storage(core: storage_app.Storage) -> StoragePorts:
    """Return the storage core as the gateway sees storage."""
    return StoragePorts(
        records=core.data,
        offsets=core.offsets,
        topics=core.topics,
        groups=core.groups,
        producers=core.producers,
        logs=core.log_service,
        cluster=core.cluster,
        transactions=core.transactions,
        access=core.access,
        users=core.users,
        is_local=True,
    )


class DirectBroker:
    """A started gateway over a started storage core. Used in the event loop that started it."""

    def __init__(self, core: storage_app.Storage, gateway: Gateway) -> None:
        self.core = core
        self.gateway = gateway
        self._server: StorageServer | None = None

    @classmethod
    async def start(cls, settings: DirectSettings) -> DirectBroker:
        """Start storage and the gateway, which serves clients from then on. Undo it all on an error.

        Raises:
            StartError: the data folder, the catalog, an address or a listener's settings cannot be used.
        """
        async with contextlib.AsyncExitStack() as undo:
            try:
                core = await storage_app.Storage.start(settings)
            except (DataFolderError, CatalogError) as error:
                raise StartError(str(error)) from error
            undo.push_async_callback(core.stop)
            try:
                # The process shows its metrics and health in one place, see `_serve`.
                own = settings.replaced(gateway_http="")
                gateway = await Gateway.start(own, direct_storage(core), poll_us=settings.poll_us)
            except OSError as error:
                raise StartError(error.strerror or str(error)) from error
            except ListenerError as error:
                raise StartError(str(error)) from error
            undo.push_async_callback(gateway.stop)
            undo.pop_all()
        return cls(core, gateway)

    async def serve_storage(self, address: str) -> None:
        """Serve gRPC for admin-api. `start` does not: its clients need not wait for the import of gRPC.

        Raises:
            StartError: the address cannot be used.
        """
        try:
            self._server = await storage_app.serve(self.core, address)
        except (OSError, TlsError) as error:
            raise StartError(str(error)) from error

    async def stop(self) -> None:
        """Stop in order: clients, then admin-api; then sync storage and mark it as cleanly stopped."""
        async with contextlib.AsyncExitStack() as last:
            last.push_async_callback(self.core.stop)
            if self._server is not None:
                last.push_async_callback(self._server.stop, _CALLS_GRACE_S)
                self._server.refuse()
            await self.gateway.stop()


def main() -> int:
    """Run the `broker` process of `millrace up`; return the exit status."""
    return lifecycle.main("broker", DirectSettings, _serve, new_event_loop=uvloop.new_event_loop)


async def _serve(settings: DirectSettings, stop: asyncio.Event) -> None:
    """Run until `stop` is set. The endpoint answers from the moment at which clients are served, for the launcher."""
    broker = await DirectBroker.start(settings)
    health = Health()
    health.checks["storage"] = lambda: _first_fault(broker.core.health)
    health.checks["gateway"] = lambda: _first_fault(broker.gateway.health)
    registry = metrics.merged(broker.core.registry, broker.gateway.registry)
    endpoint = HttpEndpoint(settings.broker_http, registry, health)
    async with contextlib.AsyncExitStack() as undo:
        undo.callback(health.watch_loop())
        undo.callback(endpoint.close)
        undo.push_async_callback(broker.stop)
        endpoint.start()
        await broker.serve_storage(settings.storage_bind)
        lifecycle.freeze_start_objects()
        health.set_ready(True)
        await stop.wait()
        health.set_ready(False, "stopping")


def _first_fault(health: Health) -> str | None:
    return next(iter(health.faults().values()), None)
