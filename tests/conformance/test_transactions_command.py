"""TransactionsCommand finds and aborts a hanging transaction, and prints the same as with Apache Kafka.

A transaction hangs when a log has its records and no coordinator knows it. Brokers that verify partitions let none
begin, so these brokers do not verify.
"""

from __future__ import annotations

import time
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from conformance.raw_connection import Connection, until_led
from conformance.test_data_tools import OWN, printed
from millrace.broker import Broker
from protocol_lib.api import ApiKey
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from support.kafka_broker import ApacheKafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

TOPIC = "audited"
HANGING_ID = 4_000_000
AT = "--bootstrap-server BROKER"
PLACE = f"--topic {TOPIC} --partition 0"
COMMANDS = [
    ("TransactionsCommand", "", f"{AT} {arguments}")
    for arguments in (
        "list",
        "list --transactional-id-pattern o.*",
        "describe --transactional-id open",
        "describe --transactional-id ended",
        "describe --transactional-id nowhere",
        f"describe-producers {PLACE}",
        "find-hanging",
        "find-hanging --broker-id 1",
        f"find-hanging --topic {TOPIC}",
        f"find-hanging --topic {TOPIC} --partition 1",
        f"abort {PLACE} --start-offset 0",
        f"abort {PLACE} --start-offset 0",
        f"abort {PLACE} --producer-id {HANGING_ID} --producer-epoch 0 --coordinator-epoch 0",
        "find-hanging --broker-id 1",
        f"describe-producers {PLACE}",
        "list",
    )
]
#: Widths of columns, times, ages in ms and in minutes.
TIMES = [(r"[ \t]+", " "), (r"\b1\d{12}\b", "TIME"), (r"(60000 TIME) \d+", r"\1 AGE"), (r"TIME 6\d\b", "TIME AGE")]


def begin(bootstrap: str) -> None:
    """Leave a hanging transaction at offset 0 of partition 0, an open one after it, and an ended one in partition 1."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(TOPIC, 2)])[TOPIC].result(30)
    until_led(bootstrap, TOPIC, 2)
    an_hour_ago = int(time.time() - 3600) * 1000  # wall clock: the timestamp of an old record
    batch = build_batch(
        [Record(0, an_hour_ago, None, b"lost")],
        producer_id=HANGING_ID,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    data = TopicProduceData(name=TOPIC, partition_data=(PartitionProduceData(index=0, records=batch),))
    request = ProduceRequest(transactional_id="gone", acks=-1, timeout_ms=10_000, topic_data=(data,))
    connection = Connection(bootstrap)
    assert connection.call(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0].error_code == 0
    connection.close()
    for name, partition in (("ended", 1), ("open", 0)):
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(TOPIC, name, partition=partition)
        assert producer.flush(30) == 0
        if name == "ended":
            producer.commit_transaction()


def lines(output: str) -> list[str]:
    return sorted(line.rstrip() for line in output.splitlines())


def test_a_hanging_transaction_is_found_and_aborted(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "kafka", {"transaction.partition.verification.enable": "false"}) as kafka:
        begin(kafka.bootstrap)
        kafkas = printed(kafka.bootstrap, {}, COMMANDS, [*OWN, *TIMES])
    with Broker(transaction_partition_verification_enable=False) as broker:
        begin(broker.bootstrap_servers)
        ours = printed(broker.bootstrap_servers, {}, COMMANDS, [*OWN, *TIMES])
    assert len(ours) == len(kafkas) == len(COMMANDS)
    for (_, _, arguments), our, their in zip(COMMANDS, ours, kafkas, strict=True):
        # Kafka lists producers in the order of a hash map: lines are sorted.
        assert lines(our) == lines(their), arguments
    assert f"{TOPIC} 0 {HANGING_ID} 0 -1 0 TIME AGE" in ours[7]
    assert f"{HANGING_ID} 0 0 0 TIME None" in ours[-2]
