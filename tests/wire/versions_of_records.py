"""Cases of test_every_version.py: Produce, Fetch, offsets and epochs of partitions, producer ids."""

from __future__ import annotations

from typing import Any

from protocol_lib.api import ApiKey
from protocol_lib.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.init_producer_id import InitProducerIdRequest
from protocol_lib.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol_lib.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.legacy import Message, build_message_set, read_messages
from protocol_lib.records.record import read_records

from tests.wire.conftest import batch
from tests.wire.version_case import Case

RECORDS = batch(b"a", b"b")


def ask_produce(version: int, topic_id: bytes) -> Any:
    records = RECORDS if version >= 3 else build_message_set(list(read_records(RECORDS)), magic=version // 2)
    data = PartitionProduceData(index=0, records=records)
    named = {"topic_id": topic_id} if version >= 13 else {"name": "single"}
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=(TopicProduceData(**named, partition_data=(data,)),))


def check_produce(version: int, response: Any, topic_id: bytes) -> None:
    (topic,) = response.responses
    assert (topic.topic_id if version >= 13 else topic.name) == (topic_id if version >= 13 else "single")
    (partition,) = topic.partition_responses
    assert (partition.error_code, partition.base_offset) == (0, 2)  # after the batch that was there before


def ask_fetch(version: int, topic_id: bytes) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
    named = {"topic_id": topic_id} if version >= 13 else {"topic": "single"}
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=(FetchTopic(**named, partitions=(partition,)),))


def check_fetch(version: int, response: Any, topic_id: bytes) -> None:
    assert (response.error_code, response.session_id) == (0, 0)
    (topic,) = response.responses
    assert (topic.topic_id if version >= 13 else topic.topic) == (topic_id if version >= 13 else "single")
    (partition,) = topic.partitions
    assert (partition.error_code, partition.high_watermark) == (0, 2)
    if version < 4:
        (message,) = read_messages(partition.records)
        timestamp = 1_700_000_000_000 if version >= 2 else -1
        assert message == Message(1, version // 2, 0, timestamp, None, b"b")
        return
    assert partition.last_stable_offset == 2
    assert bytes(partition.records)[16:] == RECORDS[16:]


def ask_list_offsets(_version: int, _topic_id: bytes) -> Any:
    """Ask for one offset; test_list_offsets.py asks for every special one."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="single", partitions=(partition,)),))


def check_list_offsets(version: int, response: Any, _topic_id: bytes) -> None:
    ((found,),) = (topic.partitions for topic in response.topics)
    assert found.error_code == 0
    assert found.old_style_offsets == (2,) if version == 0 else (found.timestamp, found.offset) == (-1, 2)


def ask_delete_records(_version: int, _topic_id: bytes) -> Any:
    partitions = tuple(DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (1, -2, 3, 0, -1))
    unknown = DeleteRecordsPartition(partition_index=1, offset=0)
    topic = DeleteRecordsTopic(name="single", partitions=(*partitions, unknown))
    return DeleteRecordsRequest(topics=(topic,), timeout_ms=1000)


def check_delete_records(_version: int, response: Any, _topic_id: bytes) -> None:
    (topic,) = response.topics
    rows = [(each.partition_index, each.error_code, each.low_watermark) for each in topic.partitions]
    # As in Apache Kafka, only the last of the offsets for a partition counts.
    assert rows == [(0, 0, 2), (1, 3, -1)]


def ask_offset_for_leader_epoch(version: int, _topic_id: bytes) -> Any:
    asked = ((0, -1), (1, -1), (-1, -1), (0, 0), (0, 5)) if version >= 2 else ((0, -1), (1, -1), (-1, -1))
    partitions = tuple(
        OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        for epoch, current in asked
    )
    return OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic(topic="single", partitions=partitions),))


def check_offset_for_leader_epoch(version: int, response: Any, _topic_id: bytes) -> None:
    (topic,) = response.topics
    rows = [(each.error_code, each.leader_epoch if version else -1, each.end_offset) for each in topic.partitions]
    epoch = 0 if version else -1
    assert rows[:3] == [(0, epoch, 2), (0, -1, -1), (0, -1, -1)]
    assert rows[3:] == ([(0, 0, 2), (75, -1, -1)] if version >= 2 else [])


def ask_init_producer_id(_version: int, _topic_id: bytes) -> Any:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)


def check_init_producer_id(_version: int, response: Any, _topic_id: bytes) -> None:
    assert (response.error_code, response.producer_epoch) == (0, 0)
    assert response.producer_id >= 0


CASES: dict[ApiKey, Case] = {
    ApiKey.PRODUCE: (ask_produce, check_produce),
    ApiKey.FETCH: (ask_fetch, check_fetch),
    ApiKey.LIST_OFFSETS: (ask_list_offsets, check_list_offsets),
    ApiKey.DELETE_RECORDS: (ask_delete_records, check_delete_records),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (ask_offset_for_leader_epoch, check_offset_for_leader_epoch),
    ApiKey.INIT_PRODUCER_ID: (ask_init_producer_id, check_init_producer_id),
}
