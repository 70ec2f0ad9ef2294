"""The `broker` process of `millrace up`: gateway and storage in one, and storage's gRPC for admin-api beside it."""

from __future__ import annotations

import asyncio
import sys

from service_chassis import lifecycle, metrics
from service_chassis.health import Health, HttpEndpoint

from millrace.direct import DirectBroker, DirectSettings

__all__ = ["main", "serve"]


def main() -> int:
    return lifecycle.main("broker", DirectSettings, serve, http_address=lambda settings: settings.broker_http)


async def serve(settings: DirectSettings, stop: asyncio.Event) -> None:
    """Runs until `stop` is set."""
    broker = await DirectBroker.start(settings, storage_bind=settings.storage_bind)
    health = Health()
    health.checks["storage"] = lambda: _first_fault(broker.core.health)
    health.checks["gateway"] = lambda: _first_fault(broker.gateway.health)
    end_watch = health.watch_loop()
    registry = metrics.merged(broker.core.registry, broker.gateway.registry)
    endpoint = HttpEndpoint(settings.broker_http, registry, health).start()
    try:
        lifecycle.freeze_start_objects()
        health.set_ready(True)
        await stop.wait()
        health.set_ready(False, "stopping")
    finally:
        await broker.stop()
        end_watch()
        endpoint.close()


def _first_fault(health: Health) -> str | None:
    return next(iter(health.faults().values()), None)


if __name__ == "__main__":
    sys.exit(main())
