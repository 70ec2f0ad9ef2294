"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and Fetch: the same answers from Apache Kafka 4.3.0 and Millrace.

Both are asked the same in every version that both serve, about a topic with the same records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from conformance.raw_connection import WAIT_S, Connection, until_led
from millrace.broker import Broker
from protocol_lib.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol_lib.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from support.kafka_broker import ApacheKafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(180)]

TIME = 1_790_000_000_000
#: The records' timestamps, batch by batch.
BATCHES = ((100, 300, 200), (250, 250), (400, 150), (400,), (-1,))


@pytest.fixture(scope="module")
def both(apache_kafka: ApacheKafka) -> Iterator[list[Connection]]:
    """Kafka, and Millrace, each with the topics `offsets-records`, `offsets-empty` and `offsets-compacted`."""
    with Broker() as broker:
        connections = []
        for bootstrap in (apache_kafka.bootstrap, broker.bootstrap_servers):
            new = [NewTopic(f"offsets-{name}", 1, 1, config=WIDE) for name in ("records", "empty", "deleted")]
            new.append(NewTopic("offsets-compacted", 1, 1, config=WIDE | {"cleanup.policy": "compact"}))
            admin = AdminClient({"bootstrap.servers": bootstrap})
            for made in admin.create_topics(new).values():
                made.result(WAIT_S)
            for each in new:
                until_led(bootstrap, each.topic)
            connections.append(Connection(bootstrap))
        for connection in connections:
            for topic in ("records", "deleted", "compacted"):
                produce(connection, f"offsets-{topic}")
        yield connections
        for connection in connections:
            connection.close()


WIDE = {"message.timestamp.after.max.ms": str(2**62)}


def produce(connection: Connection, topic: str) -> None:
    for times in BATCHES:
        records = [Record(n, TIME + each if each >= 0 else -1, b"k", b"v") for n, each in enumerate(times)]
        data = PartitionProduceData(index=0, records=build_batch(records, codec=Codec.GZIP))
        topic_data = (TopicProduceData(name=topic, partition_data=(data,)),)
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topic_data)
        assert _code(connection.call(0, 9, request)) == 0


def _code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


def same(both: list[Connection], api_key: int, version: int, request: Any, shown: Any) -> Any:
    theirs, ours = (shown(connection.call(api_key, version, request)) for connection in both)
    assert ours == theirs
    return ours


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("topic", ["records", "empty"])
def test_list_offsets(both: list[Connection], topic: str, isolation: int, version: int) -> None:
    stamps = [-1, -2, -3, -4, -5, -6, -7, 0, *(TIME + each for each in (100, 150, 201, 250, 251, 301, 400, 401))]
    for stamp in stamps:
        asked = ListOffsetsTopic(
            name=f"offsets-{topic}", partitions=(ListOffsetsPartition(partition_index=0, timestamp=stamp),)
        )
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=(asked,), timeout_ms=5000)
        same(both, 2, version, request, offset_shown)


def offset_shown(answer: Any) -> tuple[int, ...]:
    (partition,) = answer.topics[0].partitions
    return partition.error_code, partition.timestamp, partition.offset, partition.leader_epoch


@pytest.mark.parametrize("version", [2, 3, 4])
def test_offset_for_leader_epoch(both: list[Connection], version: int) -> None:
    for topic in ("records", "empty", "nowhere"):
        for epoch, current in ((0, -1), (0, 0), (1, 0), (-1, 0), (0, 1), (5, -1)):
            asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
            request = OffsetForLeaderEpochRequest(
                topics=(OffsetForLeaderTopic(topic=f"offsets-{topic}", partitions=(asked,)),)
            )
            same(both, 23, version, request, lambda answer: answer.topics)


def test_delete_records(both: list[Connection]) -> None:
    def asked(topic: str, offset: int, version: int) -> tuple[int, int]:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(name=topic, partitions=(partition,)),), timeout_ms=5000
        )
        answer = same(both, 21, version, request, lambda answer: answer.topics)
        return answer[0].partitions[0].error_code, answer[0].partitions[0].low_watermark

    for version in (0, 1, 2):
        assert asked("offsets-deleted", 2, version) == (0, 2)
    assert asked("offsets-deleted", 1, 2) == (0, 2)
    assert asked("offsets-deleted", -2, 2) == (1, -1)
    assert asked("offsets-deleted", 10, 2) == (1, -1)
    assert asked("offsets-nowhere", 0, 2) == (3, -1)
    assert asked("offsets-compacted", 0, 2) == (44, -1)
    assert asked("offsets-deleted", -1, 2) == (0, 9)
    assert asked("offsets-deleted", 9, 2) == (0, 9)


@pytest.mark.parametrize("version", range(4, 13))
def test_fetch_at_every_offset(both: list[Connection], version: int) -> None:
    """From below the beginning to after the end, with limits that cut records off; the bytes are compared too."""
    for offset in range(-1, 12):
        for max_bytes in (0, 1, 100, 200, 1 << 20):
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
            topics = (FetchTopic(topic="offsets-records", partitions=(partition,)),)
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)
            same(both, 1, version, request, fetched)


def fetched(answer: Any) -> tuple[int, bytes]:
    """Return the error, and whole batches: Kafka's answer may end inside one."""
    (partition,) = answer.responses[0].partitions
    data, position = bytes(partition.records or b""), 0
    while position + 12 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size > len(data):
            break
        position += size
    return partition.error_code, data[:position]
