"""aiokafka's transactional producer (transaction.version 1) against Apache Kafka and Millrace: the same outcomes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from support.late import aiokafka

from tests.clients.conftest import RunningBroker


@contextlib.asynccontextmanager
async def producing(
    broker: RunningBroker, name: str, timeout_ms: int = 60_000
) -> AsyncIterator[aiokafka.AIOKafkaProducer]:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=name, transaction_timeout_ms=timeout_ms
    )
    await producer.start()
    try:
        yield producer
    finally:
        with contextlib.suppress(aiokafka.errors.KafkaError):  # a fenced one cannot end what it began
            await producer.stop()


async def values(broker: RunningBroker, topic: str, count: int, isolation_level: str = "read_committed") -> list[bytes]:
    """Return the first records of partition 0."""
    found: list[bytes] = []
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level=isolation_level, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        async with asyncio.timeout(60):
            while len(found) < count:
                found.append((await consumer.getone()).value)
    return found


async def until_end(broker: RunningBroker, topic: str, offset: int) -> None:
    """Wait until partition 0 ends at an offset, as it does when markers have come."""
    here = aiokafka.TopicPartition(topic, 0)
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap) as consumer, asyncio.timeout(60):
        while True:
            if (await consumer.end_offsets([here]))[here] >= offset:
                return
            await asyncio.sleep(0.02)


async def until_committed(broker: RunningBroker, group: str, topic: str, offset: int) -> None:
    """Wait until a group has committed an offset; the marker of a commit comes after its answer."""
    async with (
        aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
        ) as consumer,
        asyncio.timeout(60),
    ):
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        while True:
            if (await consumer.committed(aiokafka.TopicPartition(topic, 0)) or 0) == offset:
                return
            await asyncio.sleep(0.02)


async def test_committed_records_are_seen_and_aborted_ones_are_not(broker: RunningBroker) -> None:
    topic = await broker.topic()
    async with producing(broker, broker.name("id")) as producer:
        for value, must_abort in ((b"one", False), (b"lost", True), (b"two", False)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, partition=0)
            await (producer.abort_transaction() if must_abort else producer.commit_transaction())
    assert await values(broker, topic, 2) == [b"one", b"two"]
    assert await values(broker, topic, 3, "read_uncommitted") == [b"one", b"lost", b"two"]


async def test_a_second_producer_fences_the_first_and_aborts_what_it_began(broker: RunningBroker) -> None:
    topic, name = await broker.topic(), broker.name("id")
    async with producing(broker, name) as first:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"lost", partition=0)
        async with producing(broker, name) as second:
            with pytest.raises(aiokafka.errors.ProducerFenced):
                await first.commit_transaction()
            async with second.transaction():
                await second.send_and_wait(topic, b"kept", partition=0)
    assert await values(broker, topic, 1) == [b"kept"]


async def test_a_transaction_that_has_timed_out_is_aborted_and_its_producer_refused(broker: RunningBroker) -> None:
    topic, name = await broker.topic(), broker.name("id")
    async with (
        producing(broker, name, timeout_ms=2_000) as first,
        producing(broker, f"{name}-of-send", timeout_ms=2_000) as second,
    ):
        for producer in (first, second):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"lost", partition=0)
        await until_end(broker, topic, 4)  # two records, two markers
        with pytest.raises(aiokafka.errors.ProducerFenced):
            await first.commit_transaction()
        with pytest.raises(aiokafka.errors.ProducerFenced):
            await second.send_and_wait(topic, b"late", partition=0)
    async with producing(broker, name) as successor, successor.transaction():
        await successor.send_and_wait(topic, b"kept", partition=0)
    assert await values(broker, topic, 1) == [b"kept"]
    assert await values(broker, topic, 3, "read_uncommitted") == [b"lost", b"lost", b"kept"]


async def test_offsets_are_committed_with_the_records_or_not_at_all(broker: RunningBroker) -> None:
    source, copy, group = await broker.topic("source"), await broker.topic("copy"), broker.name("group")
    here = aiokafka.TopicPartition(source, 0)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as filler:
        for number in range(6):
            await filler.send_and_wait(source, b"%d" % number, partition=0)
    async with producing(broker, broker.name("id")) as producer:
        for start, must_abort in ((0, False), (3, True), (3, False)):
            # What an aborted transaction has read is read again from the committed offset.
            await until_committed(broker, group, source, start)
            await producer.begin_transaction()
            for value in (await values(broker, source, 6))[start : start + 3]:
                await producer.send_and_wait(copy, value, partition=0)
            await producer.send_offsets_to_transaction({here: start + 3}, group)
            await (producer.abort_transaction() if must_abort else producer.commit_transaction())
    await until_committed(broker, group, source, 6)
    assert await values(broker, copy, 6) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert len(await values(broker, copy, 9, "read_uncommitted")) == 9
