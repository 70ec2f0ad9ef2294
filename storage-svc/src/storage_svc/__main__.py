"""storage-svc as a process of its own: the storage core over gRPC, with metrics and health over HTTP.

storage-svc                serve until SIGTERM or SIGINT; everything is set by MILLRACE_* variables
storage-svc healthcheck    exit status 0 when the running one is ready, else 1
"""

from __future__ import annotations

import asyncio
import sys

from service_chassis import lifecycle, logs
from service_chassis.health import Health, HttpEndpoint

from storage_svc.app import Storage, serve
from storage_svc.log.errors import DataFolderError
from storage_svc.settings import StorageSettings
from storage_svc.topics.catalog import CatalogError

log = logs.get(__name__)

#: Calls still under way when everything parked was answered get this long.
_CALLS_GRACE_S = 2.0


async def run(settings: StorageSettings, stop: asyncio.Event) -> None:
    """Raises: lifecycle.StartError."""
    health = Health()
    end_watch = health.watch_loop()
    try:
        try:
            storage = await Storage.start(settings, health=health)
        except (DataFolderError, CatalogError) as error:
            raise lifecycle.StartError(str(error)) from error
        try:
            await _serve(storage, stop)
        finally:
            await storage.stop()
    finally:
        end_watch()


async def _serve(storage: Storage, stop: asyncio.Event) -> None:
    settings = storage.settings
    endpoint = HttpEndpoint(settings.storage_http, storage.registry, storage.health)
    try:
        server = await serve(storage, settings.storage_bind)
    except OSError as error:
        raise lifecycle.StartError(str(error)) from error
    try:
        try:
            endpoint.start()
        except OSError as error:
            raise lifecycle.StartError(f"cannot listen at {settings.storage_http}: {error.strerror}") from error
        lifecycle.freeze_start_objects()
        log.info("serving", grpc=settings.storage_bind, http=f"port {endpoint.port}")
        await stop.wait()
    finally:
        await server.refuse()
        await storage.answer_parked()
        await server.stop(_CALLS_GRACE_S)
        endpoint.close()


def main() -> int:
    return lifecycle.main("storage-svc", StorageSettings, run, http_address=lambda settings: settings.storage_http)


if __name__ == "__main__":
    sys.exit(main())
