"""`admin-api`, also `python -m admin_api`: serves until SIGTERM; `admin-api healthcheck` asks the one that runs."""

from __future__ import annotations

import asyncio
import sys

from service_chassis import address, lifecycle, logs

from admin_api.settings import AdminSettings

__all__ = ["main"]

log = logs.get("admin_api")


def main() -> int:
    return lifecycle.main("admin-api", AdminSettings, _serve, http_address=lambda settings: settings.admin_http)


async def _serve(settings: AdminSettings, stop: asyncio.Event) -> None:
    from prometheus_client import disable_created_metrics

    from admin_api.app import create_app, is_loopback
    from admin_api.server import listen, serving
    from admin_api.storage import Storage

    given = address.parse(settings.admin_http)
    try:
        sockets = listen(given)
    except OSError as error:
        raise lifecycle.StartError(f"MILLRACE_ADMIN_HTTP: cannot listen at {given}: {error.strerror}") from error
    if not is_loopback(given.host):
        log.warning(
            "anyone who reaches this address administers the cluster: there is no authentication", address=str(given)
        )
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter, for nobody
    storage = Storage(settings.storage_address, timeout_s=settings.admin_storage_timeout_s)
    try:
        async with serving(create_app(settings, storage), sockets, stop_deadline_s=settings.stop_deadline_s - 1):
            log.info("listening", host=given.host, port=sockets[0].getsockname()[1])
            lifecycle.freeze_start_objects()
            await stop.wait()
    finally:
        await storage.close()


if __name__ == "__main__":
    sys.exit(main())
