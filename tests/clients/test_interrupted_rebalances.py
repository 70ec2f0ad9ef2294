"""Polls that are cancelled and subscriptions that change during a rebalance: every partition still has one reader."""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest
from clients.test_groups import QUICK, Diary, partitions_of, reading, until
from protocol_lib.client import Consumer, CooperativeStickyAssignor, Producer, RangeAssignor, TopicPartition


class Slow(Diary):
    """A listener whose `on_revoked` sleeps, and notes calls that overlap."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.running = 0
        self.running_max = 0
        self._seconds = seconds

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await super().on_revoked(partitions)
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        await asyncio.sleep(self._seconds)
        self.running -= 1


@pytest.mark.parametrize("seconds", [0.2, 1.0])
@pytest.mark.parametrize("assignor", [CooperativeStickyAssignor(), RangeAssignor()], ids=lambda each: each.name)
async def test_cancelled_polls_leave_no_partition_without_a_reader(broker, assignor, seconds):
    topic, group = await broker.topic(partitions=4), broker.name("group")
    options = {"assignors": [assignor]}
    slow = Slow(seconds)
    found: dict[int, list[int]] = {partition: [] for partition in range(4)}
    settings = QUICK | options | {"auto_offset_reset": "earliest"}
    async with Consumer(broker.bootstrap, group_id=group, **settings) as impatient:
        await impatient.subscribe([topic], slow)

        async def poll_impatiently() -> None:
            while True:
                with contextlib.suppress(TimeoutError):
                    for record in await asyncio.wait_for(impatient.poll(500), 0.05):
                        found[record.partition].append(int(record.value or b"-1"))

        polling = asyncio.create_task(poll_impatiently())
        await until(lambda: len(impatient.assignment()) == 4)
        async with reading(broker, group, [topic], **options) as patient:
            await until(lambda: len(impatient.assignment()) == len(patient.owned) == 2)
            async with Producer(broker.bootstrap) as producer:
                for number in range(40):
                    await producer.send(topic, b"%d" % number, partition=number % 4)
            await until(lambda: sum(map(len, found.values())) + len(patient.records) == 40)
            for record in patient.records:
                found[record.partition].append(int(record.value or b"-1"))
            assert found == {partition: list(range(partition, 40, 4)) for partition in range(4)}
            revoked = [partitions for kind, partitions in slow.entries if kind == "revoked"]
            expected = (
                patient.owned if isinstance(assignor, CooperativeStickyAssignor) else partitions_of(topic, *range(4))
            )
            assert (revoked, slow.running_max) == ([expected], 1)
            assert not polling.done()
        polling.cancel()
        await asyncio.wait({polling})


@pytest.mark.parametrize("assignor", [CooperativeStickyAssignor(), RangeAssignor()], ids=lambda each: each.name)
@pytest.mark.parametrize("wait_s", [None, 0, 0.0005, 0.005])
async def test_a_subscription_during_a_join_holds(broker, assignor, wait_s):
    first, second, group = await broker.topic(), await broker.topic(), broker.name("group")
    async with Consumer(broker.bootstrap, group_id=group, assignors=[assignor], **QUICK) as consumer:
        await consumer.subscribe([first])
        await consumer.poll(0)
        if wait_s is not None:
            await asyncio.sleep(wait_s)
        await consumer.subscribe([second])
        async with asyncio.timeout(60):
            while consumer.assignment() != partitions_of(second, 0):
                await consumer.poll(50)
        for _ in range(5):
            await consumer.poll(20)
            assert consumer.assignment() == partitions_of(second, 0)


async def test_a_pattern_instead_of_topics_during_a_join_holds(broker):
    first, second, group = await broker.topic("one"), await broker.topic("two"), broker.name("group")
    async with Consumer(broker.bootstrap, group_id=group, **QUICK) as consumer:
        await consumer.subscribe([first])
        await consumer.poll(0)
        await consumer.subscribe(re.compile(re.escape(second)))
        async with asyncio.timeout(60):
            while consumer.assignment() != partitions_of(second, 0):
                await consumer.poll(50)


@pytest.mark.parametrize("assignor", [CooperativeStickyAssignor(), RangeAssignor()], ids=lambda each: each.name)
async def test_no_record_of_a_topic_that_is_not_subscribed_any_more(broker, assignor):
    first, second, group = await broker.topic(), await broker.topic(), broker.name("group")
    diary = Diary()
    options = {"auto_offset_reset": "earliest", "assignors": [assignor]}
    async with Producer(broker.bootstrap) as producer:
        for number in range(20):
            await producer.send(first, b"%d" % number)
            await producer.send(second, b"%d" % number)
    async with Consumer(broker.bootstrap, group_id=group, **QUICK, **options) as consumer:
        await consumer.subscribe([first], diary)
        async with asyncio.timeout(60):
            while not await consumer.poll(100, records_max=5):
                pass
            await consumer.subscribe([second], diary)
            topics = []
            while len(topics) < 20:
                topics += [record.topic for record in await consumer.poll(100)]
        assert set(topics) == {second}
        assert diary.entries == [
            ("assigned", partitions_of(first, 0)),
            ("revoked", partitions_of(first, 0)),
            ("assigned", partitions_of(second, 0)),
        ]
        assert (await consumer.committed([TopicPartition(first, 0)]))[TopicPartition(first, 0)].offset == 5


@pytest.mark.parametrize("assignor", [CooperativeStickyAssignor(), RangeAssignor()], ids=lambda each: each.name)
async def test_no_record_of_a_partition_that_was_lost(broker, assignor):
    topic, group = await broker.topic(), broker.name("group")
    diary = Diary()
    async with Producer(broker.bootstrap) as producer:
        for number in range(20):
            await producer.send(topic, b"%d" % number)
    settings = QUICK | {"rebalance_timeout_ms": 500, "auto_offset_reset": "earliest", "assignors": [assignor]}
    async with Consumer(broker.bootstrap, group_id=group, **settings) as consumer:
        await consumer.subscribe([topic], diary)
        async with asyncio.timeout(60):
            while not await consumer.poll(100, records_max=5):
                pass
        async with reading(broker, group, [topic], assignors=[assignor]) as other:
            await until(lambda: len(other.records) == 20)
            for _ in range(3):
                assert await consumer.poll(0) == []
            assert diary.entries == [("assigned", partitions_of(topic, 0)), ("lost", partitions_of(topic, 0))]
