"""Look-ups by timestamp: in their own thread, for callers that are there, at a bounded cost for the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_contract import data_pb2
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.timestamps import Search, largest_readable
from storage_svc.rpc.look_ups import LookUps
from storage_svc.rpc.offsets import OffsetsService

from tests.support.waiting import until_async


def batch(timestamp: int) -> bytes:
    return build_batch([Record(0, timestamp, b"k", b"v")])


class Bench:
    def __init__(self, path: Path, policy: FlushPolicy = FlushPolicy.OS) -> None:
        self.directory = DataFolder.open(path, LogSettings(flush_policy=policy))
        (self.log,) = self.directory.create_many("t", range(1), bytes(16), LogConfig())
        self.service = OffsetsService(self.directory)
        self.look_ups: LookUps = self.service.look_ups

    async def close(self) -> None:
        await self.look_ups.close()
        assert self.look_ups.count == 0
        self.directory.check_invariants()
        await self.directory.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    bench.directory.start(asyncio.get_running_loop())
    yield bench
    await bench.close()


async def test_many_batches_of_one_timestamp_are_walked_in_the_thread(bench: Bench) -> None:
    """The time index leads to the first of them. The event loop spends next to nothing on those that follow."""
    for _ in range(20_000):
        bench.log.append(batch(100))
    bench.log.append(batch(101))
    for look_up in (bench.look_ups.by_timestamp(bench.log, 101), bench.look_ups.largest(bench.log)):
        before = time.thread_time()
        record = await look_up
        spent = time.thread_time() - before
        assert record is not None
        assert (record.timestamp, record.offset) == (101, 20_000)
        assert spent < 0.01  # a walk takes more than 20 ms


class Blocked:
    """A search that stands still in the thread, and those that begin after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[int] = []
        self.may_end = threading.Event()
        run = Search.run

        def blocked(search: Search) -> object:
            search.check()
            self.begun.append(search.timestamp)
            self.may_end.wait(60)
            return run(search)

        monkeypatch.setattr(Search, "run", blocked)


async def test_a_look_up_ends_with_its_caller(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that runs keeps its segment open until it is over; the others never begin."""
    for _ in range(3):
        bench.log.append(batch(100))
    blocked = Blocked(monkeypatch)
    callers = [asyncio.create_task(bench.look_ups.by_timestamp(bench.log, 98 + number)) for number in range(3)]
    await until_async(lambda: bool(blocked.begun))
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    active = bench.log.segments.active
    descriptor = active.descriptor
    active.close()
    assert active.descriptor == descriptor
    blocked.may_end.set()
    await until_async(lambda: bench.look_ups.count == 0)
    assert blocked.begun == [98]
    assert active.descriptor == -1


async def test_a_stop_ends_look_ups(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.log.append(batch(100))
    blocked = Blocked(monkeypatch)

    def ask() -> asyncio.Task[data_pb2.ListOffsetsResponse]:
        target = data_pb2.ListOffsetsRequest.Target(topic="t", partition=0, timestamp=100, current_leader_epoch=-1)
        return asyncio.create_task(bench.service.list_offsets(data_pb2.ListOffsetsRequest(targets=[target])))

    asked = [ask(), ask()]
    await until_async(lambda: bench.look_ups.count == 2)
    stopping = asyncio.create_task(bench.look_ups.close())
    await asyncio.sleep(0)
    blocked.may_end.set()
    await stopping
    late = ask()
    answers = [(await each).offsets[0] for each in (*asked, late)]
    assert [each.error_code for each in answers] == [6, 6, 6]
    assert bench.look_ups.count == 0


async def test_the_largest_readable_timestamp_is_kept_and_not_searched(tmp_path: Path) -> None:
    """Records above the high watermark do not count, and none below it is looked at."""
    bench = Bench(tmp_path, FlushPolicy.GROUP)  # nothing syncs before `start`
    log: PartitionLog = bench.log

    def sync() -> None:
        log.request_sync()
        target = log.sync_target()
        assert target is not None
        target.run(log.files)
        log.synced(target)

    def kept() -> tuple[int, int]:
        return largest_readable(log, log.segments.active)

    log.append(batch(100))
    assert kept()[0] == -1
    sync()
    assert kept() == (100, 0)
    log.append(batch(300))
    target = log.sync_target()
    log.append(batch(400))
    assert kept() == (100, 0)
    assert target is not None
    target.run(log.files)
    log.synced(target)
    assert (log.high_watermark, kept()) == (2, (300, 1))
    log.append(batch(200))
    sync()
    assert kept() == (400, 2)
    log.roll(log.now_ms())
    assert kept()[0] == -1
    log.append(batch(500))
    assert kept()[0] == -1
    record = await bench.look_ups.largest(log)
    assert record is not None
    assert (record.timestamp, record.offset) == (400, 2)
    sync()
    bench.directory.start(asyncio.get_running_loop())
    await bench.close()
