"""Fetch: more is never waited for than the answer may hold."""

from __future__ import annotations

import asyncio

import pytest
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic

from tests.wire.conftest import StartBroker, batch, produce


@pytest.mark.parametrize("sees_files", [True, False])
async def test_min_bytes_above_max_bytes(start_broker: StartBroker, sees_files: bool) -> None:
    """Ten batches are there: a client that wants eight of at most four gets these at once, as from Apache Kafka."""
    broker = await start_broker(**({} if sees_files else {"gateway_data_dir": ""}))
    wire = await broker.connect()
    records = batch(bytes(50_000))
    for _ in range(10):
        await produce(wire, "single", records, acks=-1)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = (FetchTopic(topic="single", partitions=(partition,)),)
    request = FetchRequest(max_wait_ms=20_000, min_bytes=8 * len(records), max_bytes=4 * len(records), topics=topics)
    async with asyncio.timeout(60):
        response = await wire.call(1, 11, request)
    ((answer,),) = (topic.partitions for topic in response.responses)
    assert (answer.error_code, len(answer.records)) == (0, 4 * len(records))
    await wire.close()
