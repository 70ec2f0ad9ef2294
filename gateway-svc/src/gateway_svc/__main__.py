"""The gateway-svc command: a gateway that reaches storage over gRPC, in one process or several."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable

import uvloop
from service_chassis import lifecycle
from service_chassis.allocation import keep_freed_memory
from service_chassis.health import HttpEndpoint

from gateway_svc import workers
from gateway_svc.app import Gateway
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.settings import GatewaySettings


def main() -> int:
    return lifecycle.main(
        "gateway-svc",
        GatewaySettings,
        _serve,
        new_event_loop=uvloop.new_event_loop,
    )


async def _serve(settings: GatewaySettings, stop: asyncio.Event) -> None:
    if settings.gateway_workers > 1:
        await workers.serve(settings, stop)
        return
    from gateway_svc.storage.grpc import GrpcStorage  # grpc is configured before its import

    keep_freed_memory()
    counts = GatewayMetrics()
    connection = GrpcStorage.connect(settings.storage_address, settings.name, counts)
    starting = asyncio.create_task(Gateway.start(settings, connection.storage, counts), name="gateway start")
    stopping = asyncio.create_task(stop.wait(), name="stop signal")
    try:
        # Storage may be long in coming: a signal ends the wait.
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return
        try:
            gateway = starting.result()
        except OSError as error:
            raise lifecycle.StartError(str(error)) from error
        try:
            await _serve_until(stop, gateway, connection.fault)
        finally:
            await gateway.stop()
    finally:
        stopping.cancel()
        await connection.close()


async def _serve_until(stop: asyncio.Event, gateway: Gateway, storage_fault: Callable[[], str | None]) -> None:
    gateway.health.checks["storage"] = storage_fault
    endpoint = None
    if gateway.settings.gateway_http:
        endpoint = HttpEndpoint(gateway.settings.gateway_http, gateway.registry, gateway.health).start()
    try:
        lifecycle.freeze_start_objects()
        # What the hot path makes lives for milliseconds: fewer, later collections of the youngest find less alive.
        gc.set_threshold(50_000, 20, 50)
        await stop.wait()
    finally:
        if endpoint is not None:
            endpoint.close()


if __name__ == "__main__":
    sys.exit(main())
