"""A gateway's stream of group calls, to a storage that answers as it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.group_stream import GroupStream
from service_chassis import rpc

from tests.unit.gateway_svc.group_storage import Clock, GroupStorage, Members, who


@pytest.fixture
async def group_storage(tmp_path: Path) -> AsyncIterator[GroupStorage]:
    made = GroupStorage(f"unix:{tmp_path}/group_storage.sock")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def group_stream(group_storage: GroupStorage) -> AsyncIterator[GroupStream]:
    channel = rpc.channel(group_storage.address)
    made = GroupStream(channel, GatewayMetrics())
    yield made
    await made.close()
    await channel.close()


@pytest.fixture
async def members(group_stream: GroupStream, group_storage: GroupStorage) -> Members:
    """With a stream that is up, over which something has just left."""
    made = Members(group_stream)
    made.heartbeat("first")
    assert who(await group_storage.message()) == ["first"]
    return made


@pytest.fixture
async def clock(group_stream: GroupStream, members: Members) -> Clock:
    """Of a stream that is up."""
    return Clock(group_stream)
