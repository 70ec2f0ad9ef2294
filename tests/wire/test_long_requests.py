"""Requests of hundreds of partitions, which are served in turns: their answers and their order are those of others."""

from __future__ import annotations

import pytest
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.metadata import MetadataRequest
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.legacy import build_message_set
from protocol_lib.records.record import read_records
from service_chassis import shared_turns

from tests.wire.conftest import Running, batch, produce_request

COUNT = 1201


def long_produce(acks: int, version: int) -> ProduceRequest:
    """Return a request with a batch for the same partition many times, and one for a partition that does not exist."""
    records = batch(b"v") if version >= 3 else build_message_set(list(read_records(batch(b"v"))), magic=1)
    data = tuple(PartitionProduceData(index=0, records=records) for _ in range(COUNT if version >= 3 else 900))
    unknown = PartitionProduceData(index=7, records=records)
    topics = (TopicProduceData(name="single", partition_data=(*data, unknown)),)
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)


@pytest.mark.parametrize(("acks", "version", "count"), [(1, 7, COUNT), (-1, 7, COUNT), (1, 2, 900)])
async def test_no_later_request_overtakes_a_long_append(
    broker: Running, acks: int, version: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_turns, "TURN_S", 0.0)  # one piece a turn, however fast this machine is
    wire = await broker.connect()
    wire.send(0, version, long_produce(acks, version))
    wire.send(0, 7, produce_request("single", batch(b"later"), acks=acks))
    _, response = await wire.receive()
    (topic,) = response.responses
    rows = [(row.index, row.error_code, row.base_offset) for row in topic.partition_responses]
    assert rows == [*((0, 0, offset) for offset in range(count)), (7, 3, -1)]
    _, later = await wire.receive()
    assert later.responses[0].partition_responses[0].base_offset == count
    await wire.close()


async def test_a_long_append_without_acknowledgement(broker: Running) -> None:
    wire = await broker.connect()
    request = long_produce(0, 7)
    request.topic_data[0].partition_data = request.topic_data[0].partition_data[:-1]
    wire.send(0, 7, request)
    response = await wire.call(0, 7, produce_request("single", batch(b"later")))
    assert response.responses[0].partition_responses[0].base_offset == COUNT
    wire.send(0, 7, long_produce(0, 7))
    assert await wire.closed() == b""


async def test_a_client_that_leaves_during_a_long_append(broker: Running) -> None:
    wire = await broker.connect()
    wire.send(0, 7, long_produce(1, 7))
    await wire.writer.drain()
    await wire.close()
    other = await broker.connect()
    response = await other.call(3, 9, MetadataRequest(topics=None))
    assert {each.name for each in response.topics} >= {"single", "orders"}
    await other.close()


async def test_a_long_commit_and_a_long_fetch(broker: Running) -> None:
    wire = await broker.connect()
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="")
        for index in range(COUNT)
    )
    commit = OffsetCommitRequest(group_id="g", topics=(OffsetCommitRequestTopic(name="single", partitions=partitions),))
    committed = await wire.call(8, 7, commit)
    assert [each.partition_index for each in committed.topics[0].partitions] == list(range(COUNT))
    offsets = OffsetFetchRequest(
        group_id="g", topics=(OffsetFetchRequestTopic(name="single", partition_indexes=tuple(range(COUNT))),)
    )
    (topic,) = (await wire.call(9, 7, offsets)).topics
    assert [each.partition_index for each in topic.partitions] == list(range(COUNT))
    assert topic.partitions[0].committed_offset == 0
    await wire.call(0, 7, produce_request("single", batch(b"value"), acks=-1))
    wanted = tuple(
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in reversed(range(COUNT))
    )
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=(FetchTopic(topic="single", partitions=wanted),))
    (fetched,) = (await wire.call(1, 11, fetch)).responses
    rows = [(row.partition_index, row.error_code, len(row.records or b"")) for row in fetched.partitions]
    assert rows == [*((index, 3, 0) for index in range(COUNT - 1, 0, -1)), (0, 0, len(batch(b"value")))]
    await wire.close()
