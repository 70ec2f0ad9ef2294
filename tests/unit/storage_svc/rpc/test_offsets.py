"""Offsets by timestamp and by leader epoch, and records deleted, through the offsets service."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest
from broker_contract import data_pb2
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.transaction_end import end_transaction
from storage_svc.rpc import offsets
from storage_svc.rpc.offsets import OffsetsService


@pytest.fixture
async def service(tmp_path):
    directory = DataFolder.open(tmp_path, LogSettings(flush_policy=FlushPolicy.OS))
    log, *_ = directory.create_many("t", range(2), bytes(16), LogConfig(segment_bytes=130))
    for times in ((100, 300, 200), (250, 250), (400, 150)):
        log.append(build_batch([Record(n, t, b"k", b"v") for n, t in enumerate(times)], codec=Codec.GZIP))
    directory.start(asyncio.get_running_loop())
    service = OffsetsService(directory)
    yield service
    directory.check_invariants()
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
    assert found == [(0, -1, 0, 0), (0, -1, 0, 0), (0, -1, -1, -1), (0, -1, -1, -1)]


async def test_errors(service):
    found = await ask(service, ("t", 9, -1, -1), ("nothing", 0, -1, -1), ("t", 0, -1, 1), ("t", 0, -9, -1))
    assert found == [(3, -1, -1, -1), (3, -1, -1, -1), (75, -1, -1, -1), (42, -1, -1, -1)]


async def test_an_open_transaction_ends_what_committed_readers_find(service):
    log = service._logs["t", 0]
    batch = build_batch(
        [Record(0, 500, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append(batch)
    wanted = [("t", 0, timestamp, -1) for timestamp in (-1, -3, 400, 450)]
    nothing = (0, -1, -1, -1)
    assert await ask(service, *wanted) == [(0, -1, 8, 0), (0, 500, 7, 0), (0, 400, 5, 0), (0, 500, 7, 0)]
    assert await ask(service, *wanted, isolation=1) == [(0, -1, 7, 0), nothing, (0, 400, 5, 0), nothing]
    end_transaction(log, 7, 0, commit=True, coordinator_epoch=0)
    latest, largest = await ask(service, *wanted[:2], isolation=1)
    assert (latest, largest[2]) == ((0, -1, 9, 0), log.log_end_offset - 1)  # the marker, written by our clock


async def test_a_record_found_below_the_log_start_does_not_end_the_search(service):
    """The batch of 300 ends at offset 2, but its young record is deleted."""
    assert await delete(service, ("t", 0, 2)) == [(0, 2)]
    assert await ask(service, ("t", 0, 150, -1), ("t", 0, 300, -1)) == [(0, 200, 2, 0), (0, 400, 5, 0)]


async def starts(service, timestamp, count):
    target = data_pb2.ListOffsetsRequest.Target
    request = data_pb2.ListOffsetsRequest(
        targets=[target(topic="t", partition=0, timestamp=timestamp, segment_starts_max=count, current_leader_epoch=-1)]
    )
    (found,) = (await service.list_offsets(request)).offsets
    return list(found.segment_starts)


async def test_starts_of_segments(tmp_path, service):
    """ListOffsets version 0. The log's segments begin at 0, 3 and 5."""
    for base, modified_s in ((0, 1000), (3, 2000), (5, 3000)):
        os.utime(tmp_path / f"t-0/{base:020d}.log", (modified_s, modified_s))
    assert await starts(service, -1, 10) == [7, 5, 3, 0]
    assert await starts(service, -1, 2) == [7, 5]
    assert await starts(service, -2, 10) == [0]
    assert await starts(service, 2_000_000, 10) == [3, 0]
    assert await starts(service, 1_999_999, 10) == [0]
    assert await starts(service, 0, 10) == []
    await delete(service, ("t", 0, 4))
    assert await starts(service, -1, 10) == [7, 5, 4]


async def test_the_end_of_an_epoch(service):
    log = service._logs["t", 0]
    log.begin_leader_epoch(4)
    log.append(build_batch([Record(0, 1, b"k", b"v")]))
    log.begin_leader_epoch(6)  # nothing is appended under it yet

    async def ends(*epochs, current=-1):
        target = data_pb2.EndEpochsRequest.Target
        targets = [target(topic="t", partition=0, leader_epoch=each, current_leader_epoch=current) for each in epochs]
        answer = await service.end_epochs(data_pb2.EndEpochsRequest(targets=targets))
        return [(each.error_code, each.leader_epoch, each.end_offset) for each in answer.ends]

    assert await ends(0, 1, 3) == [(0, 0, 7)] * 3
    assert await ends(4, 5, 6) == [(0, 4, 8), (0, 5, 8), (0, 6, 8)]
    assert await ends(7, -1) == [(0, -1, -1)] * 2
    assert await ends(0, current=5) == [(74, -1, -1)]
    assert await ends(0, current=7) == [(75, -1, -1)]


async def delete(service, *targets):
    target = data_pb2.DeleteRecordsRequest.Target
    request = data_pb2.DeleteRecordsRequest(
        targets=[target(topic=topic, partition=partition, offset=offset) for topic, partition, offset in targets]
    )
    answer = await service.delete_records(request)
    return [(each.error_code, each.log_start_offset) for each in answer.partitions]


async def test_deleted_records_stay_deleted_after_a_crash(tmp_path, service):
    assert await delete(service, ("t", 0, 4)) == [(0, 4)]
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 4\n"
    logs = sorted(path.name for path in (tmp_path / "t-0").glob("*.log*"))
    assert logs == ["00000000000000000000.log.deleted", "00000000000000000003.log", "00000000000000000005.log"]
    assert await ask(service, ("t", 0, -2, -1), ("t", 0, 0, -1)) == [(0, -1, 4, 0), (0, 250, 4, 0)]
    crashed = tmp_path.with_name(f"{tmp_path.name}-crashed")
    shutil.copytree(tmp_path, crashed, ignore=shutil.ignore_patterns(".lock"))
    again = DataFolder.open(crashed, LogSettings(flush_policy=FlushPolicy.OS))
    assert [log.log_start_offset for log in again.logs.values()] == [4, 0]
    again.release()


async def test_deleting_up_to_the_high_watermark_and_below_the_start(service):
    assert await delete(service, ("t", 0, -1), ("t", 0, 3), ("t", 0, 7)) == [(0, 7)] * 3
    assert await ask(service, ("t", 0, -2, -1), ("t", 0, -1, -1)) == [(0, -1, 7, 0)] * 2


async def test_what_cannot_be_deleted(service):
    log = service._logs["t", 0]
    found = await delete(service, ("t", 0, 8), ("t", 0, -2), ("t", 9, 0), ("__consumer_offsets", 0, 0))
    assert found == [(1, -1), (1, -1), (3, -1), (17, -1)]
    log.configure(LogConfig.from_properties({"cleanup.policy": "compact"}))
    assert await delete(service, ("t", 0, 1)) == [(44, -1)]
    for start, policy in enumerate(("compact,delete", ""), 1):
        log.configure(LogConfig.from_properties({"cleanup.policy": policy}))
        assert await delete(service, ("t", 0, start)) == [(0, start)]
    log.take_offline("its disk is gone")
    assert await delete(service, ("t", 0, 3)) == [(56, -1)]
    assert log.log_start_offset == 2


async def test_a_deletion_that_cannot_be_stored_is_not_confirmed(tmp_path, service):
    (tmp_path / "log-start-offset-checkpoint").mkdir()
    assert await delete(service, ("t", 0, 4), ("t", 9, 0)) == [(56, -1), (3, -1)]
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 3
    (tmp_path / "log-start-offset-checkpoint").rmdir()
    assert await delete(service, ("t", 0, 4)) == [(0, 4)]


# -- acknowledged with acks=1, and not synced yet ----------------------------------------------------------------------


@pytest.fixture
async def syncing(tmp_path):
    """A service over logs whose appends are acknowledged before their sync, and the function that starts syncing."""
    directory = DataFolder.open(tmp_path, LogSettings(flush_policy=FlushPolicy.GROUP))
    directory.create_many("t", range(2), bytes(16), LogConfig())
    begin = [directory.start]
    yield OffsetsService(directory), directory, lambda: begin.pop()(asyncio.get_running_loop())
    for start in begin:
        start(asyncio.get_running_loop())
    await directory.close()


def append(directory, value=b"v", timestamp=100):
    log = directory.logs["t", 0]
    appended = log.append(build_batch([Record(0, timestamp, b"k", value)]))
    assert (appended.error_code, log.high_watermark) == (0, appended.base_offset)


async def epoch_ends(service):
    target = data_pb2.EndEpochsRequest.Target(topic="t", partition=0, leader_epoch=0, current_leader_epoch=-1)
    (end,) = (await service.end_epochs(data_pb2.EndEpochsRequest(targets=[target]))).ends
    return end.error_code, end.leader_epoch, end.end_offset


async def test_the_answer_covers_all_that_was_appended_before_the_request(syncing):
    service, directory, start = syncing
    start()
    append(directory)
    wanted = [("t", 0, timestamp, -1) for timestamp in (-1, 50, -3, -2)] + [("t", 1, -1, -1), ("t", 9, -1, -1)]
    record, none_yet = (0, 100, 0, 0), (0, -1, 0, 0)
    assert await ask(service, *wanted) == [(0, -1, 1, 0), record, record, none_yet, none_yet, (3, -1, -1, -1)]
    append(directory)
    assert await epoch_ends(service) == (0, 0, 2)
    append(directory)
    assert await delete(service, ("t", 0, 3)) == [(0, 3)]
    append(directory)
    assert await delete(service, ("t", 0, -1)) == [(0, 4)]


async def test_a_sync_that_takes_too_long(syncing, monkeypatch):
    service, directory, _ = syncing
    monkeypatch.setattr(offsets, "SYNC_WAIT_S", 0.05)
    append(directory)
    wanted = [("t", 0, -1, -1), ("t", 0, 50, -1), ("t", 0, -2, -1), ("t", 1, -1, -1)]
    missing = (78, -1, -1, -1)
    assert await ask(service, *wanted) == [missing, missing, (0, -1, 0, 0), (0, -1, 0, 0)]
    assert await epoch_ends(service) == (78, -1, -1)
    assert await delete(service, ("t", 0, 1), ("t", 1, 0)) == [(7, -1), (0, 0)]


async def test_nobody_waits_for_a_log_that_is_offline(syncing, monkeypatch):
    service, directory, _ = syncing
    monkeypatch.setattr(offsets, "SYNC_WAIT_S", 600.0)
    append(directory)
    asyncio.get_running_loop().call_later(0.05, directory.logs["t", 0].take_offline, "its disk is gone")
    assert await ask(service, ("t", 0, -1, -1)) == [(0, -1, 0, 0)]
    assert await ask(service, ("t", 0, -1, -1)) == [(0, -1, 0, 0)]


async def test_records_whose_deletion_is_stored_are_gone_though_its_caller_has_gone(service, monkeypatch):
    """Otherwise the next start would delete them: long after, and records of others are gone then."""
    stored, begun = asyncio.Event(), asyncio.Event()
    store = service._directory.checkpoints.store

    async def slow(name):
        begun.set()
        await stored.wait()
        return await store(name)

    monkeypatch.setattr(service._directory.checkpoints, "store", slow)
    target = data_pb2.DeleteRecordsRequest.Target(topic="t", partition=0, offset=4)
    calling = asyncio.create_task(service.delete_records(data_pb2.DeleteRecordsRequest(targets=[target])))
    await begun.wait()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    (deleting,) = service._beginning
    stored.set()
    assert await deleting
    assert service._directory.logs["t", 0].log_start_offset == 4
