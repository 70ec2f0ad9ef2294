"""A group over a disturbed network against a model of its topic, and librdkafka's consumers with the same workload.

    every record        one member or more finishes it
    committed offset    all records below it are finished, at any time
    one assignment      offsets without a gap, from a committed offset or the beginning

Members poll, commit, subscribe again, close, and leave by exceptions at random; each call may be cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import defaultdict

import pytest
from clients.disturbances import THREADS, disturbed, scaled
from clients.proxy import KafkaProxy
from clients.test_faults import QUICK
from protocol_lib.client import (
    Admin,
    ClientSettings,
    Consumer,
    ConsumerRecord,
    CooperativeStickyAssignor,
    Producer,
    RangeAssignor,
    TopicPartition,
)
from protocol_lib.client.errors import KafkaError
from support.late import confluent

PARTITIONS = 4
MEMBERS = 3
#: Longest time in which a calm group finishes nothing; on a slow machine it may need longer for all.
STANDSTILL_S = 40
ASSIGNORS = {"cooperative-sticky": CooperativeStickyAssignor(), "range": RangeAssignor()}


class CrashError(Exception):
    """The end of a member that is at work."""


class Model:
    """The records of a run: offsets in the log, and offsets that a member has finished, by partition."""

    def __init__(self) -> None:
        self.written: dict[TopicPartition, int] = defaultdict(int)
        self.finished: dict[TopicPartition, set[int]] = defaultdict(set)
        self.cancelled = 0

    def finish(self, topic_partition: TopicPartition, offset: int) -> None:
        self.finished[topic_partition].add(offset)

    def unread(self) -> dict[TopicPartition, set[int]]:
        """Return the offsets that no member has finished, where there are any."""
        missing = {each: set(range(count)) - self.finished[each] for each, count in self.written.items()}
        return {each: offsets for each, offsets in missing.items() if offsets}

    def check_committed(self, committed: dict[TopicPartition, int]) -> None:
        for topic_partition, offset in committed.items():
            lost = set(range(offset)) - self.finished[topic_partition]
            assert not lost, f"{topic_partition}: {offset} is committed, and {sorted(lost)} are not finished"


class Gapless:
    """A listener that knows from which partitions records may come next, and at which offset."""

    def __init__(self, draw: random.Random) -> None:
        self.next: dict[TopicPartition, int | None] = {}
        self._is_at_work = False
        self._draw = draw

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._sleep()
        self._drop(partitions)

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._drop(partitions)
        await self._sleep()

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        await self._sleep()
        assert self.next.keys().isdisjoint(partitions)
        self.next |= dict.fromkeys(partitions)

    def read(self, topic_partition: TopicPartition, offset: int) -> None:
        """Check that a record is the next one of an assigned partition."""
        assert not self._is_at_work, "records during a callback"
        expected = self.next[topic_partition]
        assert expected is None or offset == expected, f"{topic_partition}: {offset} follows {expected}"
        self.next[topic_partition] = offset + 1

    def _drop(self, partitions: frozenset[TopicPartition]) -> None:
        assert partitions <= self.next.keys()
        for topic_partition in partitions:
            del self.next[topic_partition]

    async def _sleep(self) -> None:
        assert not self._is_at_work, "two callbacks at once"
        self._is_at_work = True
        await asyncio.sleep(self._draw.choice([0, 0, self._draw.uniform(0, 0.2)]))
        self._is_at_work = False


class Group:
    """The members of a run."""

    def __init__(
        self, bootstrap: str, group: str, topics: list[str], assignor: str, model: Model, seed: int, session_ms: int
    ) -> None:
        self._draw = random.Random(seed)
        self._bootstrap = bootstrap
        self._options = {
            "group_id": group,
            "assignors": [ASSIGNORS[assignor]],
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 50,
            "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": 100,
            "fetch_max_wait_ms": 50,
        }
        self._topics = topics
        self._model = model
        self.is_calm = False
        self.is_over = False

    async def member(self) -> None:
        """Run one member after the other until it is over; the last one is calm."""
        while not self.is_over:
            with contextlib.suppress(CrashError, KafkaError):
                await self._be_one_member()

    async def _be_one_member(self) -> None:
        settings = ClientSettings(bootstrap_servers=self._bootstrap, api_timeout_ms=5_000, **QUICK)
        listener = Gapless(self._draw)
        async with Consumer(settings, **self._options) as consumer:
            await consumer.subscribe(self._topics, listener)
            left = self._draw.randrange(20, 400)
            while not self.is_over and (self.is_calm or left):
                left -= 1
                await self._do_something(consumer, listener)

    async def _do_something(self, consumer: Consumer, listener: Gapless) -> None:
        chance = 1.0 if self.is_calm else self._draw.random()
        records: list[ConsumerRecord] = []
        try:
            async with asyncio.timeout(None if self.is_calm else self._draw.choice([None, 0, 0.001, 0.02, 0.1])):
                if chance < 0.03:
                    await consumer.subscribe(self._topics, listener)
                elif chance < 0.06:
                    await consumer.subscribe(self._draw.sample(self._topics, 1), listener)
                    await consumer.poll(0, records_max=0)
                    await consumer.subscribe(self._topics, listener)
                elif chance < 0.10:
                    await consumer.commit()
                else:
                    timeout_ms = 100 if self.is_calm else self._draw.choice([0, 10, 100])
                    records = await consumer.poll(timeout_ms, records_max=self._draw.choice([1, 3, 500]))
        except TimeoutError:
            self._model.cancelled += 1
        except KafkaError:
            await asyncio.sleep(0.01)
        await self._work(records, listener)

    async def _work(self, records: list[ConsumerRecord], listener: Gapless) -> None:
        for record in records:
            listener.read(TopicPartition(record.topic, record.partition), record.offset)
        if records and not self.is_calm and self._draw.random() < 0.5:
            await asyncio.sleep(self._draw.uniform(0, 0.15))
            if self._draw.random() < 0.05:
                raise CrashError
        for record in records:
            self._model.finish(TopicPartition(record.topic, record.partition), record.offset)


class LibrdkafkaGroup:
    """The same members as far as librdkafka has them: nothing can be cancelled, and finished offsets are stored."""

    def __init__(
        self, bootstrap: str, group: str, topics: list[str], assignor: str, model: Model, seed: int, session_ms: int
    ) -> None:
        self._draw = random.Random(seed)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 50,
            "enable.auto.offset.store": False,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": 100,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "log_level": 0,
        }
        self._topics = topics
        self._model = model
        self.is_calm = False
        self.is_over = False

    async def member(self) -> None:
        await asyncio.get_running_loop().run_in_executor(THREADS, self._run)

    def _run(self) -> None:
        while not self.is_over:
            client = confluent.Consumer(self._settings)
            client.subscribe(self._topics)
            left = self._draw.randrange(20, 400)
            while not self.is_over and (self.is_calm or left):
                left -= 1
                message = client.poll(self._draw.choice([0.001, 0.01, 0.1]))
                if message is not None and message.error() is None:
                    self._model.finish(TopicPartition(message.topic(), message.partition()), message.offset())
                    with contextlib.suppress(confluent.KafkaException):  # it is assigned to others by now
                        client.store_offsets(message)
            client.close()


async def write(bootstrap: str, topics: list[str], model: Model, over: threading.Event) -> None:
    """Write to all partitions over an undisturbed network until it is over."""
    async with Producer(bootstrap, linger_ms=0) as producer:
        while not over.is_set():
            for topic in topics:
                for partition in range(PARTITIONS):
                    await producer.send_and_wait(topic, b"x", partition=partition)
                    model.written[TopicPartition(topic, partition)] += 1
            await asyncio.sleep(0.005)


async def run(broker, kind: type[Group | LibrdkafkaGroup], assignor: str, seed: int, seconds: float) -> Model:
    """Run a group, and compare its committed offsets and the finished records with the model."""
    model, name = Model(), broker.name("group")
    topics = [await broker.topic(partitions=PARTITIONS) for _ in range(2)]
    over = threading.Event()

    async def watch() -> None:
        async with Admin(broker.bootstrap) as admin:
            while True:
                found = await admin.groups.offsets(name)
                model.check_committed({each: at.offset for each, at in found.items()})
                await asyncio.sleep(0.02)

    async with KafkaProxy(broker.bootstrap) as proxy, asyncio.TaskGroup() as tasks:
        group = kind(proxy.bootstrap, name, topics, assignor, model, seed, broker.session_timeout_min_ms)
        try:
            watching = tasks.create_task(watch())
            members = [tasks.create_task(group.member()) for _ in range(MEMBERS)]
            writing = tasks.create_task(write(broker.bootstrap, topics, model, over))
            async with asyncio.timeout(60):
                while not model.finished:  # noqa: ASYNC110 (the clients do not signal it)
                    await asyncio.sleep(0.01)
            async with disturbed(proxy, random.Random(-seed)):
                await asyncio.sleep(seconds)
            over.set()
            await writing
            group.is_calm = True
            unread, at = model.unread(), time.monotonic()
            while unread and time.monotonic() < at + STANDSTILL_S:
                await asyncio.sleep(0.01)
                before, unread = unread, model.unread()
                if unread != before:
                    at = time.monotonic()
            assert not unread, f"{kind.__name__}, {assignor}, seed {seed}: nobody reads {unread}"
        finally:
            group.is_over = True
            over.set()
        await asyncio.gather(*members)
        watching.cancel()
    return model


async def test_a_group_over_a_disturbed_network(broker):
    async with asyncio.TaskGroup() as tasks:
        for kind in (Group, LibrdkafkaGroup):
            for assignor in ASSIGNORS:
                tasks.create_task(run(broker, kind, assignor, 1, 2.0))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [Group, LibrdkafkaGroup], ids=["ours", "librdkafka"])
@pytest.mark.parametrize("assignor", ASSIGNORS)
async def test_a_group_over_a_disturbed_network_at_length(broker, kind, assignor):
    for seed in range(100, 100 + scaled(4)):
        await run(broker, kind, assignor, seed, 12)
