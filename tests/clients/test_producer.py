"""The producer against real brokers: acknowledged records are in the log, in order, once."""

from __future__ import annotations

import asyncio

import pytest
from clients.proxy import KafkaProxy
from protocol_lib.api import ApiKey
from protocol_lib.client import BrokerError, Producer, RecordMetadata
from protocol_lib.client.errors import (
    ClientClosedError,
    MessageTooLargeError,
    UnknownTopicOrPartitionError,
)
from protocol_lib.records.batch import HEADER_SIZE
from protocol_lib.records.compression import Codec
from support.late import confluent


def read(bootstrap: str, topic: str, count: int) -> dict[int, list[confluent.Message]]:
    """Read `count` records with librdkafka, which checks their CRCs, and return them by partition."""
    client = confluent.Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "check.crcs": True})
    found: dict[int, list[confluent.Message]] = {}
    try:
        partitions = client.list_topics(topic, timeout=20).topics[topic].partitions
        client.assign([confluent.TopicPartition(topic, partition, 0) for partition in partitions])
        left = count
        while left:
            messages = client.consume(left, timeout=20)
            assert messages, f"{left} records missing"
            for message in messages:
                assert message.error() is None, message.error()
                found.setdefault(message.partition(), []).append(message)
            left -= len(messages)
    finally:
        client.close()
    return found


@pytest.mark.parametrize("codec", Codec)
async def test_records_are_in_the_log_as_sent(broker, codec):
    topic = await broker.topic()
    sent = [
        (b"key", b"value", 1_700_000_000_000, [("trace", b"1"), ("empty", None)]),
        (None, b"v" * 5000, 1_700_000_000_500, []),
        (b"tombstone", None, 1_600_000_000_000, []),
    ]
    async with Producer(broker.bootstrap, compression=codec) as producer:
        answers = [
            await producer.send(topic, value, key=key, timestamp_ms=timestamp, headers=headers)
            for key, value, timestamp, headers in sent
        ]
        placed = [await answer for answer in answers]

    assert placed == [RecordMetadata(topic, 0, offset, sent[offset][2]) for offset in range(3)]
    found = await asyncio.to_thread(read, broker.bootstrap, topic, 3)
    assert [(m.key(), m.value(), m.timestamp()[1], m.headers() or []) for m in found[0]] == sent


@pytest.mark.parametrize("acks", ["all", 1, 0])
async def test_many_records_over_many_partitions_of_many_topics(broker, acks):
    topics = [await broker.topic(partitions=3), await broker.topic(partitions=2)]
    async with Producer(broker.bootstrap, acks=acks, batch_bytes=600) as producer:
        for number in range(600):
            await producer.send(topics[number % 2], b"%d" % number, key=b"k%d" % (number % 7))
    for parity, topic in enumerate(topics):
        found = await asyncio.to_thread(read, broker.bootstrap, topic, 300)
        by_key: dict[bytes, list[int]] = {}
        for message in (message for messages in found.values() for message in messages):
            by_key.setdefault(message.key(), []).append(int(message.value()))
        assert by_key == {b"k%d" % key: [n for n in range(600) if n % 7 == key and n % 2 == parity] for key in range(7)}


async def test_one_request_carries_every_partition_of_a_broker(broker):
    topics = [await broker.topic(partitions=8), await broker.topic(partitions=4)]
    async with KafkaProxy(broker.bootstrap) as proxy, Producer(proxy.bootstrap, linger_ms=60_000) as producer:
        answers = [
            await producer.send(topic, b"x", partition=partition)
            for topic, partitions in zip(topics, (8, 4), strict=True)
            for partition in range(partitions)
        ]
        await producer.flush()
        assert [answer.result().offset for answer in answers] == [0] * 12
        assert proxy.sizes[ApiKey.PRODUCE][0] > 12 * HEADER_SIZE  # all of them in the first one


async def test_a_key_goes_where_librdkafka_sends_it(broker):
    topic = await broker.topic(partitions=7)
    keys = [b"key-%d" % number for number in range(50)]
    async with Producer(broker.bootstrap) as producer:
        ours = {key: (await producer.send_and_wait(topic, b"", key=key)).partition for key in keys[:5]}
        for key in keys[5:]:
            await producer.send(topic, b"", key=key)

    theirs: dict[bytes, int] = {}
    client = confluent.Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
    for key in ours:
        client.produce(
            topic, b"", key, on_delivery=lambda _, message: theirs.update({message.key(): message.partition()})
        )
    assert await asyncio.to_thread(client.flush, 20) == 0
    assert ours == theirs


async def test_a_record_too_large_for_the_topic_fails_alone(broker):
    topic = await broker.topic(max_message_bytes="2000")
    async with Producer(broker.bootstrap, batch_bytes=100_000, linger_ms=200) as producer:
        values = [b"a" * 900, b"b" * 900, b"c" * 5000, b"d" * 900, b"e" * 900]
        answers = [await producer.send(topic, value) for value in values]
        done = await asyncio.gather(*answers, return_exceptions=True)
        after = await producer.send_and_wait(topic, b"after")
    assert isinstance(done.pop(2), MessageTooLargeError)
    assert [each.offset for each in done] == [0, 1, 2, 3]
    assert after.offset == 4


async def test_a_topic_that_is_not_there(broker):
    async with Producer(broker.bootstrap, block_ms=300) as producer:
        topic = await broker.topic()
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send(topic, b"", partition=1)
        with pytest.raises(BrokerError, match="INVALID_TOPIC"):
            await producer.send("no/topic", b"")


async def test_memory_is_bounded(broker):
    topic = await broker.topic()
    async with Producer(broker.bootstrap, buffer_bytes=1000, linger_ms=50, block_ms=20_000) as producer:
        answers = [await producer.send(topic, b"x" * 300) for _ in range(50)]
        assert [(await answer).offset for answer in answers] == list(range(50))


async def test_records_sent_before_close_are_delivered_and_none_after(broker):
    topic = await broker.topic()
    producer = Producer(broker.bootstrap, linger_ms=60_000)
    await producer.start()
    answer = await producer.send(topic, b"x")
    await producer.close()
    assert answer.result().offset == 0
    with pytest.raises(ClientClosedError):
        await producer.send(topic, b"y")
    await producer.close()
