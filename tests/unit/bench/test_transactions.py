"""The bench's driver of transactions: a broker has the records that it reports as committed."""

from __future__ import annotations

from collections.abc import Iterator

import millrace
import pytest
from raw import connect, fetch_frame, receive, records_position
from readback import check
from support.late import confluent
from transactions import Transactions, transact

LOADS = {
    "alone": Transactions("alone", partitions=3, records=5),
    "together": Transactions("together", partitions=2, records=3, producers=4),
    "long": Transactions("long", partitions=2, records=3, requests=4),
}
COUNT = 9


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    topics = [f"{name}:{load.partitions}" for name, load in LOADS.items()]
    with millrace.Broker(topics=",".join([*topics, "plain:2"])) as broker:
        yield broker.bootstrap_servers


def committed(address: str, topic: str, partitions: int) -> int:
    """Return the number of records that a committed consumer gets."""
    options = {"bootstrap.servers": address, "group.id": topic, "enable.partition.eof": True}
    consumer = confluent.Consumer({**options, "isolation.level": "read_committed"})
    consumer.assign([confluent.TopicPartition(topic, index, 0) for index in range(partitions)])
    count = ends = 0
    while ends < partitions:
        for record in consumer.consume(1000, timeout=0.1):
            error = record.error()
            ends += error is not None and error.code() == confluent.KafkaError._PARTITION_EOF
            count += error is None
    consumer.close()
    return count


@pytest.mark.parametrize("name", LOADS)
def test_every_transaction_is_committed_once(address: str, name: str) -> None:
    load = LOADS[name]
    _, size = transact(address, load, COUNT)
    records = COUNT * load.requests * load.records
    assert size > records * load.partitions * load.record_bytes
    for partition in range(load.partitions):
        check(address, name, partition, records + COUNT, records + COUNT, None)
    assert committed(address, name, load.partitions) == records * load.partitions


def test_the_same_requests_without_transactions(address: str) -> None:
    load = Transactions("plain", partitions=2, records=5)
    transact(address, load, COUNT, plain=True)
    for partition in range(2):
        check(address, "plain", partition, COUNT * 5, COUNT * 5, None)


def test_a_fetch_of_committed_records_has_the_same_layout(address: str) -> None:
    load = Transactions("plain", partitions=2, records=5)
    transact(address, load, 1, plain=True)
    answers = []
    for is_committed in (False, True):
        with connect(address) as connection:
            connection.sendall(fetch_frame("plain", 0, 0, 1 << 20, committed=is_committed))
            answers.append(receive(connection, int.from_bytes(receive(connection, 4), "big")))
    at = records_position("plain")
    assert answers[0][at:] == answers[1][at:] != b""
    assert answers[0][at - 26 : at - 24] == b"\0\0"
