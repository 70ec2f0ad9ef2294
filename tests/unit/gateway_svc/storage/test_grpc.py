"""The connection to storage: when it is there, and why it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_contract import cluster_pb2
from broker_contract.version import CONTRACT_VERSION
from gateway_svc.errors import StorageUnavailable
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage import lasting_stream
from gateway_svc.storage.grpc import GrpcStorage
from service_chassis import rpc
from service_chassis.grpc_server import stream
from service_chassis.version import VERSION


async def read_all(context: Any) -> None:
    while await context.read() is not None:
        pass


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[GrpcStorage]:
    server = rpc.server()
    for noun in ("Groups", "Data"):
        server.add(f"millrace.v1.{noun}", {"Exchange": stream(read_all)})
    server.listen(f"unix:{tmp_path}/storage.sock")
    await server.start()
    made = GrpcStorage.connect(f"unix:{tmp_path}/storage.sock", "one", GatewayMetrics())
    yield made
    await made.close()
    await server.stop(0)


@pytest.mark.parametrize("stream", ["_records", "_groups"])
async def test_storage_is_there_while_both_streams_are_up(storage: GrpcStorage, stream: str) -> None:
    async with asyncio.timeout(60):
        while storage.fault() is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    getattr(storage, stream).connected.clear()
    assert storage.fault() == "storage is not connected"


async def test_storage_of_another_release_is_named_in_readiness_and_asked_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting_stream, "REFUSED_PAUSE_S", 600.0)
    server = rpc.server("another")
    server.listen(f"unix:{tmp_path}/other.sock")
    await server.start()
    counts = GatewayMetrics()
    storage = GrpcStorage.connect(f"unix:{tmp_path}/other.sock", "one", counts)
    async with asyncio.timeout(60):
        while sum(counts.storage_errors[name] for name in ("stream", "group_stream")) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    fault = storage.fault()
    assert fault is not None
    assert fault.endswith(
        f"with contract another, the caller is Millrace {VERSION} with contract {CONTRACT_VERSION}: "
        "all services must be of one release"
    )
    with pytest.raises(StorageUnavailable, match="FAILED_PRECONDITION: storage is Millrace"):
        await storage.storage.cluster.register_gateway(cluster_pb2.RegisterGatewayRequest(name="one"))
    assert [counts.storage_errors[name] for name in ("stream", "group_stream")] == [1, 1]
    await storage.close()
    await server.stop(0)
