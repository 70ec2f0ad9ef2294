"""The sweep over all connections goes on after an exception, and closes the connection that raised it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any, cast

import pytest
from gateway_svc.clients.connections import SWEEP_TURN_S, Connections
from gateway_svc.clients.departure import FIRST_S, TICK_S
from gateway_svc.clients.entrance import Entrance
from gateway_svc.clients.relief import Relief
from gateway_svc.clients.slices import SliceFiles
from gateway_svc.fetching.shown_answers import ShownAnswers
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals
from gateway_svc.request_memory import RequestMemory
from gateway_svc.settings import GatewaySettings

from tests.unit.gateway_svc.clients.test_slices import segment_slice


class Swept:
    """A connection whose check may raise."""

    address, peer, listener = "10.0.0.1", "10.0.0.1:1", "EXTERNAL"
    idle, memory_held = True, (0, 0)

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.checked = 0
        self.is_aborted = False

    def check_time(self, *_: float) -> None:
        self.checked += 1
        if self.error is not None:
            raise self.error

    def abort(self) -> None:
        self.is_aborted = True


async def test_the_sweep_goes_on_after_an_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection and a stale file handle (ESTALE) raise."""
    metrics = GatewayMetrics()
    settings = GatewaySettings(listeners="EXTERNAL://localhost:0", storage_address="unused", frame_timeout_ms=100)
    entrance = Entrance(Refusals(metrics), lambda: 0.0, most=10, most_per_address=10, rate=0)
    (tmp_path / "a..b-0").mkdir()
    (tmp_path / "a..b-0" / "0.log").write_bytes(bytes(100))
    files = SliceFiles(str(tmp_path))
    assert files.parts([segment_slice(tmp_path, 0, 10)], 0.0)
    relief = Relief(RequestMemory(1 << 20), MemoryBudget(1 << 20), ShownAnswers(asyncio.get_running_loop()))
    connections = Connections(settings, metrics, entrance, relief, files)
    broken, whole = Swept(RuntimeError("a fault")), Swept()
    for connection in (whole, broken):
        connections.add(cast(Any, connection))
    stale = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        if len(files):
            raise OSError(116, "Stale file handle")
        return stale(descriptor)

    monkeypatch.setattr("gateway_svc.clients.slices.os.fstat", fstat)
    sweeping = asyncio.create_task(connections.sweep())
    async with asyncio.timeout(60):
        while whole.checked < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert (broken.is_aborted, whole.is_aborted, len(files)) == (True, False, 0)
    assert not sweeping.done()
    sweeping.cancel()
    await asyncio.wait({sweeping})
    files.close()


async def test_the_sweep_rests_while_nobody_is_connected() -> None:
    metrics = GatewayMetrics()
    settings = GatewaySettings(listeners="EXTERNAL://localhost:0", storage_address="unused", frame_timeout_ms=100)
    entrance = Entrance(Refusals(metrics), lambda: 0.0, most=10, most_per_address=10, rate=0)
    relief = Relief(RequestMemory(1 << 20), MemoryBudget(1 << 20), ShownAnswers(asyncio.get_running_loop()))
    connections, loop = Connections(settings, metrics, entrance, relief, None), asyncio.get_running_loop()
    sweeping = asyncio.create_task(connections.sweep())
    turn = asyncio.Event()
    loop.call_later(2 * TICK_S, turn.set)
    connections.prompt_until = 0.0  # a tick would move it
    await turn.wait()
    assert (connections.prompt_from, connections.prompt_until) == (float("inf"), 0.0)
    client, before = Swept(), loop.time()
    connections.add(cast(Any, client))
    for _ in range(3):
        await asyncio.sleep(0)
    assert before + FIRST_S <= connections.prompt_from <= loop.time() + FIRST_S, "its bytes may have waited"
    assert connections.prompt_until > before
    async with asyncio.timeout(60):
        while not client.checked:  # noqa: ASYNC110
            await asyncio.sleep(0)
        connections.remove(cast(Any, client))
        while connections.prompt_from < float("inf"):  # noqa: ASYNC110
            await asyncio.sleep(0)
    sweeping.cancel()
    await asyncio.wait({sweeping})


class Slow(Swept):
    """A connection whose check takes a quarter of a turn."""

    def check_time(self, *_: float) -> None:
        time.sleep(SWEEP_TURN_S / 4)
        super().check_time()


async def test_others_have_their_turns_while_a_sweep_closes_many() -> None:
    settings = GatewaySettings(listeners="EXTERNAL://localhost:0", storage_address="unused", frame_timeout_ms=100)
    entrance = Entrance(Refusals(GatewayMetrics()), lambda: 0.0, most=10, most_per_address=10, rate=0)
    relief = Relief(RequestMemory(1 << 20), MemoryBudget(1 << 20), ShownAnswers(asyncio.get_running_loop()))
    connections = Connections(settings, GatewayMetrics(), entrance, relief, None)
    slow = [Slow() for _ in range(40)]
    for connection in slow:
        connections.add(cast(Any, connection))
    sweeping = asyncio.create_task(connections.sweep())
    turns = 0
    async with asyncio.timeout(60):
        while slow[0].checked + slow[-1].checked < 2:
            turns += slow[0].checked + slow[-1].checked
            await asyncio.sleep(0)
    assert turns >= 8
    sweeping.cancel()
    await asyncio.wait({sweeping})
