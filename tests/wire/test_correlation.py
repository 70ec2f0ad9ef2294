"""One correlation id finds a request in the debug logs of both services."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import pytest
from protocol_lib.api import APIS
from protocol_lib.codec import encode
from protocol_lib.headers import RequestHeader, encode_request_header
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from up_process import RunningUp

from tests.wire.conftest import batch

OFFSETS = OffsetCommitRequestTopic(
    name="orders",
    partitions=(OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata=None),),
)
REQUESTS = {
    "Produce": (
        0,
        9,
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=5000,
            topic_data=(
                TopicProduceData(
                    name="orders", partition_data=(PartitionProduceData(index=0, records=batch(b"secret")),)
                ),
            ),
        ),
    ),
    "Fetch": (
        1,
        4,
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=(
                FetchTopic(
                    topic="orders",
                    partitions=(FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000),),
                ),
            ),
        ),
    ),
    "ListOffsets": (
        2,
        4,
        ListOffsetsRequest(
            replica_id=-1,
            topics=(
                ListOffsetsTopic(name="orders", partitions=(ListOffsetsPartition(partition_index=0, timestamp=-1),)),
            ),
        ),
    ),
    "Metadata": (3, 9, MetadataRequest(topics=(MetadataRequestTopic(name="orders"),))),
    "Heartbeat": (12, 0, HeartbeatRequest(group_id="g", generation_id=1, member_id="m")),
    "OffsetCommit": (8, 2, OffsetCommitRequest(group_id="g", topics=(OFFSETS,))),
    "ConsumerGroupHeartbeat": (68, 0, ConsumerGroupHeartbeatRequest(group_id="c", member_id="m", member_epoch=7)),
}


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    """The log lines of both services after each of the requests, whose correlation ids are 7000 and up."""
    environment = {"MILLRACE_LOG_LEVEL": "debug", "MILLRACE_TOPICS": "orders"}
    with RunningUp("--processes", "--kafka-port", "0", "--http-port", "0", environment=environment) as up:
        host, _, port = up.kafka.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            stream = connection.makefile("rb")
            for number, (api_key, version, request) in enumerate(REQUESTS.values()):
                header = encode_request_header(RequestHeader(api_key, version, 7000 + number, "finder"))
                frame = header + encode(request, version)
                connection.sendall(struct.pack(">i", len(frame)) + frame)
                (length,) = struct.unpack(">i", stream.read(4))
                assert struct.unpack(">i", stream.read(length)[:4]) == (7000 + number,)
        assert up.stop() == 0
        return [json.loads(line) for line in up.log().splitlines() if line.startswith("{")]


@pytest.mark.parametrize("api", REQUESTS)
def test_an_id_finds_a_request_in_both_services(lines: list[dict[str, Any]], api: str) -> None:
    correlation_id = 7000 + list(REQUESTS).index(api)
    found = {line["service"] for line in lines if line.get("correlation_id") == correlation_id}
    assert found == {"gateway-svc", "storage-svc"}
    assert api in APIS[REQUESTS[api][0]].name


def test_no_record_is_in_a_log(lines: list[dict[str, Any]]) -> None:
    assert "secret" not in json.dumps(lines)
