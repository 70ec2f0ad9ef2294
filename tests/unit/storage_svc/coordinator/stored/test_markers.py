"""Markers of transactions: written once they may be, and answered once they are durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record
from storage_svc.coordinator.stored.markers import Done, LogMarkerWriter
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DiskFull, StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.transaction_ports import Marker
from support.group_calls import answered

NOW_MS = 1_700_000_000_000
E = ErrorCode


class FailingFiles(Files):
    fault: Exception | None = None

    def append(self, descriptor, parts, position, size):  # type: ignore[no-untyped-def]
        if self.fault is not None:
            raise self.fault
        super().append(descriptor, parts, position, size)


class Bench:
    def __init__(self, path: Path) -> None:
        self.files = FailingFiles()
        self.directory = DataFolder.open(
            path, LogSettings(flush_policy=FlushPolicy.GROUP), clock=lambda: NOW_MS, files=self.files
        )
        self.log = self.directory.create("t", 0, bytes(16), LogConfig(segment_bytes=1 << 20))
        self.directory.start(asyncio.get_running_loop())
        self.in_groups: list[tuple[int, Marker]] = []
        self.writer = LogMarkerWriter(self.directory.logs, self._end_in_groups)

    def _end_in_groups(self, partition: int, marker: Marker, done: Done) -> None:
        self.in_groups.append((partition, marker))
        done(E.NONE)

    async def write(
        self,
        *,
        epoch: int = 0,
        commit: bool = True,
        coordinator_epoch: int = 0,
        topic: str = "t",
        is_own: bool = False,
    ) -> int:
        marker = Marker(7, epoch, commit, coordinator_epoch, is_own=is_own)
        code: int = await answered(self.writer.write, (topic, 0), marker)
        return code

    def produce(self, size: int = 10, *, epoch: int = 0) -> int:
        batch = build_batch(
            [Record(0, NOW_MS, None, bytes(size))],
            producer_id=7,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        return self.log.append(batch).error_code

    def markers(self) -> int:
        return sum(header.is_control for header, _ in read_batches(self.log.read_batches(0, 1 << 22)))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.files.fault = None
    await bench.directory.close()


async def test_a_marker_is_durable_when_it_is_answered(bench: Bench) -> None:
    assert bench.produce() == 0
    assert await bench.write() == E.NONE
    assert (bench.log.high_watermark, bench.log.last_stable_offset) == (2, 2)
    assert await bench.write() == E.NONE  # again: a second one changes nothing
    assert bench.log.last_stable_offset == 3


async def test_codes_that_end_the_callers_tries(bench: Bench) -> None:
    assert await bench.write(topic="gone") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.produce(epoch=2) == 0
    assert await bench.write(epoch=1) == E.INVALID_PRODUCER_EPOCH
    assert await bench.write(epoch=2, coordinator_epoch=5) == E.NONE
    assert await bench.write(epoch=2, coordinator_epoch=4) == E.TRANSACTION_COORDINATOR_FENCED
    assert bench.markers() == 1


async def test_a_marker_that_begins_a_segment_waits_for_the_one_before(bench: Bench) -> None:
    assert bench.produce((1 << 20) - 120) == 0
    assert await bench.write(commit=False) == E.NONE
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1]
    assert bench.log.transactions.aborted(0, bench.log.spans(0, 1 << 22, min_one=True, committed=True)) == [(7, 0)]


async def test_a_full_disk_leaves_the_transaction_open(bench: Bench) -> None:
    assert bench.produce() == 0
    bench.files.fault = DiskFull("full")
    assert await bench.write(commit=False) == E.KAFKA_STORAGE_ERROR
    assert (bench.log.last_stable_offset, bench.log.log_end_offset) == (0, 1)
    bench.files.fault = None
    assert await bench.write(commit=False) == E.NONE
    assert bench.log.last_stable_offset == 2


async def test_a_log_that_goes_offline_or_away(bench: Bench) -> None:
    assert bench.produce((1 << 20) - 120) == 0
    writing = asyncio.ensure_future(bench.write())
    await asyncio.sleep(0)  # it waits for the segment
    bench.log.take_offline("broken")
    assert await writing == E.KAFKA_STORAGE_ERROR
    other = bench.directory.create("t", 1, bytes(16), LogConfig())
    other.mark_deleted()
    assert await answered(bench.writer.write, ("t", 1), Marker(7, 0, True, 0)) == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_broken_disk_answers(bench: Bench) -> None:
    assert bench.produce() == 0
    bench.files.fault = StorageFailure("broken")
    assert await bench.write() == E.KAFKA_STORAGE_ERROR
    bench.files.fault = RuntimeError("a bug")
    assert await bench.write() == E.KAFKA_STORAGE_ERROR


async def test_markers_of_offsets_go_to_the_groups(bench: Bench) -> None:
    bench.directory.create("__consumer_offsets", 0, bytes(16), LogConfig())
    assert await bench.write(topic="__consumer_offsets", epoch=3) == E.NONE
    assert bench.in_groups == [(0, Marker(7, 3, True, 0))]


async def test_a_marker_from_outside_does_not_fence_the_coordinator(bench: Bench) -> None:
    """Nobody else ends the next transaction: it would stay open, although its client knows it as committed."""
    assert bench.produce() == 0
    assert await bench.write(commit=False, coordinator_epoch=5) == E.NONE
    assert bench.produce(epoch=1) == 0
    assert await bench.write(epoch=1) == E.TRANSACTION_COORDINATOR_FENCED
    assert bench.log.last_stable_offset == 2
    assert await bench.write(epoch=1, is_own=True) == E.NONE
    assert bench.log.last_stable_offset == bench.log.log_end_offset == 4
    assert bench.log.producers.producers[7].coordinator_epoch == 5
