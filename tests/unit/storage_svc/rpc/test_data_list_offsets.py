"""ListOffsets through the data service."""

from __future__ import annotations

import asyncio

import pytest
from broker_contract import data_pb2
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.log_directory import LogDirectory
from storage_svc.rpc.data import DataService


@pytest.fixture
async def service(tmp_path):
    directory = LogDirectory.open(tmp_path, LogSettings(flush_policy=FlushPolicy.OS))
    log, *_ = directory.create_many("t", range(2), bytes(16), LogConfig(segment_bytes=300))
    for times in ((100, 300, 200), (250, 250), (400, 150)):
        log.append(build_batch([Record(n, t, b"k", b"v") for n, t in enumerate(times)], codec=Codec.GZIP))
    directory.start(asyncio.get_running_loop())
    service = DataService(directory, lambda _: None)
    yield service
    directory.check_invariants()
    await service.close()
    await directory.close()


async def ask(service, *targets, isolation=0):
    target = data_pb2.ListOffsetsRequest.Target
    request = data_pb2.ListOffsetsRequest(
        isolation_level=isolation,
        targets=[
            target(topic=topic, partition=partition, timestamp=timestamp, current_leader_epoch=epoch)
            for topic, partition, timestamp, epoch in targets
        ],
    )
    response = await service.list_offsets(request)
    return [(each.error_code, each.timestamp, each.offset, each.leader_epoch) for each in response.offsets]


async def test_special_timestamps(service):
    for isolation in (0, 1):
        found = await ask(service, *(("t", 0, timestamp, -1) for timestamp in (-1, -2, -3)), isolation=isolation)
        assert found == [(0, -1, 7, 0), (0, -1, 0, 0), (0, 400, 5, 0)]


async def test_by_timestamp(service):
    wanted = (0, 100, 101, 200, 260, 300, 301, 400, 401)
    found = await ask(service, *(("t", 0, timestamp, -1) for timestamp in wanted))
    first, second, third = (0, 100, 0, 0), (0, 300, 1, 0), (0, 400, 5, 0)
    assert found == [first, first, second, second, second, second, third, third, (0, -1, -1, -1)]


async def test_empty_partition(service):
    found = await ask(service, *(("t", 1, timestamp, -1) for timestamp in (-1, -2, -3, 5)))
    assert found == [(0, -1, 0, 0), (0, -1, 0, -1), (0, -1, -1, -1), (0, -1, -1, -1)]


async def test_errors(service):
    found = await ask(service, ("t", 9, -1, -1), ("nothing", 0, -1, -1), ("t", 0, -1, 1), ("t", 0, -9, -1))
    assert found == [(3, -1, -1, -1), (3, -1, -1, -1), (75, -1, -1, -1), (42, -1, -1, -1)]


async def test_an_open_transaction_ends_what_committed_readers_find(service):
    log = service._logs["t", 0]
    log.transactions.begin(7, 0)
    batch = build_batch(
        [Record(0, 500, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append(batch)
    wanted = [("t", 0, timestamp, -1) for timestamp in (-1, -3, 400, 450)]
    nothing = (0, -1, -1, -1)
    assert await ask(service, *wanted) == [(0, -1, 8, 0), (0, 500, 7, 0), (0, 400, 5, 0), (0, 500, 7, 0)]
    assert await ask(service, *wanted, isolation=1) == [(0, -1, 7, 0), nothing, (0, 400, 5, 0), nothing]
    log.transactions.end(7, 0, commit=True, coordinator_epoch=0)
    latest, largest = await ask(service, *wanted[:2], isolation=1)
    assert (latest, largest[2]) == ((0, -1, 9, 0), log.log_end_offset - 1)  # the marker, written by our clock
