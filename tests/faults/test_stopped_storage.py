"""Storage stands still: the gateway itself keeps the times that requests name."""

import asyncio

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from up_process import RunningUp

from tests.groups.talk import GroupTalk
from tests.support.frozen import frozen

ANY_PORTS = ("--kafka-port", "0", "--http-port", "0")
#: Far below the 25 s after which keepalive finds a storage that stands still.
SOON_S = 15


def produce(value):
    records = build_batch([Record(0, 1_700_000_000_000, None, value)])
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(acks=-1, timeout_ms=100, topic_data=(TopicProduceData(name="t", partition_data=(data,)),))


def fetch(max_wait_ms):
    partition = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
    topic = FetchTopic(topic="t", partitions=(partition,))
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1000, topics=(topic,))


@pytest.mark.timeout(180)
async def test_requests_are_answered_when_their_time_is_over():
    with RunningUp(*ANY_PORTS, "--processes", environment={"MILLRACE_TOPICS": "t:1"}) as up:
        (storage,) = up.services()["storage-svc"]
        host, _, port = up.kafka.rpartition(":")
        talk = GroupTalk((host, int(port)), "g", {})
        first = await talk.ask("a", 0, 9, produce(b"before"))
        assert first.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        create = CreateTopicsRequest(
            topics=(CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=(), configs=()),),
            timeout_ms=100,
        )
        with frozen(storage):
            async with asyncio.timeout(SOON_S):
                produced, fetched, created = await asyncio.gather(
                    talk.ask("a", 0, 9, produce(b"late")),
                    talk.ask("b", 1, 11, fetch(100)),
                    talk.ask("c", 19, 5, create),
                )
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        (partition,) = fetched.responses[0].partitions
        assert (partition.error_code, partition.high_watermark, partition.records) == (ErrorCode.NONE, -1, b"")
        assert created.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        again = await talk.ask("a", 0, 9, produce(b"after"))
        assert again.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        await talk.close()
