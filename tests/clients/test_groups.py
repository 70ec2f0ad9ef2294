"""Consumers that share topics: every record to one of them, through joins, leaves and rebalances of both kinds; and
together with other clients in one group."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from protocol_lib.client import (
    Admin,
    Consumer,
    ConsumerRecord,
    CooperativeStickyAssignor,
    Producer,
    RangeAssignor,
    RoundRobinAssignor,
    TopicPartition,
)
from protocol_lib.client.errors import KafkaError, UnknownMemberIdError
from support.late import confluent

QUICK = {"heartbeat_interval_ms": 100, "session_timeout_ms": 30_000, "fetch_max_wait_ms": 50}


class Diary:
    """A listener that notes its calls."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, frozenset[TopicPartition]]] = []

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.entries.append(("revoked", partitions))

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.entries.append(("assigned", partitions))

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.entries.append(("lost", partitions))

    def all(self, kind: str) -> set[TopicPartition]:
        return set().union(*(partitions for each, partitions in self.entries if each == kind))


class Reader:
    """A consumer that polls on and on."""

    def __init__(self, consumer: Consumer, diary: Diary) -> None:
        self.consumer = consumer
        self.diary = diary
        self.records: list[ConsumerRecord] = []
        self.owned: frozenset[TopicPartition] = frozenset()

    async def run(self) -> None:
        while True:
            self.records += await self.consumer.poll(100)
            self.owned = self.consumer.assignment()

    @property
    def values(self) -> list[int]:
        return [int(record.value or b"-1") for record in self.records]


@asynccontextmanager
async def reading(broker, group: str, topics, **options) -> AsyncIterator[Reader]:
    consumer = Consumer(broker.bootstrap, group_id=group, auto_offset_reset="earliest", **(QUICK | options))
    async with consumer:
        diary = Diary()
        await consumer.subscribe(topics, diary)
        reader = Reader(consumer, diary)
        polling = asyncio.create_task(reader.run())
        try:
            yield reader
        finally:
            polling.cancel()
            (outcome,) = await asyncio.gather(polling, return_exceptions=True)
            assert isinstance(outcome, asyncio.CancelledError), outcome


async def until(condition, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (brokers and clients do not signal it)
            await asyncio.sleep(0.02)


def partitions_of(topic: str, *partitions: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, partition) for partition in partitions)


async def fill(broker, topic: str, numbers: range) -> None:
    async with Producer(broker.bootstrap) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, key=b"%d" % number)


async def test_one_member_reads_everything_and_goes_on_where_it_was(broker):
    topic, group = await broker.topic(partitions=3), broker.name("group")
    await fill(broker, topic, range(50))
    async with reading(broker, group, [topic]) as reader:
        await until(lambda: len(reader.records) == 50)
        assert reader.owned == partitions_of(topic, 0, 1, 2)
    assert reader.diary.entries == [
        ("assigned", partitions_of(topic, 0, 1, 2)),
        ("revoked", partitions_of(topic, 0, 1, 2)),
    ]
    await fill(broker, topic, range(50, 80))
    async with reading(broker, group, [topic]) as again:
        await until(lambda: len(again.records) == 30)
    assert sorted(reader.values + again.values) == list(range(80))


@pytest.mark.parametrize("assignor", [RangeAssignor(), RoundRobinAssignor()], ids=lambda each: each.name)
async def test_eager_members_give_everything_up_and_share_again(broker, assignor):
    topic, group = await broker.topic(partitions=4), broker.name("group")
    async with reading(broker, group, [topic], assignors=[assignor]) as first:
        await until(lambda: len(first.owned) == 4)
        async with reading(broker, group, [topic], assignors=[assignor]) as second:
            await until(lambda: len(first.owned) == len(second.owned) == 2)
            assert first.owned | second.owned == partitions_of(topic, 0, 1, 2, 3)
            assert ("revoked", partitions_of(topic, 0, 1, 2, 3)) in first.diary.entries
            await fill(broker, topic, range(40))
            await until(lambda: len(first.records) + len(second.records) == 40)
            assert sorted(first.values + second.values) == list(range(40))
            assert all(TopicPartition(topic, record.partition) in second.owned for record in second.records)
        await until(lambda: len(first.owned) == 4)
        await fill(broker, topic, range(40, 60))
        await until(lambda: len(first.records) + len(second.records) == 60)
    assert sorted(first.values + second.values) == list(range(60))


async def test_cooperative_members_keep_what_they_keep(broker):
    topic, group = await broker.topic(partitions=4), broker.name("group")
    sticky = {"assignors": [CooperativeStickyAssignor()]}
    async with reading(broker, group, [topic], **sticky) as first:
        await until(lambda: len(first.owned) == 4)
        async with reading(broker, group, [topic], **sticky) as second:
            await until(lambda: len(first.owned) == len(second.owned) == 2)
            assert first.owned | second.owned == partitions_of(topic, 0, 1, 2, 3)
            assert first.diary.all("revoked") == second.owned  # and nothing else was ever given up
            await fill(broker, topic, range(40))
            await until(lambda: len(first.records) + len(second.records) == 40)
        kept = first.owned
        await until(lambda: len(first.owned) == 4)
        assert first.diary.all("revoked").isdisjoint(kept)
    assert sorted(first.values + second.values) == list(range(40))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RangeAssignor(), "range"),
        (RoundRobinAssignor(), "roundrobin"),
        (CooperativeStickyAssignor(), "cooperative-sticky"),
    ],
    ids=["range", "roundrobin", "cooperative-sticky"],
)
@pytest.mark.parametrize("leader", ["ours", "theirs"])
async def test_a_group_with_librdkafka(broker, ours, theirs, leader):
    """Either client leads; both read on, and every record once."""
    topic, group = await broker.topic(partitions=4), broker.name("group")
    with Librdkafka(broker.bootstrap, group, topic, theirs) as other:
        if leader == "theirs":
            other.start()
            await until(lambda: len(other.owned) == 4)
        async with reading(broker, group, [topic], assignors=[ours]) as reader:
            if leader == "ours":
                await until(lambda: len(reader.owned) == 4)
                other.start()
            await until(lambda: len(reader.owned) == len(other.owned) == 2)
            assert reader.owned | other.owned == partitions_of(topic, 0, 1, 2, 3)
            await fill(broker, topic, range(40))
            await until(lambda: len(reader.records) + len(other.values) >= 40)
    assert sorted(reader.values + other.values) == list(range(40))


class Librdkafka:
    """A librdkafka consumer in another thread."""

    def __init__(self, bootstrap: str, group: str, topic: str, assignor: str) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        self.values: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": assignor,
            "heartbeat.interval.ms": 100,
            "session.timeout.ms": 30_000,
        }

    def start(self) -> None:
        self._thread.start()

    def __enter__(self) -> Librdkafka:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(30)

    def _run(self) -> None:
        client = confluent.Consumer(self._settings)
        client.subscribe([self._topic])
        while not self._stop.is_set():
            message = client.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(int(message.value()))
            self.owned = frozenset(TopicPartition(each.topic, each.partition) for each in client.assignment())
        client.close()


async def test_topics_by_pattern_as_they_appear(broker):
    stem, group = broker.name("pattern"), broker.name("group")
    first = await broker.topic(stem)
    await broker.topic("other")
    pattern = re.compile(rf"{stem}-\d+-\d+")
    settings = broker.settings(metadata_max_age_ms=100)
    async with reading(Settled(settings), group, pattern) as reader:
        await until(lambda: reader.owned == partitions_of(first, 0))
        second = await broker.topic(stem)
        await until(lambda: reader.owned == partitions_of(first, 0) | partitions_of(second, 0))


class Settled:
    """Settings instead of a broker's address."""

    def __init__(self, settings) -> None:
        self.bootstrap = settings


async def test_a_consumer_that_does_not_poll_leaves_and_learns_of_it_in_the_next_poll(broker):
    topic, group = await broker.topic(), broker.name("group")
    consumer = Consumer(broker.bootstrap, group_id=group, rebalance_timeout_ms=500, **QUICK)
    async with consumer:
        diary = Diary()
        await consumer.subscribe([topic], diary)
        while not consumer.assignment():
            await consumer.poll(100)
        async with reading(broker, group, [topic]) as other:
            await until(lambda: other.owned == partitions_of(topic, 0))
            with pytest.raises(KafkaError):
                await consumer.commit({TopicPartition(topic, 0): 0})
            await consumer.poll(0)
            assert diary.entries == [("assigned", partitions_of(topic, 0)), ("lost", partitions_of(topic, 0))]
            assert consumer.assignment() == frozenset()


async def test_a_consumer_that_left_commits_nothing_even_in_an_empty_group(broker):
    topic, group = await broker.topic(), broker.name("group")
    async with Consumer(broker.bootstrap, group_id=group, rebalance_timeout_ms=300, **QUICK) as consumer:
        await consumer.subscribe([topic])
        while not consumer.assignment():
            await consumer.poll(100)
        async with Admin(broker.bootstrap) as admin:
            async with asyncio.timeout(30):
                while (await admin.groups.describe(group)).members:  # noqa: ASYNC110 (brokers do not signal it)
                    await asyncio.sleep(0.05)
        with pytest.raises(UnknownMemberIdError):
            await consumer.commit({TopicPartition(topic, 0): 0})


async def test_a_listener_that_fails_does_not_keep_revoked_partitions(broker):
    class Failing(Diary):
        async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            await super().on_revoked(partitions)
            raise RuntimeError("the listener's own")

    topic, group = await broker.topic(partitions=2), broker.name("group")
    cooperative = {"assignors": [CooperativeStickyAssignor()]}
    consumer = Consumer(broker.bootstrap, group_id=group, **QUICK, **cooperative)
    await consumer.start()
    diary = Failing()
    await consumer.subscribe([topic], diary)
    while len(consumer.assignment()) < 2:
        await consumer.poll(100)
    async with reading(broker, group, [topic], **cooperative) as other:
        with pytest.raises(RuntimeError, match="own"):
            await asyncio.wait_for(Reader(consumer, diary).run(), 20)
        assert consumer.assignment() == partitions_of(topic, 0, 1) - diary.all("revoked")
        while not other.owned:
            await consumer.poll(100)
        assert other.owned == diary.all("revoked")
        with pytest.raises(RuntimeError, match="own"):
            await consumer.close()
        await until(lambda: len(other.owned) == 2)  # it left all the same


async def test_a_static_member_finds_its_partitions_when_it_is_back(broker):
    topic, group = await broker.topic(partitions=2), broker.name("group")
    async with reading(broker, group, [topic], group_instance_id="b") as stays:
        async with reading(broker, group, [topic], group_instance_id="a") as goes:
            await until(lambda: len(stays.owned) == len(goes.owned) == 1)
            before = goes.owned, stays.owned, len(stays.diary.entries)
        async with reading(broker, group, [topic], group_instance_id="a") as back:
            await until(lambda: len(back.owned) == 1)
            assert (back.owned, stays.owned, len(stays.diary.entries)) == before


async def test_offsets_are_committed_before_partitions_go(broker):
    """Records that one member got before a rebalance are not read again by the next owner."""
    topic, group = await broker.topic(partitions=2), broker.name("group")
    await fill(broker, topic, range(30))
    never = {"auto_commit_interval_ms": 3_600_000}
    async with reading(broker, group, [topic], **never) as first:
        await until(lambda: len(first.records) == 30)
        async with reading(broker, group, [topic], **never) as second:
            await until(lambda: len(second.owned) == 1)
            await fill(broker, topic, range(30, 40))
            await until(lambda: len(first.records) + len(second.records) == 40)
    assert sorted(first.values + second.values) == list(range(40))
