"""Stock Python clients against a broker: produce with every codec they have, consume in a group, commit, come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

from tests.wire.conftest import SynchronousBroker

TIMEOUT_S = 20
NUMBERS = range(200)

_groups = count()


@pytest.fixture
def group() -> str:
    return f"group-{next(_groups)}"


@pytest.fixture
def topic(module_broker: SynchronousBroker) -> Iterator[str]:
    name = f"clients-{next(_groups)}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": module_broker.bootstrap_servers})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic(name, num_partitions=3)]).values():
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
    producer = confluent_kafka.Producer(
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
    consumer = confluent_kafka.Consumer(config)
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
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([topic])
    later: list[int] = []
    for _ in until(lambda: bool(later)):
        record = consumer.poll(1.0)
        if record is not None:
            assert record.error() is None
            later.append(int(record.value()))
    assert later == [1000]
    consumer.close()


def test_confluent_kafka_commits_and_aborts_transactions_and_is_fenced(
    module_broker: SynchronousBroker, topic: str, group: str
) -> None:
    def transactional() -> confluent_kafka.Producer:
        made = confluent_kafka.Producer(librdkafka_config(module_broker, transactional_id=f"of {topic}"))
        made.init_transactions(TIMEOUT_S)
        return made

    producer = transactional()
    for number in range(3):
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % number, partition=0)
        if number == 1:
            producer.flush()
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    config = librdkafka_config(module_broker, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([topic])
    seen: list[bytes | None] = []
    for _ in until(lambda: len(seen) == 2):
        record = consumer.poll(1.0)
        if record is not None:
            assert record.error() is None
            seen.append(record.value())
    assert seen == [b"0", b"2"]
    producer.begin_transaction()
    read = [confluent_kafka.TopicPartition(topic, 0, 5)]
    producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    assert [each.offset for each in consumer.committed(read, TIMEOUT_S)] == [5]
    consumer.close()
    producer.begin_transaction()
    producer.produce(topic, value=b"of a zombie")
    transactional()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError._FENCED


def test_confluent_kafka_creates_topics_by_using_them(module_broker: SynchronousBroker) -> None:
    delivered: list[object] = []
    producer = confluent_kafka.Producer(librdkafka_config(module_broker))
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
    producer = kafka.KafkaProducer(bootstrap_servers=module_broker.bootstrap_servers, compression_type="gzip")
    for number in NUMBERS:
        producer.send(topic, b"%d" % number)
    producer.flush(timeout=TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
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
