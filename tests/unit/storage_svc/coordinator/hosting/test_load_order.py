"""The partitions of both coordinators, one at a time: those that are asked for, then the shorter ones."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.hosting.load_order import LoadOrder
from storage_svc.coordinator.hosting.served_partitions import ServedPartitions
from storage_svc.log.errors import StorageFailure

E = ErrorCode


class Coordinator:
    def __init__(self, name: str, order: LoadOrder, sizes: dict[int, int], loads: list[str]) -> None:
        self.served = ServedPartitions(name)
        self.served.begin_loading(sizes)
        self.may_end = asyncio.Event()
        self.fails: set[int] = set()
        self._name, self._loads = name, loads
        logs: Any = [SimpleNamespace(partition=partition, folder=f"{name}-{partition}") for partition in sizes]
        self.task = asyncio.create_task(order.load(self.served, logs, self._load))

    async def _load(self, log: Any) -> None:
        self._loads.append(log.folder)
        await self.may_end.wait()
        if log.partition in self.fails:
            raise StorageFailure("broken")


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_what_is_asked_for_comes_first_then_the_shorter() -> None:
    order, loads = LoadOrder(), list[str]()
    groups = Coordinator("g", order, {0: 100, 1: 300, 2: 200}, loads)
    transactions = Coordinator("t", order, {0: 150, 1: 900, 2: 50}, loads)
    await turns()
    assert loads == ["g-0"]  # one at a time
    assert transactions.served.error(1) == groups.served.error(1) == E.COORDINATOR_LOAD_IN_PROGRESS
    groups.may_end.set()
    transactions.may_end.set()
    await asyncio.gather(groups.task, transactions.task)
    assert loads == ["g-0", "g-1", "t-1", "t-2", "t-0", "g-2"]
    assert groups.served.error(1) == transactions.served.error(1) == E.NONE
    assert not groups.served.is_loading


async def test_a_partition_that_fails_does_not_hold_up_the_others() -> None:
    loads: list[str] = []
    groups = Coordinator("g", LoadOrder(), {0: 1, 1: 2}, loads)
    groups.fails.add(0)
    groups.may_end.set()
    await groups.task
    assert (groups.served.error(0), groups.served.error(1)) == (E.COORDINATOR_LOAD_IN_PROGRESS, E.NONE)
    assert groups.served.fault == "cannot load partition 0 of g: broken"


async def test_a_coordinator_that_stops_leaves_its_turn_to_the_other() -> None:
    order, loads = LoadOrder(), list[str]()
    groups = Coordinator("g", order, {0: 1, 1: 2}, loads)
    transactions = Coordinator("t", order, {0: 5, 1: 6}, loads)
    waiting = Coordinator("w", order, {0: 3}, loads)
    await turns()
    groups.task.cancel()
    waiting.task.cancel()
    transactions.may_end.set()
    await asyncio.wait([groups.task, transactions.task, waiting.task])
    assert loads == ["g-0", "t-0", "t-1"]
