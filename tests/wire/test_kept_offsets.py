"""First and last offsets of a partition that a gateway in another process than storage keeps, and their changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gateway_svc.storage import kept_answers
from protocol_lib.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol_lib.messages.delete_topics import DeleteTopicsRequest
from storage_svc.log.partition.environment import DeletionReason

from tests.wire.conftest import Running, Wire, batch, produce
from tests.wire.test_list_offsets import listed
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

pytestmark = pytest.mark.event_loops("uvloop")
PLACE = ("single", 0)


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """Separate services with three records in a partition; answers are kept for longer than the tests take."""
    monkeypatch.setattr(kept_answers, "GOOD_S", 3600.0)
    storage = RemoteStorage(tmp_path)
    await storage.start()
    try:
        async with gateway_of(storage, "one") as broker:
            wire = await broker.connect()
            for number in range(3):
                assert await produce(wire, "single", batch(b"v"), acks=-1) == (0, number)
            yield broker
    finally:
        await storage.stop()


async def ends(wire: Wire) -> list[int]:
    """Return the first and the last offset, by two requests."""
    found = [await listed(wire, (*PLACE, timestamp)) for timestamp in (-2, -1)]
    assert [code for ((code, _),) in found] == [0, 0]
    return [offset for ((_, offset),) in found]


async def kept_ends(broker: Running, wire: Wire, expected: list[int]) -> None:
    """Ask until both offsets come without a call of storage, and for these offsets each time."""
    metrics = broker.gateway.metrics
    for _ in range(3):
        before = metrics.offsets_kept
        assert await ends(wire) == expected
        if metrics.offsets_kept == before + 2:
            return
    pytest.fail("storage was asked again and again")


async def test_all_connections_share_the_offsets(broker: Running) -> None:
    first, second = await broker.connect(), await broker.connect()
    await kept_ends(broker, first, [0, 3])
    before = broker.gateway.metrics.offsets_kept
    for _ in range(5):
        assert await ends(second) == [0, 3]
    assert broker.gateway.metrics.offsets_kept == before + 10


async def test_records_are_counted_as_soon_as_their_producer_knows_of_them(broker: Running) -> None:
    """With acks=1 that is before the sync, so before the high watermark moves."""
    producer, asking = await broker.connect(), await broker.connect()
    for number in range(3, 30):
        await kept_ends(broker, asking, [0, number])
        assert await produce(producer, "single", batch(b"v"), acks=1) == (0, number)
        assert await ends(asking) == [0, number + 1]


async def test_deleted_and_expired_records_move_the_first_offset(broker: Running) -> None:
    wire = await broker.connect()
    await kept_ends(broker, wire, [0, 3])
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsTopic(name="single", partitions=(partition,))
    response = await wire.call(21, 2, DeleteRecordsRequest(topics=(topic,), timeout_ms=5000))
    assert response.topics[0].partitions[0].error_code == 0
    assert await ends(wire) == [2, 3]
    log = broker.core.logs.logs[PLACE]
    log.roll(log.now_ms())
    await kept_ends(broker, wire, [2, 3])
    log.drop_oldest([DeletionReason.TIME])
    assert await ends(wire) == [3, 3]


async def test_a_deleted_topic_has_no_offsets(broker: Running) -> None:
    wire = await broker.connect()
    await kept_ends(broker, wire, [0, 3])
    response = await wire.call(20, 3, DeleteTopicsRequest(topic_names=("single",), timeout_ms=5000))
    assert response.responses[0].error_code == 0
    assert await listed(wire, (*PLACE, -1)) == [(3, -1)]
