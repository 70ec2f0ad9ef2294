"""A producer over a disturbed network against a model of its topic, and librdkafka's with the same workload.

acknowledged        the record is in the log at that offset
timed out           it is in the log or not
every record        at most once, in the order of `send`
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from clients.disturbances import THREADS, disturbed, scaled
from clients.proxy import KafkaProxy
from clients.test_faults import QUICK
from protocol_lib.client import ClientSettings, Consumer, Producer, TopicPartition
from protocol_lib.client.errors import KafkaError
from support.late import confluent

PARTITIONS = 3


@dataclass
class Model:
    """The records of a run by partition: numbers from 0, in the order of `send`."""

    sent: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    #: acknowledged records by partition: number → offset, -1 when the broker did not send it again
    acknowledged: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    #: records whose `send` was cancelled, which the producer may not have, by partition
    cancelled: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    failed: int = 0

    def next(self, partition: int) -> int:
        self.sent[partition] += 1
        return self.sent[partition] - 1

    def check(self, log: dict[int, list[int]], *, patient: bool) -> None:
        """Compare with the log; a patient producer has no record that failed."""
        for partition in range(PARTITIONS):
            found, acknowledged = log[partition], self.acknowledged[partition]
            assert found == sorted(set(found)), f"partition {partition}: twice or out of order"
            lost = acknowledged.keys() - set(found)
            assert not lost, f"partition {partition}: acknowledged and lost"
            placed = {found[offset]: offset for offset in acknowledged.values() if offset >= 0}
            assert placed == {number: offset for number, offset in acknowledged.items() if offset >= 0}
            if patient:
                assert set(range(self.sent[partition])) - set(found) <= self.cancelled[partition], "lost"
        assert not (patient and self.failed)


async def read(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """Read the whole topic, by partition."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found: dict[int, list[int]] = defaultdict(list)
    async with Consumer(bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=20) as consumer:
        await consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        async with asyncio.timeout(60):
            while any([await consumer.position(partition) < end for partition, end in ends.items()]):
                for record in await consumer.poll(500):
                    found[record.partition].append(int(record.value or b"-1"))
    return found


async def produce(
    bootstrap: str, topic: str, model: Model, draw: random.Random, timeout_ms: int, over: threading.Event
) -> None:
    """Send to all partitions until it is over; `send`, `flush` and waits for answers are cancelled at random."""

    def note(partition: int, number: int, answer: asyncio.Future) -> None:
        if answer.cancelled():
            return
        if answer.exception() is None:
            model.acknowledged[partition][number] = answer.result().offset
        else:
            assert isinstance(answer.exception(), KafkaError)
            model.failed += 1

    async def send_on(partition: int) -> None:
        while not over.is_set():
            number = model.next(partition)
            try:
                async with asyncio.timeout(draw.choice([None, None, None, 0, 0.001])):
                    answer = await producer.send(topic, b"%d" % number, partition=partition)
            except TimeoutError:
                model.cancelled[partition].add(number)
            else:
                answer.add_done_callback(lambda done, number=number: note(partition, number, done))
                if draw.random() < 0.1:
                    await asyncio.wait({answer}, timeout=draw.uniform(0, 0.1))
            if draw.random() < 0.05:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(draw.uniform(0, 0.05)):
                        await producer.flush()
            await asyncio.sleep(draw.choice([0, 0, 0.001, 0.005, 0.02]))

    settings = ClientSettings(bootstrap_servers=bootstrap, **QUICK)
    options = {"batch_bytes": draw.choice([100, 300, 2_000]), "linger_ms": draw.choice([0, 1, 5])}
    async with Producer(settings, delivery_timeout_ms=timeout_ms, buffer_bytes=20_000, **options) as producer:
        await asyncio.gather(*(send_on(partition) for partition in range(PARTITIONS)))


def produce_with_librdkafka(
    bootstrap: str, topic: str, model: Model, draw: random.Random, timeout_ms: int, over: threading.Event
) -> None:
    """Send the same workload, as far as librdkafka has it: nothing can be cancelled."""
    client = confluent.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": timeout_ms,
            "batch.num.messages": draw.choice([2, 10]),
            "linger.ms": draw.choice([0, 1, 5]),
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
    )

    def note(partition: int, number: int, fault: object, message: confluent.Message) -> None:
        if fault is None:
            model.acknowledged[partition][number] = message.offset()
        else:
            model.failed += 1

    while not over.is_set():
        partition = draw.randrange(PARTITIONS)
        number = model.next(partition)
        client.produce(
            topic, b"%d" % number, partition=partition, on_delivery=lambda f, m, p=partition, n=number: note(p, n, f, m)
        )
        client.poll(draw.choice([0, 0.001, 0.005]))
    client.flush(60)


async def run(broker, client: str, seed: int, *, patient: bool, seconds: float) -> Model:
    """Run a workload of one client and seed, and compare the log with the model."""
    draw, model = random.Random(seed), Model()
    topic = await broker.topic(partitions=PARTITIONS)
    timeout_ms = 60_000 if patient else 600
    async with KafkaProxy(broker.bootstrap) as proxy:
        over = threading.Event()
        options = (proxy.bootstrap, topic, model, draw, timeout_ms, over)
        working: asyncio.Future[None]
        if client == "ours":
            working = asyncio.create_task(produce(*options))
        else:
            working = asyncio.get_running_loop().run_in_executor(THREADS, produce_with_librdkafka, *options)
        try:
            async with asyncio.timeout(60):
                while not model.acknowledged:  # noqa: ASYNC110 (the clients do not signal it)
                    await asyncio.sleep(0.01)
            async with disturbed(proxy, random.Random(-seed), stall_s=0.3 if patient else 1.2) as network:
                await asyncio.sleep(seconds)
                while sum(network.kinds.values()) < 2:  # noqa: ASYNC110 (it does not signal them)
                    await asyncio.sleep(0.01)
        finally:
            over.set()
        await working
    log = await read(broker.bootstrap, topic)
    try:
        model.check(log, patient=patient)
    except AssertionError as fault:
        fault.add_note(f"{client}, seed {seed}, {'patient' if patient else 'timing out'}")
        raise
    return model


#: (client, whether it is patient). librdkafka 2.16 itself writes records twice after time-outs, to both brokers.
WORKLOADS = [("ours", True), ("ours", False), ("librdkafka", True)]


async def test_a_producer_over_a_disturbed_network(broker):
    async with asyncio.TaskGroup() as tasks:
        for client, patient in WORKLOADS:
            for seed in range(1, 5):
                tasks.create_task(run(broker, client, seed, patient=patient, seconds=2))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("client", "patient"), WORKLOADS)
async def test_a_producer_over_a_disturbed_network_at_length(broker, client, patient):
    for turn in range(scaled(6)):
        async with asyncio.TaskGroup() as tasks:
            for seed in range(100 + 4 * turn, 104 + 4 * turn):
                tasks.create_task(run(broker, client, seed, patient=patient, seconds=8))
