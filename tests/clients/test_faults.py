"""Lost connections, lost answers, brokers that go away: nothing is lost, nothing is there twice, the order stays."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from clients.proxy import Action, KafkaProxy
from millrace.broker import Broker
from millrace.ports import Reservation
from protocol_lib.api import ApiKey
from protocol_lib.client import ClientSettings, Cluster, Consumer, Producer, TopicPartition
from protocol_lib.client.errors import ConnectionFailedError, DeliveryTimeoutError
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from support.kafka_broker import ApacheKafka

QUICK = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50}


async def log_of(bootstrap: str, topic: str, partition: int = 0, *, up_to: int | None = None) -> list[int]:
    """Read every record of a partition; with acks=1 the last ones appear a little after their acknowledgement."""
    topic_partition = TopicPartition(topic, partition)
    async with Consumer(bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20) as consumer:
        await consumer.assign([topic_partition])
        end = (await consumer.end_offsets([topic_partition]))[topic_partition]
        found: list[int] = []
        async with asyncio.timeout(30):
            while await consumer.position(topic_partition) < end or (up_to is not None and up_to not in found):
                found += [int(record.value or b"-1") for record in await consumer.poll(500)]
    return found


def give_up_after(producer: Producer, timeout_ms: int) -> None:
    """Set the delivery timeout of the records that are sent from now on."""
    producer._delivery = dataclasses.replace(producer._delivery, timeout_ms=timeout_ms)


class Sometimes:
    """Hangs up on some Produce requests or answers: the seed says on which, counted from the first."""

    def __init__(self, seed: int, chance: float) -> None:
        self._draw = random.Random(seed)
        self._chance = chance
        self.times = 0

    def __call__(self, key: ApiKey) -> Action:
        if key is not ApiKey.PRODUCE or self._draw.random() > self._chance:
            return Action.PASS
        self.times += 1
        return Action.DROP


@pytest.mark.parametrize("seed", range(3))
async def test_connections_lost_around_produce(broker, seed):
    """Before the request is there, or after it is done and before the answer is: the producer cannot tell."""
    topic = await broker.topic(partitions=2)
    async with KafkaProxy(broker.bootstrap) as proxy:
        settings = ClientSettings(bootstrap_servers=proxy.bootstrap, **QUICK)
        async with Producer(settings, batch_bytes=120, linger_ms=1) as producer:
            await producer.partitions(topic)
            proxy.on_request, proxy.on_answer = before, after = Sometimes(seed, 0.15), Sometimes(seed + 100, 0.25)
            answers = []
            for number in range(600):
                answers.append(await producer.send(topic, b"%d" % number, partition=number % 2))
                if number % 50 == 0:
                    await asyncio.sleep(0.01)
            placed = [await answer for answer in answers]
    assert min(before.times, after.times) >= 3
    for partition in range(2):
        assert await log_of(broker.bootstrap, topic, partition) == list(range(partition, 600, 2))
        assert [each.offset for each in placed if each.partition == partition] == list(range(300))


async def test_without_idempotence_the_order_stays_and_nothing_is_lost(broker):
    topic = await broker.topic()
    async with KafkaProxy(broker.bootstrap) as proxy:
        settings = ClientSettings(bootstrap_servers=proxy.bootstrap, **QUICK)
        async with Producer(settings, acks=1, batch_bytes=120, linger_ms=1) as producer:
            await producer.partitions(topic)
            proxy.on_answer = Sometimes(1, 0.3)
            for number in range(200):
                await producer.send(topic, b"%d" % number)
    found = await log_of(broker.bootstrap, topic, up_to=199)
    first_times = [value for index, value in enumerate(found) if value not in found[:index]]
    assert first_times == list(range(200))


async def test_what_is_given_up_leaves_no_hole_in_the_sequence(broker):
    """The broker has the batch that the producer gave up; the next ones go on under the next epoch."""
    topic = await broker.topic()
    async with KafkaProxy(broker.bootstrap) as proxy:
        settings = ClientSettings(bootstrap_servers=proxy.bootstrap, **QUICK)
        async with Producer(settings, linger_ms=0) as producer:
            await producer.send_and_wait(topic, b"0")
            proxy.on_request = lambda key: Action.DROP if key is ApiKey.PRODUCE else Action.PASS
            give_up_after(producer, 1_000)
            with pytest.raises(DeliveryTimeoutError):
                await producer.send_and_wait(topic, b"1")
            proxy.on_request = lambda _: Action.PASS
            give_up_after(producer, 60_000)
            assert [(await producer.send_and_wait(topic, b"%d" % number)).offset for number in (2, 3)] == [1, 2]
    assert await log_of(broker.bootstrap, topic) == [0, 2, 3]


@pytest.mark.parametrize(
    ("lost", "expected"),
    [("answers", [0, 1, 2, 3, 4]), ("requests", [0, 2, 3, 4])],
)
@pytest.mark.parametrize("in_flight", [1, 3])
async def test_batches_after_one_that_timed_out_are_in_the_log_once(broker, lost, expected, in_flight):
    """Record 1 times out. Later ones were sent too, and only their old numbers show whether the broker has them."""
    topic = await broker.topic()
    async with KafkaProxy(broker.bootstrap) as proxy:
        settings = ClientSettings(bootstrap_servers=proxy.bootstrap, **QUICK)
        async with Producer(settings, linger_ms=0) as producer:
            await producer.send_and_wait(topic, b"0")
            stalled = asyncio.Event()

            def stall_produce(key: ApiKey) -> Action:
                if key is not ApiKey.PRODUCE:
                    return Action.PASS
                stalled.set()
                return Action.STALL

            if lost == "answers":
                proxy.on_answer = stall_produce
            else:
                proxy.on_request = stall_produce
            give_up_after(producer, 1_500)
            first = await producer.send(topic, b"1")
            give_up_after(producer, 60_000)
            await stalled.wait()
            later = [await producer.send(topic, b"%d" % number) for number in range(2, 2 + in_flight)]
            await asyncio.sleep(0.2)
            with pytest.raises(DeliveryTimeoutError):
                await first
            proxy.on_answer = proxy.on_request = lambda _: Action.PASS
            proxy.hang_up()
            offsets = [(await answer).offset for answer in later]
            later = [await producer.send(topic, b"%d" % number) for number in range(2 + in_flight, 5)]
            offsets += [(await answer).offset for answer in later]
    assert await log_of(broker.bootstrap, topic) == expected
    assert offsets == [expected.index(number) for number in (2, 3, 4)]


async def test_fetches_go_on_after_lost_connections(broker):
    topic = await broker.topic()
    async with KafkaProxy(broker.bootstrap) as proxy:
        settings = ClientSettings(bootstrap_servers=proxy.bootstrap, **QUICK)
        async with (
            Producer(broker.bootstrap) as producer,
            Consumer(settings, auto_offset_reset="earliest", fetch_max_wait_ms=20) as consumer,
        ):
            await consumer.assign([(topic, 0)])
            found: list[int] = []
            for number in range(30):
                await producer.send_and_wait(topic, b"%d" % number)
                if number % 3 == 0:
                    proxy.hang_up()
                while len(found) <= number:
                    found += [int(record.value) for record in await consumer.poll(5000)]
    assert found == list(range(30))


async def test_nobody_is_there():
    with Reservation("127.0.0.1", 0) as unused:
        cluster = Cluster(ClientSettings(bootstrap_servers=str(unused.address), api_timeout_ms=300, **QUICK))
        with pytest.raises(ConnectionFailedError):
            await cluster.start()
        await cluster.close()


async def test_one_bootstrap_server_is_enough(broker):
    with Reservation("127.0.0.1", 0) as unused:
        cluster = Cluster(ClientSettings(bootstrap_servers=[str(unused.address), broker.bootstrap]))
        await cluster.start()
        assert cluster.metadata.nodes
        await cluster.close()


class Restartable(Protocol):
    bootstrap: str

    def go_away(self) -> None: ...

    def come_back(self) -> None: ...


@dataclass
class KafkaNode:
    node: ApacheKafka

    @property
    def bootstrap(self) -> str:
        return self.node.bootstrap

    def go_away(self) -> None:
        self.node.stop()

    def come_back(self) -> None:
        self.node.start()


@dataclass
class MillraceNode:
    broker: Broker
    bootstrap: str

    def go_away(self) -> None:
        self.broker.close()

    def come_back(self) -> None:
        self.broker.start()


@pytest.fixture(params=["kafka", "millrace"])
def restartable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    """A broker that may be stopped and started; it keeps its data and its address."""
    with contextlib.ExitStack() as at_end:
        if request.param == "kafka":
            yield KafkaNode(request.getfixturevalue("apache_kafka"))
        else:
            address = at_end.enter_context(Reservation("127.0.0.1", 0)).address
            broker = Broker(data_dir=tmp_path, host=address.host, kafka_port=address.port)
            at_end.callback(broker.close)
            broker.start()
            yield MillraceNode(broker, broker.bootstrap_servers)


async def test_a_broker_restarts_while_a_group_reads_and_a_producer_writes(restartable):
    settings = ClientSettings(bootstrap_servers=restartable.bootstrap, retry_backoff_max_ms=200)
    cluster = Cluster(settings)
    await cluster.start()
    name = f"restarts-{os.getpid()}"
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=(), configs=())
    await cluster.controller_request(CreateTopicsRequest(topics=(topic,)))
    await cluster.topic(name)  # until the broker knows it: a group looks for new topics every five minutes
    await cluster.close()
    async with (
        Producer(settings, linger_ms=1) as producer,
        Consumer(
            settings, group_id=name, auto_offset_reset="earliest", heartbeat_interval_ms=200, session_timeout_ms=6000
        ) as consumer,
    ):
        await consumer.subscribe([name])
        read: list[int] = []

        async def keep_reading() -> None:
            while set(read) != set(range(400)):
                read.extend(int(record.value) for record in await consumer.poll(200))
                await consumer.commit()

        reading = asyncio.create_task(keep_reading())
        for number in range(200):
            await producer.send(name, b"%d" % number, partition=number % 2)
        await producer.flush()
        while len(read) < 100:  # noqa: ASYNC110 (consumers do not tell)
            await asyncio.sleep(0.01)
        await asyncio.to_thread(restartable.go_away)
        written = [await producer.send(name, b"%d" % number, partition=number % 2) for number in range(200, 400)]
        await asyncio.to_thread(restartable.come_back)
        async with asyncio.timeout(60):
            await asyncio.gather(*written)
            await reading
    for partition in range(2):
        assert await log_of(restartable.bootstrap, name, partition) == list(range(partition, 400, 2))
