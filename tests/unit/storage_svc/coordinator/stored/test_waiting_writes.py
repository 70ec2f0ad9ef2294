"""Writes to `__consumer_offsets` that wait: for a sync before a roll, and for the topic to be made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.records.record import write_tail
from storage_svc.coordinator.stored import waiting_writes
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.partition_log import PartitionLog

from tests.unit.storage_svc.coordinator.conftest import SETTINGS, Node

NOW_MS = 1_700_000_000_000


class SlowDisk(Files):
    """A disk whose syncs of data wait until the test lets them go on, and fail with `failure`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.failure: StorageFailure | None = None
        self.syncing_threads: set[int] = set()

    def sync(self, descriptor: int) -> None:
        self.syncing_threads.add(threading.get_ident())
        assert self.may_sync.wait(60)
        if self.failure is not None:
            raise self.failure
        super().sync(descriptor)


class Bench:
    """Partition 1 of a topic whose segments are full after one batch, on a slow disk."""

    def __init__(self, node: Node, disk: SlowDisk) -> None:
        self.node = node
        self.disk = disk
        self.outcomes: list[tuple[str, int]] = []
        self.log: PartitionLog = node.logs.logs["__consumer_offsets", 1]
        self.log.configure(replace(self.log.config, segment_bytes=64))

    def write(self, name: str) -> None:
        records = [(name.encode(), b"v")]
        self.node.offsets_log.write(1, records, NOW_MS, lambda code: self.outcomes.append((name, code)))

    def gather(self, name: str) -> None:
        tails = [write_tail(name.encode(), b"v")]
        self.node.offsets_log.gather(1, tails, NOW_MS, lambda code: self.outcomes.append((name, code)))

    async def all_done(self, count: int) -> list[tuple[str, int]]:
        async with asyncio.timeout(30):
            while len(self.outcomes) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return self.outcomes

    @property
    def keys(self) -> list[str]:
        return [key.decode() for key, _ in self.node.records_of(1)]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    node, disk = Node(tmp_path, SETTINGS), SlowDisk()
    node.files = disk
    await node.open()
    await node.make_offsets_topic()
    yield Bench(node, disk)
    disk.may_sync.set()
    disk.failure = None
    await node.close()


async def test_a_batch_that_begins_a_segment_waits_and_the_event_loop_does_not(bench: Bench) -> None:
    bench.disk.may_sync.clear()
    bench.write("a")
    bench.write("b")
    bench.gather("c")
    bench.write("d")
    for _ in range(5):
        await asyncio.sleep(0)
    assert (bench.outcomes, bench.keys) == ([], ["a"])
    bench.disk.may_sync.set()
    assert await bench.all_done(4) == [(name, 0) for name in "abcd"]
    assert bench.keys == ["a", "b", "c", "d"]
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1, 2, 3]
    assert threading.get_ident() not in bench.disk.syncing_threads


async def test_writes_that_wait_fail_with_their_log(bench: Bench) -> None:
    bench.disk.may_sync.clear()
    bench.write("a")
    bench.write("b")
    bench.disk.failure = StorageFailure("broken")
    bench.disk.may_sync.set()
    assert await bench.all_done(2) == [(name, ErrorCode.KAFKA_STORAGE_ERROR) for name in "ab"]
    assert bench.keys == ["a"]


async def test_few_writes_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_writes, "WAITING_MAX", 2)
    bench.disk.may_sync.clear()
    for name in "abcd":
        bench.write(name)
    assert bench.outcomes == [("d", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    bench.disk.may_sync.set()
    assert await bench.all_done(4) == [("d", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("a", 0), ("b", 0), ("c", 0)]


async def test_a_stop_waits_for_them(bench: Bench) -> None:
    bench.disk.may_sync.clear()
    bench.write("a")
    bench.write("b")
    stopping = asyncio.create_task(bench.node.coordinator.stop())
    await asyncio.sleep(0.01)
    assert not stopping.done()
    bench.disk.may_sync.set()
    await asyncio.wait_for(stopping, 30)
    assert await bench.all_done(2) == [("a", 0), ("b", 0)]


async def test_a_write_waits_until_the_topic_is_made_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await Node(tmp_path, SETTINGS, offsets_partition_count=50).open()
    turns: list[int] = []
    steps: list[tuple[int, int]] = []
    create_many = node.logs.create_many

    def noted(topic: str, partitions: Iterable[int], *rest: Any) -> list[PartitionLog]:
        wanted = list(partitions)
        steps.append((len(turns), len(wanted)))
        return create_many(topic, wanted, *rest)

    async def count() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    monkeypatch.setattr(node.logs, "create_many", noted)
    counting = asyncio.create_task(count())
    outcomes: list[int] = []
    node.offsets_log.write(7, [(b"k", b"v")], NOW_MS, outcomes.append)
    assert await asyncio.gather(*(node.offsets_log.ensure_topic() for _ in range(3))) == [ErrorCode.NONE] * 3
    async with asyncio.timeout(30):
        while not outcomes:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    counting.cancel()
    assert (outcomes, len(node.records_of(7))) == ([0], 1)
    assert [count for _, count in steps] == [10] * 5
    assert len({turn for turn, _ in steps}) == 5
    await node.close()
