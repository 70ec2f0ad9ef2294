"""The consumer against real brokers, outside of groups: positions, limits, isolation."""

from __future__ import annotations

import asyncio

import pytest
from clients.proxy import KafkaProxy
from protocol_lib.api import ApiKey
from protocol_lib.client import Consumer, ConsumerRecord, OffsetAndMetadata, Producer, TopicPartition
from protocol_lib.client.errors import ClientClosedError, NoOffsetError
from protocol_lib.records.compression import Codec
from support.late import confluent

#: Limit of a poll for records that will arrive; it ends when they are there.
WAIT_MS = 30_000


async def fill(broker, topic: str, count: int, *, partition: int = 0, first: int = 0, **options: object) -> None:
    async with Producer(broker.bootstrap, **options) as producer:
        for number in range(first, first + count):
            await producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=1_000_000 + number * 10)


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until there are at least `count` records, and return them."""
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await consumer.poll(500)
    return found


def values(records: list[ConsumerRecord]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


@pytest.mark.parametrize("codec", Codec)
async def test_records_come_as_they_were_sent(broker, codec):
    topic = await broker.topic()
    async with Producer(broker.bootstrap, compression=codec) as producer:
        await producer.send(topic, b"v" * 3000, key=b"k", timestamp_ms=1234, headers=[("a", b"1"), ("b", None)])
        await producer.send(topic, None, key=None, timestamp_ms=1235)
    async with Consumer(broker.bootstrap) as consumer:
        await consumer.assign([(topic, 0)])
        consumer.seek_to_beginning(TopicPartition(topic, 0))
        assert await read(consumer, 2) == [
            ConsumerRecord(topic, 0, 0, 1234, b"k", b"v" * 3000, (("a", b"1"), ("b", None))),
            ConsumerRecord(topic, 0, 1, 1235, None, None, ()),
        ]
        assert await consumer.poll(50) == []


async def test_many_partitions_each_in_order_and_in_small_bites(broker):
    topic = await broker.topic(partitions=4)
    for partition in range(4):
        await fill(broker, topic, 150, partition=partition, first=1000 * partition, batch_bytes=400)
    limits = {"partition_fetch_bytes": 1000, "fetch_max_bytes": 2500, "fetch_max_wait_ms": 100}
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", **limits) as consumer:
        await consumer.assign([(topic, partition) for partition in range(4)])
        found: list[ConsumerRecord] = []
        while len(found) < 600:
            bite = await consumer.poll(WAIT_MS, records_max=7)
            assert 0 < len(bite) <= 7
            found += bite
    for partition in range(4):
        of_partition = [record for record in found if record.partition == partition]
        assert values(of_partition) == list(range(1000 * partition, 1000 * partition + 150))
        assert [record.offset for record in of_partition] == list(range(150))


async def test_positions(broker):
    topic = await broker.topic()
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 20)
    async with Consumer(broker.bootstrap, auto_offset_reset="latest") as consumer:
        await consumer.assign([partition])
        assert await consumer.position(partition) == 20
        consumer.seek(partition, 13)  # inside a batch
        assert values(await consumer.poll(WAIT_MS, records_max=3)) == [13, 14, 15]
        assert await consumer.position(partition) == 16
        consumer.seek_to_beginning(partition)
        assert values(await consumer.poll(WAIT_MS, records_max=1)) == [0]
        consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 20  # the end as it is now
        await fill(broker, topic, 1, first=20)
        assert values(await read(consumer, 1)) == [20]
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 21}
        at = await consumer.offsets_for_times({partition: 1_000_101})
        assert (at[partition].offset, at[partition].timestamp) == (11, 1_000_110)
        assert await consumer.offsets_for_times({partition: 2_000_000}) == {partition: None}


async def test_records_fetched_before_a_seek_are_not_handed_over(broker):
    topic = await broker.topic()
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 10)
    async with KafkaProxy(broker.bootstrap) as proxy, Consumer(proxy.bootstrap, fetch_max_wait_ms=10_000) as consumer:
        await consumer.assign([partition])
        async with asyncio.timeout(30):
            while proxy.requests[ApiKey.FETCH] == 0:  # until it waits at the end of the log
                assert await consumer.poll(100) == []
        consumer.seek(partition, 3)
        await fill(broker, topic, 1, first=10)
        assert values(await read(consumer, 8)) == [3, 4, 5, 6, 7, 8, 9, 10]


async def test_a_paused_partition_waits_without_loss(broker):
    topic = await broker.topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await fill(broker, topic, 5, partition=0)
    await fill(broker, topic, 5, partition=1, first=100)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([first, second])
        consumer.pause(first)
        assert values(await read(consumer, 5)) == [100, 101, 102, 103, 104]
        assert await consumer.poll(50) == []
        consumer.resume(first)
        assert values(await read(consumer, 5)) == [0, 1, 2, 3, 4]


async def test_a_position_outside_the_log_starts_over_or_is_an_error(broker):
    topic = await broker.topic()
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 3)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([partition])
        consumer.seek(partition, 1000)
        assert values(await read(consumer, 3)) == [0, 1, 2]
    async with Consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        await consumer.assign([partition])
        with pytest.raises(NoOffsetError, match="no committed offset"):
            await consumer.poll(WAIT_MS)
        consumer.seek(partition, 1000)
        with pytest.raises(NoOffsetError, match="1000 is not in the log"):
            await consumer.poll(WAIT_MS)
        consumer.seek(partition, 2)
        assert values(await consumer.poll(WAIT_MS)) == [2]


async def test_a_consumer_without_a_position_commits_none(broker):
    topic, group = await broker.topic(), broker.name("group")
    partition = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap, group_id=group, auto_offset_reset="none") as consumer:
        await consumer.subscribe([topic])
        for _ in range(2):
            with pytest.raises(NoOffsetError, match="no committed offset"):
                await consumer.poll(WAIT_MS)
        await consumer.commit()
        assert await consumer.committed([partition]) == {partition: None}
    async with Consumer(broker.bootstrap, group_id=group) as consumer:
        assert await consumer.committed([partition]) == {partition: None}


async def test_a_group_without_members_has_offsets_too(broker):
    topic, group = await broker.topic(), broker.name("group")
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 10)
    async with Consumer(broker.bootstrap, group_id=group, auto_commit=False) as consumer:
        assert await consumer.committed([partition]) == {partition: None}
        await consumer.assign([partition])
        await consumer.commit({partition: OffsetAndMetadata(4, "so far")})
        assert (await consumer.committed([partition]))[partition].metadata == "so far"
    async with Consumer(broker.bootstrap, group_id=group) as consumer:
        await consumer.assign([partition])
        assert values(await consumer.poll(WAIT_MS, records_max=2)) == [4, 5]  # close commits
    async with Consumer(broker.bootstrap, group_id=group) as consumer:
        assert (await consumer.committed([partition]))[partition].offset == 6


async def test_iteration_hands_over_one_record_at_a_time(broker):
    topic = await broker.topic()
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 10)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([partition])
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            assert await consumer.position(partition) == record.offset + 1
            if len(seen) == 10:
                break
        assert seen == list(range(10))


async def test_polls_that_do_not_wait_let_other_tasks_run(broker):
    topic = await broker.topic()
    await fill(broker, topic, 2000)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign([(topic, 0)])
        seen = 0
        while seen < 2000:  # other tasks find the position, connect and fetch
            seen += len(await consumer.poll(0, records_max=1))


async def test_a_poll_that_is_cancelled_loses_nothing(broker):
    topic = await broker.topic()
    await fill(broker, topic, 200)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        partition = TopicPartition(topic, 0)
        await consumer.assign([partition])
        found = await consumer.poll(WAIT_MS, records_max=1)
        while await consumer.position(partition) < 200:
            await asyncio.sleep(0.006)  # long enough that the next poll lets other tasks run
            polling = asyncio.create_task(consumer.poll(WAIT_MS, records_max=10))
            await asyncio.sleep(0)
            polling.cancel()
            await asyncio.wait([polling])
            if not polling.cancelled():
                found += polling.result()
            found += await consumer.poll(records_max=10)
    assert values(found) == list(range(200))


async def test_a_closed_consumer(broker):
    consumer = Consumer(broker.bootstrap)
    await consumer.start()
    await consumer.close()
    with pytest.raises(ClientClosedError):
        await consumer.poll()
    assert [record async for record in consumer] == []
    await consumer.close()


async def test_an_idle_fetch_says_only_what_changed(broker):
    """Sessions: while nothing arrives, a fetch names no partition, and later records are found all the same."""
    topic = await broker.topic(partitions=3)
    async with (
        KafkaProxy(broker.bootstrap) as proxy,
        Consumer(proxy.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20) as consumer,
    ):
        await consumer.assign([(topic, partition) for partition in range(3)])
        await fill(broker, topic, 3, partition=1)
        assert values(await read(consumer, 3)) == [0, 1, 2]
        asked = proxy.requests[ApiKey.FETCH]
        while proxy.requests[ApiKey.FETCH] < asked + 3:  # one of the next two carries the new position
            await consumer.poll(20)
        proxy.sizes[ApiKey.FETCH].clear()
        while len(proxy.sizes[ApiKey.FETCH]) < 3:
            await consumer.poll(20)
        assert max(proxy.sizes[ApiKey.FETCH]) < 60  # the header and no partition
        await fill(broker, topic, 2, partition=2, first=50)
        assert values(await read(consumer, 2)) == [50, 51]


async def test_read_committed_hands_over_committed_records(broker):
    await broker.needs(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN)
    topic = await broker.topic()

    def write() -> None:
        clients = [
            confluent.Producer(
                {"bootstrap.servers": broker.bootstrap, "transactional.id": broker.name("txn"), "linger.ms": 0}
            )
            for _ in range(2)
        ]
        for client in clients:
            client.init_transactions(20)
            client.begin_transaction()
        for number in range(6):
            clients[number % 2].produce(topic, b"%d" % number)
            clients[number % 2].flush(20)
        clients[0].abort_transaction(20)
        clients[0].begin_transaction()
        clients[0].produce(topic, b"6")
        clients[0].flush(20)
        clients[1].commit_transaction(20)
        clients[0].commit_transaction(20)
        clients[1].begin_transaction()
        clients[1].produce(topic, b"7")  # still open
        clients[1].flush(20)

    await asyncio.to_thread(write)
    partition = TopicPartition(topic, 0)
    reset = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
    async with Consumer(broker.bootstrap, isolation_level="read_committed", **reset) as consumer:
        await consumer.assign([partition])
        assert values(await read(consumer, 4)) == [1, 3, 5, 6]
        assert await consumer.poll(100) == []
        assert await consumer.end_offsets([partition]) == {partition: await consumer.position(partition)}
    async with Consumer(broker.bootstrap, **reset) as consumer:
        await consumer.assign([partition])
        assert values(await read(consumer, 8)) == list(range(8))
