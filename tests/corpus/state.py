"""The state in which every recording begins: a topic with a few records in each partition."""

from __future__ import annotations

from conformance.raw_connection import Connection
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record

PARTITIONS = 2
RECORDS = 2
#: Near the times of the recordings: a segment holds the records of a week, and Kafka reads from one segment at a time.
TIMESTAMP_MS = 1_795_400_000_000


def fill(bootstrap: str, topic: str) -> None:
    """Write the records of the topic, which must be there."""
    connection = Connection(bootstrap)
    for index in range(PARTITIONS):
        values = (str(number).encode() for number in range(RECORDS))
        batch = build_batch([Record(number, TIMESTAMP_MS, b"key", value) for number, value in enumerate(values)])
        data = PartitionProduceData(index=index, records=batch)
        topics = (TopicProduceData(name=topic, partition_data=(data,)),)
        answer = connection.call(0, 9, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics))
        assert answer.responses[0].partition_responses[0].error_code == 0
    connection.close()
