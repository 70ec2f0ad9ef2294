"""Consumer groups of KIP-848 as librdkafka's consumer uses them: group.protocol=consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from millrace.broker import Broker
from support.late import confluent

WAIT_S = 60.0
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(
        topics="orders:4",
        group_consumer_heartbeat_interval_ms=200,
        group_consumer_min_heartbeat_interval_ms=1,
        group_consumer_assignment_interval_ms=0,
    ) as broker:
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for partition in range(4):
            for number in range(5):
                producer.produce("orders", f"{partition}.{number}", partition=partition)
        assert producer.flush(60) == 0
        yield broker


@pytest.fixture
def open_consumer(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Open]:
    consumers = []

    def open_(**settings: object) -> confluent.Consumer:
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": request.node.name,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        consumers.append(consumer)
        return consumer

    yield open_
    for consumer in consumers:
        consumer.close()


def until(condition: Callable[[], bool], *consumers: confluent.Consumer) -> list[str]:
    """Poll the consumers until the condition holds; return the values of the records received in that time."""
    values: list[str] = []
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        for consumer in consumers:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:  # a deleted topic is reported as an error
                values.append(message.value().decode())
    return values


def partitions(consumer: confluent.Consumer) -> set[int]:
    return {each.partition for each in consumer.assignment() if each.topic == "orders"}


def test_a_pattern_finds_topics_that_are_made_later(broker: Broker, open_consumer: Open) -> None:
    consumer = open_consumer()
    consumer.subscribe(["^later-[ab]$"])
    admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for name in ("later-a", "later-b", "later-c"):
        admin.create_topics([confluent.admin.NewTopic(name, 1)])[name].result(60)
    until(lambda: {each.topic for each in consumer.assignment()} == {"later-a", "later-b"}, consumer)
    admin.delete_topics(["later-a"])["later-a"].result(60)
    until(lambda: {each.topic for each in consumer.assignment()} == {"later-b"}, consumer)


def test_members_of_both_protocols_share_and_the_classic_one_stays(open_consumer: Open) -> None:
    cooperative = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 200}
    classic = open_consumer(**{"group.protocol": "classic"}, **cooperative)
    classic.subscribe(["orders"])
    until(lambda: len(partitions(classic)) == 4, classic)
    modern = open_consumer()
    modern.subscribe(["orders"])
    until(lambda: (len(partitions(classic)), len(partitions(modern))) == (2, 2), classic, modern)
    assert not partitions(classic) & partitions(modern)
    modern.close()
    until(lambda: len(partitions(classic)) == 4, classic)


def test_the_admin_client_sees_the_group(broker: Broker, open_consumer: Open) -> None:
    consumer = open_consumer(**{"client.id": "seen"})
    consumer.subscribe(["orders"])
    until(lambda: len(partitions(consumer)) == 4, consumer)
    group_id = "test_the_admin_client_sees_the_group"
    admin = confluent.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    described = admin.describe_consumer_groups([group_id])[group_id].result(60)
    assert described.type is confluent.ConsumerGroupType.CONSUMER
    assert described.state is confluent.ConsumerGroupState.STABLE
    (member,) = described.members
    assert member.client_id == "seen"
    assert {each.partition for each in member.assignment.topic_partitions} == {0, 1, 2, 3}
    listed = admin.list_consumer_groups().result(60)
    assert [each.type for each in listed.valid if each.group_id == group_id] == [described.type]
