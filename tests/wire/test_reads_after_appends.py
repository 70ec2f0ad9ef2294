"""A fetch finds the records of the produces before it on its connection, as in Kafka, which serves them one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.wire.conftest import Running, StartBroker, batch, fetch_request, produce_request
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

RECORDS = batch(b"x")


@pytest.fixture(params=["combined", "separate"])
async def broker(request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path) -> AsyncIterator[Running]:
    if request.param == "combined":
        yield await start_broker(flush_policy="os")
        return
    storage = RemoteStorage(tmp_path, flush_policy="os")
    await storage.start()
    async with gateway_of(storage, "one") as running:
        yield running
    await storage.stop()


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("count", [1, 300])
async def test_a_fetch_finds_the_records_of_produces_before_it(broker: Running, acks: int, count: int) -> None:
    wire = await broker.connect()
    # The first fetch decodes, later produces and fetches are recognised.
    for tried in range(4):
        begin = tried * count
        for _ in range(count):
            wire.send(0, 7, produce_request("single", RECORDS, acks=acks))
            if not acks:
                wire.sent.pop(wire.last_correlation_id)
        wire.send(1, 11, fetch_request("single", begin))
        for number in range(count if acks else 0):
            (row,) = (await wire.receive())[1].responses[0].partition_responses
            assert (row.error_code, row.base_offset) == (0, begin + number)
        _, answer = await wire.receive()
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == 0
        assert len(partition.records) == count * len(RECORDS)
