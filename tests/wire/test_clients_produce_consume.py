"""Stock Python clients against a broker: produce with every codec they have, consume in a group, commit, come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from support.late import aiokafka, confluent, kafka_python

from tests.wire.conftest import SynchronousBroker

TIMEOUT_S = 60
NUMBERS = range(200)

_groups = count()


@pytest.fixture
def group() -> str:
    return f"group-{next(_groups)}"


@pytest.fixture
def topic(module_broker: SynchronousBroker) -> Iterator[str]:
    name = f"clients-{next(_groups)}"
    admin = confluent.admin.AdminClient({"bootstrap.servers": module_broker.bootstrap_servers})
    for future in admin.create_topics([confluent.admin.NewTopic(name, num_partitions=3)]).values():
        future.result(TIMEOUT_S)
    yield name
    for future in admin.delete_topics([name]).values():
        future.result(TIMEOUT_S)


def librdkafka_config(broker: SynchronousBroker, **more: object) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap_servers, **{key.replace("_", "."): more[key] for key in more}}


def until(enough: Callable[[], object]) -> Iterator[None]:
    deadline = time.monotonic() + TIMEOUT_S
    while not enough():
        assert time.monotonic() < deadline, "nothing more came"
        yield


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_confluent_kafka(
    module_broker: SynchronousBroker, topic: str, group: str, codec: str, idempotent: bool
) -> None:
    failed: list[object] = []
    producer = confluent.Producer(
        librdkafka_config(module_broker, compression_type=codec, enable_idempotence=idempotent, acks="all")
    )
    for number in NUMBERS:
        producer.produce(
            topic,
            key=b"key-%d" % number,
            value=b"%d" % number,
            headers=[("n", b"%d" % number)],
            on_delivery=lambda error, _record: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []

    config = librdkafka_config(module_broker, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer = confluent.Consumer(config)
    consumer.subscribe([topic])
    received: dict[int, tuple[bytes, object]] = {}
    for _ in until(lambda: len(received) == len(NUMBERS)):
        record = consumer.poll(1.0)
        if record is not None:
            assert record.error() is None
            received[int(record.value())] = (record.key(), record.headers())
    assert received == {number: (b"key-%d" % number, [("n", b"%d" % number)]) for number in NUMBERS}
    consumer.commit(asynchronous=False)
    consumer.close()

    # Back again: the group goes on where it was.
    producer.produce(topic, value=b"1000")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent.Consumer(config)
    consumer.subscribe([topic])
    later: list[int] = []
    for _ in until(lambda: bool(later)):
        record = consumer.poll(1.0)
        if record is not None:
            assert record.error() is None
            later.append(int(record.value()))
    assert later == [1000]
    consumer.close()


def test_confluent_kafka_creates_topics_by_using_them(module_broker: SynchronousBroker) -> None:
    delivered: list[object] = []
    producer = confluent.Producer(librdkafka_config(module_broker))
    producer.produce("made-by-use", value=b"x", on_delivery=lambda error, _record: delivered.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert delivered == [None]
    listed = producer.list_topics(timeout=TIMEOUT_S).topics
    assert list(listed["made-by-use"].partitions) == [0]


async def test_aiokafka(module_broker: SynchronousBroker, topic: str, group: str) -> None:
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=module_broker.bootstrap_servers, enable_idempotence=True, compression_type="lz4"
    ) as producer:
        for number in NUMBERS:
            await producer.send(topic, b"%d" % number)
        await producer.flush()
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=module_broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    received: list[int] = []
    async with consumer:
        for _ in until(lambda: len(received) >= len(NUMBERS)):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                received.extend(int(record.value or b"") for record in records)
        await consumer.commit()
        committed = [await consumer.committed(partition) for partition in consumer.assignment()]
    assert sorted(received) == list(NUMBERS)
    assert sum(offset or 0 for offset in committed) == len(NUMBERS)


def test_kafka_python(module_broker: SynchronousBroker, topic: str, group: str) -> None:
    producer = kafka_python.KafkaProducer(bootstrap_servers=module_broker.bootstrap_servers, compression_type="gzip")
    for number in NUMBERS:
        producer.send(topic, b"%d" % number)
    producer.flush(timeout=TIMEOUT_S)
    producer.close()
    consumer = kafka_python.KafkaConsumer(
        topic,
        bootstrap_servers=module_broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    received: list[int] = []
    for _ in until(lambda: len(received) >= len(NUMBERS)):
        for records in consumer.poll(timeout_ms=500).values():
            received.extend(int(record.value) for record in records)
    consumer.commit()
    ends = consumer.end_offsets(list(consumer.assignment()))
    assert sorted(received) == list(NUMBERS)
    assert {partition: consumer.committed(partition) or 0 for partition in ends} == ends
    consumer.close()
