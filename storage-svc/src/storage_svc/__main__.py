"""storage-svc in a separate process: the storage core over gRPC, with metrics and health over HTTP.

It serves until SIGTERM or SIGINT; everything is set by MILLRACE_* variables.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import uvloop
from service_chassis import lifecycle, logs, loop_lag, metrics
from service_chassis.health import Health, HttpEndpoint
from service_chassis.rpc_metrics import TransportMetrics
from service_chassis.tls import TlsError

from storage_svc.app import Storage, serve
from storage_svc.log.errors import DataFolderError
from storage_svc.settings import StorageSettings
from storage_svc.topics.catalog_file import CatalogError

if TYPE_CHECKING:  # imported by serve()
    from storage_svc.rpc.server import StorageServer

log = logs.get(__name__)

#: Calls still under way when everything parked was answered get this long.
_CALLS_GRACE_S = 2.0


async def run(settings: StorageSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Health is served before recovery, which may take minutes for a large data folder.

    Raises:
        lifecycle.StartError: the data folder, the catalog or an address cannot be used.
    """
    health, registry = Health(), metrics.Registry("storage-svc")
    async with contextlib.AsyncExitStack() as undo:
        undo.callback(health.watch_loop())
        undo.callback(loop_lag.observe(registry))
        endpoint = HttpEndpoint(settings.storage_http, registry, health).start()
        undo.callback(endpoint.close)
        server: StorageServer | None = None
        health.checks["grpc"] = lambda: None if server else "not listening yet"
        try:
            storage = await Storage.start(settings, health=health, registry=registry)
        except (DataFolderError, CatalogError) as error:
            raise lifecycle.StartError(str(error)) from error
        undo.push_async_callback(storage.stop)
        try:
            server = await serve(storage, settings.storage_bind)
        except (OSError, TlsError) as error:
            raise lifecycle.StartError(str(error)) from error
        registry.register(TransportMetrics(server.counts))
        lifecycle.freeze_start_objects()
        log.info("serving", grpc=settings.storage_bind, http_port=endpoint.port)
        await stop.wait()
        server.refuse()
        await storage.answer_parked()
        await server.stop(_CALLS_GRACE_S)


def main() -> int:
    return lifecycle.main(
        "storage-svc",
        StorageSettings,
        run,
        new_event_loop=uvloop.new_event_loop,
        example="MILLRACE_DATA_DIR=/var/lib/millrace MILLRACE_STORAGE_BIND=0.0.0.0:50051 storage-svc",
    )


if __name__ == "__main__":
    sys.exit(main())
