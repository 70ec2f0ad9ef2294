"""The control services on a real gRPC server on a Unix socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.storage_svc.rpc.control_peer import Peer, served

SETTINGS = {
    "num_partitions": 2,
    "partitions_max": 60,
    "log_retention_ms": 1234,
    "group_initial_rebalance_delay_ms": 0,
    "group_consumer_session_timeout_ms": 46_000,
    "groups_max": 2,
}


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    async with served(Peer, tmp_path, **SETTINGS) as peer:
        yield peer
