"""Fetch: more is never waited for than the answer may hold, or than there is to read."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

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


@pytest.mark.parametrize("epoch", [0, -1])
@pytest.mark.parametrize("version", [7, 17])
async def test_a_fetch_of_nothing_does_not_wait(start_broker: StartBroker, version: int, epoch: int) -> None:
    """A Java consumer ends its fetch session at its close: Apache Kafka waits for no records of no partition."""
    broker = await start_broker()
    wire = await broker.connect()
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, session_epoch=epoch, topics=())
    async with asyncio.timeout(20):
        response = await wire.call(1, version, request)
    assert (response.error_code, response.session_id, response.responses) == (0, 0, ())
    await wire.close()


async def test_the_end_of_a_session_does_not_wait(start_broker: StartBroker) -> None:
    """The request may name partitions to forget. Its session is gone then."""
    broker = await start_broker()
    wire = await broker.connect()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = (FetchTopic(topic="single", partitions=(partition,)),)
    first = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=0, topics=topics)
    opened = await wire.call(1, 11, first)
    assert (opened.error_code, opened.session_id > 0) == (0, True)
    last = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=opened.session_id,
        session_epoch=-1,
        topics=(),
        forgotten_topics_data=(ForgottenTopic(topic="single", partitions=(0,)),),
    )
    async with asyncio.timeout(20):
        closed = await wire.call(1, 11, last)
        assert (closed.error_code, closed.session_id, closed.responses) == (0, 0, ())
        again = await wire.call(1, 11, replace(last, session_epoch=1))
    assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    await wire.close()
