"""The gateway-svc command: a gateway that reaches storage over gRPC, in one process or several."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop
from service_chassis import lifecycle, metrics
from service_chassis.health import Health, HttpEndpoint
from service_chassis.internal_tls import internal_tls
from service_chassis.rpc_metrics import TransportMetrics
from service_chassis.tls import TlsError

from gateway_svc.app import Gateway
from gateway_svc.clients.entrance import lanes_max
from gateway_svc.errors import ListenerError
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.grpc import GrpcStorage


def main() -> int:
    return lifecycle.main(
        "gateway-svc",
        GatewaySettings,
        _serve,
        new_event_loop=uvloop.new_event_loop,
        example="MILLRACE_STORAGE_ADDRESS=storage:50051 MILLRACE_LISTENERS=EXTERNAL://localhost:9092 gateway-svc",
    )


async def _serve(settings: GatewaySettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Health is served at once, because storage may be long in coming."""
    if settings.gateway_workers > 1:
        from gateway_svc import workers

        await workers.serve(settings, stop)
        return

    counts = GatewayMetrics()
    health, registry = Health(), metrics.Registry("gateway-svc")
    async with contextlib.AsyncExitStack() as undo:
        try:
            tls = internal_tls(settings, settings.storage_address, "MILLRACE_STORAGE_ADDRESS", serves=False)
        except TlsError as error:
            raise lifecycle.StartError(str(error)) from error
        connection = GrpcStorage.connect(
            settings.storage_address,
            settings.name,
            counts,
            tls=tls,
            record_lanes=lanes_max(settings.gateway_record_lanes, sees_files=bool(settings.gateway_data_dir)),
        )
        undo.push_async_callback(connection.close)
        health.checks["storage"] = connection.fault
        registry.register(TransportMetrics(connection.counts))
        if settings.gateway_http:  # mutant: health-before-storage
            undo.callback(HttpEndpoint(settings.gateway_http, registry, health).start().close)
        gateway = await _started(
            Gateway.start(settings, connection.storage, counts, health=health, registry=registry), stop
        )
        if gateway is not None:
            undo.push_async_callback(gateway.stop)
            lifecycle.freeze_start_objects()
            # Requests and answers live for milliseconds: later collections of the youngest find fewer of them alive.
            gc.set_threshold(10_000, 20, 1000)
            await stop.wait()


async def _started(start: Coroutine[Any, Any, Gateway], stop: asyncio.Event) -> Gateway | None:
    """Return the gateway, or None if `stop` is set before storage has come.

    Raises:
        StartError: an address cannot be bound, the data folder cannot be opened, or a listener cannot be served.
    """
    starting = asyncio.create_task(start, name="gateway start")
    stopping = asyncio.create_task(stop.wait(), name="stop signal")
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
            return None
        return starting.result()
    except (OSError, ListenerError) as error:
        raise lifecycle.StartError(str(error)) from error
    finally:
        stopping.cancel()


if __name__ == "__main__":
    sys.exit(main())
