"""The control services on a real gRPC server on a Unix socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_contract.version import CONTRACT_VERSION
from service_chassis import rpc
from storage_svc.app import Storage, serve
from storage_svc.settings import StorageSettings

from tests.unit.storage_svc.rpc.control_peer import Peer


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    settings = StorageSettings(
        data_dir=tmp_path / "data",
        num_partitions=2,
        partitions_max=60,
        log_retention_ms=1234,
        group_initial_rebalance_delay_ms=0,
        group_consumer_session_timeout_ms=46_000,
        groups_max=2,
    )
    storage = await Storage.start(settings)
    server = await serve(storage, f"unix:{tmp_path}/storage.sock")
    channel = rpc.channel(f"unix:{tmp_path}/storage.sock", CONTRACT_VERSION)
    yield Peer(storage, server, channel)
    await channel.close()
    await storage.answer_parked()
    await server.stop(1)
    await storage.stop()
