"""Batches of sarama 1.43, which writes no largest timestamp: time look-ups find their records, as with Apache Kafka."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from conformance.building import TOOLS, built
from conformance.raw_connection import until_led
from support.kafka_broker import ApacheKafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

FOLDER, TOPIC = "sarama-1.43", "no-largest-timestamp"
COUNT = 2000
HOUR_MS = 3_600_000
WAIT_S = 60


def check(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WAIT_S)
    until_led(bootstrap, TOPIC)
    first_ms = time.time_ns() // 1_000_000 - HOUR_MS  # wall clock: timestamps of records
    command = ["bin/producer", bootstrap, TOPIC, str(COUNT), str(first_ms)]
    done = subprocess.run(command, cwd=built(FOLDER), capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": TOPIC})
    asked = [-5, 0, 1, COUNT // 2, COUNT - 1, COUNT]
    found = [
        consumer.offsets_for_times([TopicPartition(TOPIC, 0, first_ms + delay)], WAIT_S)[0].offset for delay in asked
    ]
    consumer.close()
    assert found == [0, 0, 1, COUNT // 2, COUNT - 1, -1]


def test_apache_kafka(apache_kafka: ApacheKafka, need: Callable[..., None]) -> None:
    need(*TOOLS[FOLDER])
    check(apache_kafka.bootstrap)


def test_millrace(bootstrap: str, need: Callable[..., None]) -> None:
    need(*TOOLS[FOLDER])
    check(bootstrap)
