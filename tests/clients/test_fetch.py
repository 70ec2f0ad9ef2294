"""Fetches without a consumer: sizes, isolation, waits, and the memory of large answers."""

from __future__ import annotations

import asyncio

import pytest
from clients.conftest import RunningBroker
from protocol_lib.client import (
    Cluster,
    Connection,
    FetchedPartition,
    Producer,
    ResponseTooLargeError,
    TopicPartition,
    fetch,
)
from protocol_lib.errors import ErrorCode
from protocol_lib.records.compression import Codec


@pytest.fixture
async def filled(broker: RunningBroker) -> str:
    """A topic: ten records of 1,000 bytes in partition 0, each a batch, and two in partition 1, compressed."""
    topic = await broker.topic("fetched", 2)
    async with Producer(broker.settings(), linger_ms=0) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number * 1000, partition=0)
    async with Producer(broker.settings(), compression=Codec.GZIP, linger_ms=60_000) as producer:
        sent = [await producer.send(topic, b"b", key=b"k", partition=1) for _ in range(2)]
        await producer.flush()
        assert [each.result().offset for each in sent] == [0, 1]
    return topic


@pytest.fixture
async def connection(cluster: Cluster, filled: str) -> Connection:
    await cluster.topic(filled)
    return await cluster.connection(cluster.leader(TopicPartition(filled, 0)))


def offsets(fetched: FetchedPartition) -> list[int]:
    assert fetched.error_code == 0
    return [record.offset for batch, is_visible in fetched.batches() if is_visible for record in batch.records()]


async def test_partitions_from_their_offsets(connection: Connection, filled: str) -> None:
    found = {each.partition: each for each in await fetch(connection, filled, {0: 7, 1: 1}, bytes_max=1 << 20)}
    assert offsets(found[0]) == [7, 8, 9]
    assert offsets(found[1]) == [0, 1]  # of the batch that has 1
    assert (found[0].high_watermark, found[1].high_watermark) == (10, 2)
    (batch, _), *_ = found[1].batches()
    assert (batch.base_offset, batch.last_offset, batch.is_plain) == (0, 1, False)


async def test_an_answer_keeps_its_limit_but_for_the_first_batch(connection: Connection, filled: str) -> None:
    (one,) = await fetch(connection, filled, {0: 4}, bytes_max=1)
    assert offsets(one) == [4]
    (some,) = await fetch(connection, filled, {0: 4}, bytes_max=3300)
    assert offsets(some) == [4, 5, 6]
    assert len(some.data) <= 3300


async def test_error_codes_are_values(connection: Connection, filled: str) -> None:
    (fetched,) = await fetch(connection, filled, {0: 99}, bytes_max=1)
    assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    (fetched,) = await fetch(connection, filled, {9: 0}, bytes_max=1)
    assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_fetch_waits_for_records(broker: RunningBroker, connection: Connection, filled: str) -> None:
    (nothing,) = await fetch(connection, filled, {0: 10}, bytes_max=1000, wait_ms=1)
    assert (nothing.error_code, len(nothing.data)) == (0, 0)
    waits = asyncio.create_task(fetch(connection, filled, {0: 10}, bytes_max=1000, wait_ms=20_000))
    async with Producer(broker.settings()) as producer:
        await producer.send_and_wait(filled, b"new", partition=0)
    (fetched,) = await waits
    assert offsets(fetched) == [10]


async def test_aborted_records_are_marked(broker: RunningBroker, connection: Connection, filled: str) -> None:
    from confluent_kafka import Producer as Transactional

    def abort() -> None:
        producer = Transactional({"bootstrap.servers": broker.bootstrap, "transactional.id": filled})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(filled, b"no", partition=1)
        producer.flush()
        producer.abort_transaction()

    await asyncio.to_thread(abort)
    position = {1: 2}
    marked: list[tuple[int, bool]] = []
    while len(marked) < 2:  # brokers write the marker after their answer
        (committed,) = await fetch(connection, filled, position, bytes_max=1 << 20, read_committed=True, wait_ms=100)
        marked = [(batch.base_offset, is_visible) for batch, is_visible in committed.batches()]
    assert marked == [(2, False), (3, False)]
    (uncommitted,) = await fetch(connection, filled, {1: 0}, bytes_max=1 << 20)
    assert offsets(uncommitted) == [0, 1, 2]


async def test_an_answer_above_the_limit(broker: RunningBroker, connection: Connection, filled: str) -> None:
    small = await Connection.open(connection.address, broker.settings(response_bytes_max=4000))
    (fetched,) = await fetch(small, filled, {0: 0}, bytes_max=1)
    assert offsets(fetched) == [0]
    with pytest.raises(ResponseTooLargeError):
        await fetch(small, filled, {0: 0}, bytes_max=1 << 20)
    assert not small.is_open


async def test_no_large_answer_is_received_before_there_is_room(broker: RunningBroker, connection: Connection) -> None:
    topic = await broker.topic("large")
    async with Producer(broker.settings()) as producer:
        await producer.send_and_wait(topic, b"x" * 500_000)
    asked: asyncio.Queue[int] = asyncio.Queue()
    there_is_room = asyncio.Event()

    async def room(size: int) -> None:
        asked.put_nowait(size)
        await there_is_room.wait()

    large = await Connection.open(connection.address, broker.settings(), room=room)
    waits = asyncio.create_task(fetch(large, topic, {0: 0}, bytes_max=1))
    assert 500_000 < await asked.get() < 500_500
    await asyncio.sleep(0.1)
    assert not waits.done()
    there_is_room.set()
    (fetched,) = await waits
    assert [len(record.value or b"") for batch, _ in fetched.batches() for record in batch.records()] == [500_000]
    (again,) = await fetch(large, topic, {0: 1}, bytes_max=1)
    assert offsets(again) == []
    assert asked.empty()
    large.close()


async def test_a_connection_that_closes_while_it_waits_for_room(broker: RunningBroker, connection: Connection) -> None:
    topic = await broker.topic("large")
    async with Producer(broker.settings()) as producer:
        await producer.send_and_wait(topic, b"x" * 500_000)
    begun, left = asyncio.Event(), asyncio.Event()

    async def room(_size: int) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    large = await Connection.open(connection.address, broker.settings(), room=room)
    waits = asyncio.create_task(fetch(large, topic, {0: 0}, bytes_max=1))
    await begun.wait()
    large.close()
    with pytest.raises(Exception, match="closed"):
        await waits
    await left.wait()
