"""Parts of a gateway whose invariants hold after each test, and a stream of group calls to a storage of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from gateway_svc.clients.pipeline import Pipeline
from gateway_svc.fetching.sessions import FetchSessions
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.append_window import AppendWindow
from gateway_svc.storage.group_stream import GroupStream
from service_chassis import rpc

from tests.unit.gateway_svc.group_storage import Clock, GroupStorage, Members, who


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    made = Pipeline()
    yield made
    made.check_invariants()


@pytest.fixture
def budget() -> Iterator[MemoryBudget]:
    """A budget of 100 bytes."""
    made = MemoryBudget(100)
    yield made
    made.check_invariants()


@pytest.fixture
def window() -> Iterator[AppendWindow]:
    made = AppendWindow()
    yield made
    made.check_invariants()


@pytest.fixture
def sessions() -> Iterator[FetchSessions]:
    made = FetchSessions()
    yield made
    made.check_invariants()


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
    """The clock of a stream that is up."""
    return Clock(group_stream)
