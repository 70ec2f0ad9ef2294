"""The `broker` process of `millrace up`: gateway and storage in combined mode, and storage's gRPC for admin-api."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import uvloop
from service_chassis import lifecycle, metrics
from service_chassis.health import Health, HttpEndpoint

from millrace.direct import DirectBroker, DirectSettings

__all__ = ["main", "serve"]


def main() -> int:
    return lifecycle.main(
        "broker",
        DirectSettings,
        serve,
        new_event_loop=uvloop.new_event_loop,
    )


async def serve(settings: DirectSettings, stop: asyncio.Event) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
