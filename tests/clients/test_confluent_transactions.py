"""confluent-kafka's transactional producer (librdkafka) against Apache Kafka and Millrace: the same outcomes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator

import pytest
from support.late import confluent

from tests.clients.conftest import RunningBroker
from tests.support.waiting import until

TIMEOUT_S = 60


def topic_of(broker: RunningBroker, stem: str = "topic") -> str:
    return asyncio.run(broker.topic(stem))


def producing(broker: RunningBroker, name: str, timeout_ms: int = 60_000) -> confluent.Producer:
    options = {"transactional.id": name, "transaction.timeout.ms": timeout_ms, "linger.ms": 0}
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap, **options})
    producer.init_transactions(TIMEOUT_S)
    return producer


def consuming(broker: RunningBroker, group: str, isolation_level: str = "read_committed") -> confluent.Consumer:
    return confluent.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )


def send(producer: confluent.Producer, topic: str, *numbers: int) -> None:
    """Return when the broker has answered."""
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def commit(producer: confluent.Producer, topic: str, *numbers: int) -> None:
    producer.begin_transaction()
    send(producer, topic, *numbers)
    producer.commit_transaction(TIMEOUT_S)


def values(broker: RunningBroker, topic: str, isolation_level: str = "read_committed") -> list[int]:
    """Return the records of partition 0 to its end."""
    consumer = consuming(broker, "values", isolation_level)
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    records = iter(lambda: consumer.poll(TIMEOUT_S), None)
    found = [int(record.value()) for record in itertools.takewhile(lambda record: record.error() is None, records)]
    consumer.close()
    return found


def until_end(broker: RunningBroker, topic: str, offset: int) -> None:
    """Wait until partition 0 ends at an offset, as it does when markers have come."""
    consumer = consuming(broker, "ends", "read_uncommitted")
    until(lambda: consumer.get_watermark_offsets(confluent.TopicPartition(topic, 0), TIMEOUT_S)[1] >= offset)
    consumer.close()


def refusal(call: Callable[[float], None]) -> confluent.KafkaError:
    with pytest.raises(confluent.KafkaException) as raised:
        call(TIMEOUT_S)
    error: confluent.KafkaError = raised.value.args[0]
    return error


def test_committed_records_are_seen_and_aborted_ones_are_not(broker: RunningBroker) -> None:
    topic = topic_of(broker)
    producer = producing(broker, broker.name("id"))
    commit(producer, topic, 1, 2)
    producer.begin_transaction()
    send(producer, topic, 3)
    producer.abort_transaction(TIMEOUT_S)
    commit(producer, topic, 4)
    assert values(broker, topic) == [1, 2, 4]
    assert values(broker, topic, "read_uncommitted") == [1, 2, 3, 4]


def test_a_second_producer_fences_the_first_and_aborts_what_it_began(broker: RunningBroker) -> None:
    topic, name = topic_of(broker), broker.name("id")
    first = producing(broker, name)
    first.begin_transaction()
    send(first, topic, 1)
    second = producing(broker, name)
    error = refusal(first.commit_transaction)
    assert (error.code(), error.fatal()) == (confluent.KafkaError._FENCED, True)
    commit(second, topic, 2)
    assert values(broker, topic) == [2]
    assert values(broker, topic, "read_uncommitted") == [1, 2]


def test_a_transaction_that_has_timed_out_is_aborted_and_its_commit_refused(broker: RunningBroker) -> None:
    topic, name = topic_of(broker), broker.name("id")
    producer = producing(broker, name, timeout_ms=2_000)
    producer.begin_transaction()
    send(producer, topic, 1)
    until_end(broker, topic, 2)
    error = refusal(producer.commit_transaction)
    assert (error.code(), error.fatal()) == (confluent.KafkaError._FENCED, True)
    commit(producing(broker, name), topic, 2)
    assert values(broker, topic) == [2]
    assert values(broker, topic, "read_uncommitted") == [1, 2]


def test_a_copy_commits_its_offsets_with_its_records_or_not_at_all(broker: RunningBroker) -> None:
    source, copy, group = topic_of(broker, "source"), topic_of(broker, "copy"), broker.name("group")
    filler = producing(broker, broker.name("id"))
    commit(filler, source, 0, 1, 2)
    commit(filler, source, 3, 4, 5)
    here = [confluent.TopicPartition(source, 0)]
    consumer = consuming(broker, group)
    consumer.subscribe([source])
    producer = producing(broker, broker.name("id"))

    def read() -> Iterator[int]:
        for record in iter(lambda: consumer.poll(TIMEOUT_S), None):
            if record.error() is None:
                yield int(record.value())

    for must_abort, offset in ((False, 3), (True, 3), (False, 7)):
        numbers = list(itertools.islice(read(), 3))
        producer.begin_transaction()
        send(producer, copy, *numbers)
        producer.send_offsets_to_transaction(consumer.position(here), consumer.consumer_group_metadata(), TIMEOUT_S)
        if must_abort:
            producer.abort_transaction(TIMEOUT_S)
            consumer.seek(consumer.committed(here, TIMEOUT_S)[0])
        else:
            producer.commit_transaction(TIMEOUT_S)
        assert [each.offset for each in consumer.committed(here, TIMEOUT_S)] == [offset]
    consumer.close()
    assert values(broker, copy) == [0, 1, 2, 3, 4, 5]
    assert values(broker, copy, "read_uncommitted") == [0, 1, 2, 3, 4, 5, 3, 4, 5]
