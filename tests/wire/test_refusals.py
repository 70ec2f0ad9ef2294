"""Bad input: the gateway answers or closes, with one log line and one count, and serves the others."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from gateway_svc.handlers import HANDLERS
from gateway_svc.requests.handler import ELEMENTS_MAX
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocol_lib.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic

from tests.wire.conftest import (
    CLIENT_ID,
    Running,
    StartBroker,
    SynchronousBroker,
    batch,
    produce,
    produce_request,
    until,
)

LogLines = Callable[[], list[dict[str, Any]]]


async def still_serves(broker: Running) -> None:
    wire = await broker.connect()
    response: ApiVersionsResponse = await wire.call(18, 0, ApiVersionsRequest())
    assert response.error_code == 0
    await wire.close()


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", -1), "frame_length"),
        (struct.pack(">i", 0), "frame_length"),
        (struct.pack(">i", 7) + b"\0" * 7, "frame_length"),
        (struct.pack(">i", 2**31 - 1), "frame_length"),
        (struct.pack(">i", 104_857_601), "frame_length"),
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "frame_length"),
        (struct.pack(">ihhih", 10, 3, 0, 1, 500), "malformed_header"),
        (struct.pack(">ihhih", 10, 3, 0, 1, -2), "malformed_header"),
        (struct.pack(">ihhihi", 14, 3, 0, 1, -1, 2**31 - 1), "malformed_body"),
        (struct.pack(">ihhihix", 15, 3, 0, 1, -1, 1), "malformed_body"),
    ],
)
async def test_bytes_that_are_no_request(broker: Running, log_lines: LogLines, sent: bytes, reason: str) -> None:
    wire = await broker.connect()
    wire.writer.write(sent)
    assert await wire.closed() == b""
    (line,) = log_lines()
    assert line["event"] == "request refused"
    assert line["reason"] == reason
    assert line["peer"].startswith("127.0.0.1:")
    assert broker.refused == {reason: 1}
    await still_serves(broker)


@pytest.mark.parametrize("part", [1, 3, 4, 9, 40])
async def test_a_frame_cut_in_half(broker: Running, log_lines: LogLines, part: int) -> None:
    wire = await broker.connect()
    body = struct.pack(">ihhih", 100, 3, 0, 1, -1) + b"\0" * 90
    wire.writer.write(body[:part])
    await wire.close()
    await until(lambda: broker.refused != {})
    (line,) = log_lines()
    assert line["reason"] == "frame_cut"
    assert broker.refused == {"frame_cut": 1}


async def test_a_long_frame_cut_in_half(broker: Running, log_lines: LogLines) -> None:
    wire = await broker.connect()
    wire.writer.write(struct.pack(">i", 1_000_000) + bytes(400_000))
    await until(lambda: broker.gateway.memory_held > 0)
    await wire.close()
    await until(lambda: broker.refused != {})
    assert [line["reason"] for line in log_lines()] == ["frame_cut"]
    assert broker.gateway.memory_held == 0


@pytest.mark.parametrize(
    ("api_key", "version", "reason"),
    [
        (999, 0, "unknown_api"),
        (-1, 0, "unknown_api"),
        (4, 0, "unknown_api"),
        (12, 5, "unsupported_version"),
        (1, 19, "unsupported_version"),
        (3, -1, "unsupported_version"),
        (0, 14, "unsupported_version"),
    ],
)
async def test_what_is_not_served(
    broker: Running, log_lines: LogLines, api_key: int, version: int, reason: str
) -> None:
    wire = await broker.connect()
    wire.send_frame(api_key, version, 77, b"\0" * 20)
    assert await wire.closed() == b""
    (line,) = log_lines()
    expected = {"reason": reason, "api_key": api_key, "version": version, "correlation_id": 77, "client_id": CLIENT_ID}
    assert {key: line[key] for key in expected} == expected
    assert broker.refused == {reason: 1}


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    broker: Running, log_lines: LogLines
) -> None:
    wire = await broker.connect()
    wire.send_frame(18, 99, 5, b"whatever it may be")
    frame = await wire.receive_frame()
    # correlation id, error 35, one range: ApiVersions 0-5
    assert frame == struct.pack(">ihihhh", 5, 35, 1, 18, 0, 5)
    assert log_lines() == []
    response = await wire.call(18, 3, ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    assert response.error_code == 0


async def test_a_client_of_another_cluster_is_sent_away(broker: Running) -> None:
    wire = await broker.connect()

    async def asked(version: int, cluster_id: str | None, node_id: int) -> tuple[int, int]:
        request = ApiVersionsRequest(
            client_software_name="x", client_software_version="1", cluster_id=cluster_id, node_id=node_id
        )
        response = await wire.call(18, version, request)
        return response.error_code, len(response.api_keys)

    cluster_id, every = broker.core.logs.cluster_id, len(HANDLERS)
    assert await asked(5, None, -1) == (0, every)
    assert await asked(5, cluster_id, 1) == (0, every)
    assert await asked(5, cluster_id, 77) == (0, every)
    assert await asked(5, "another", 1) == (129, 0)


async def test_bytes_after_a_request_are_ignored(broker: Running, log_lines: LogLines) -> None:
    """librdkafka asks for all topics with null in four bytes, and then sends flags and tags."""
    wire = await broker.connect()
    wire.sent[9] = (3, 13)
    wire.send_frame(3, 13, 9, bytes.fromhex("00000000010000"))
    _, response = await wire.receive()
    assert [topic.name for topic in response.topics] == ["orders", "single"]
    assert log_lines() == []


async def test_records_with_a_wrong_crc(broker: Running, log_lines: LogLines) -> None:
    wire = await broker.connect()
    broken = bytearray(batch(b"one"))
    broken[-2] ^= 1
    assert await produce(wire, "orders", bytes(broken), partition=1) == (2, -1)
    (line,) = log_lines()
    expected = {
        "reason": "CORRUPT_MESSAGE",
        "api_key": 0,
        "version": 7,
        "correlation_id": 1,
        "client_id": CLIENT_ID,
        "topic": "orders",
        "partition": 1,
    }
    assert {key: line[key] for key in expected} == expected
    assert broker.refused == {"CORRUPT_MESSAGE": 1}
    # The connection lives, and so does the partition.
    assert await produce(wire, "orders", batch(b"two"), partition=1) == (0, 0)


@pytest.mark.parametrize(
    ("records", "code", "reason"),
    [
        (batch(b"x" * 1_048_589), 10, "MESSAGE_TOO_LARGE"),
        (b"", 87, "INVALID_RECORD"),
        (batch(b"a") + batch(b"b"), 87, "INVALID_RECORD"),
        (batch(b"a", base_offset=0)[:-1], 87, "INVALID_RECORD"),
        (batch(b"a", control=True), 87, "INVALID_RECORD"),
    ],
)
async def test_records_that_are_not_taken(
    broker: Running, log_lines: LogLines, records: bytes, code: int, reason: str
) -> None:
    wire = await broker.connect()
    assert await produce(wire, "single", records) == (code, -1)
    assert [line["reason"] for line in log_lines()] == [reason]
    assert broker.refused == {reason: 1}


async def test_a_request_without_records_may_not_be_huge(broker: Running, log_lines: LogLines) -> None:
    wire = await broker.connect()
    wire.writer.write(struct.pack(">ihhih", 8 + 2 + (16 << 20), 3, 0, 1, -1) + bytes(16 << 20))
    assert await wire.closed() == b""
    assert [line["reason"] for line in log_lines()] == ["request_too_large"]
    assert broker.refused == {"request_too_large": 1}
    await still_serves(broker)


@pytest.mark.parametrize(
    ("api_key", "size", "reason"),
    [(999, 90_000_000, "unknown_api"), (3, (16 << 20) + 1, "request_too_large"), (8, 100_000_000, "request_too_large")],
)
async def test_a_long_request_that_is_not_served_is_refused_by_its_first_bytes(
    broker: Running, log_lines: LogLines, api_key: int, size: int, reason: str
) -> None:
    wire = await broker.connect()
    wire.writer.write(struct.pack(">ihhi", size, api_key, 0, 77)[:11])
    await wire.writer.drain()
    await until(lambda: wire.reader.at_eof() is False)
    wire.writer.write(struct.pack(">ihhi", size, api_key, 0, 77)[11:])
    assert await wire.closed() == b""
    (line,) = log_lines()
    expected = {"reason": reason, "api_key": api_key, "version": 0, "correlation_id": 77}
    assert {key: line[key] for key in expected} == expected
    assert broker.refused == {reason: 1}
    assert broker.gateway.memory_held == 0


async def test_a_request_of_too_many_elements(broker: Running, log_lines: LogLines) -> None:
    wire = await broker.connect()
    names = tuple(MetadataRequestTopic(name="") for _ in range(ELEMENTS_MAX))
    response = await wire.call(3, 12, MetadataRequest(topics=names, allow_auto_topic_creation=False))
    assert len(response.topics) == 1
    wire.send(3, 12, MetadataRequest(topics=(*names, names[0]), allow_auto_topic_creation=False))
    assert await wire.closed() == b""
    (line,) = log_lines()
    assert (line["reason"], line["api_key"], line["client_id"]) == ("too_many_elements", 3, CLIENT_ID)
    assert broker.refused == {"too_many_elements": 1}
    await still_serves(broker)


async def test_ten_thousand_partitions_of_an_old_client(broker: Running) -> None:
    wire = await broker.connect()
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(10_000)]
    topics = (FetchTopic(topic="single", partitions=tuple(asked)),)
    response = await wire.call(1, 3, FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics))
    assert [each.error_code for each in response.responses[0].partitions] == [0] + 9999 * [3]


async def test_acks_that_do_not_exist(broker: Running, log_lines: LogLines) -> None:
    wire = await broker.connect()
    assert await produce(wire, "single", batch(b"a"), acks=2) == (21, -1)
    assert [line["reason"] for line in log_lines()] == ["INVALID_REQUIRED_ACKS"]


async def test_transactional_records_without_a_transactional_id(broker: Running, log_lines: LogLines) -> None:
    wire = await broker.connect()
    records = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    request = produce_request("single", records)
    request.topic_data += produce_request("orders", batch(b"a")).topic_data
    response = await wire.call(0, 7, request)
    assert [each.partition_responses[0].error_code for each in response.responses] == [53, 53]
    assert [line["reason"] for line in log_lines()] == ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"]
    request.transactional_id = "t"
    response = await wire.call(0, 7, request)
    assert [each.partition_responses[0].error_code for each in response.responses] == [49, 0]


async def test_an_error_with_acks_0_closes_the_connection(broker: Running, log_lines: LogLines) -> None:
    wire = await broker.connect()
    wire.send(0, 7, produce_request("nowhere", batch(b"a"), acks=0))
    assert await wire.closed() == b""
    assert [line["reason"] for line in log_lines()] == ["UNKNOWN_TOPIC_OR_PARTITION"]


async def test_a_slow_frame_is_ended(start_broker: StartBroker, log_lines: LogLines) -> None:
    broker = await start_broker(frame_timeout_ms=200)
    wire = await broker.connect()
    wire.writer.write(struct.pack(">i", 100))
    for _ in range(4):
        wire.writer.write(b"\0")
        await asyncio.sleep(0.03)
    assert await wire.closed() == b""
    assert [line["reason"] for line in log_lines()] == ["frame_timeout"]


async def test_an_idle_connection_is_closed_and_counted(start_broker: StartBroker, log_lines: LogLines) -> None:
    broker = await start_broker(connections_max_idle_ms=1000)
    wire = await broker.connect()
    await wire.call(18, 0, ApiVersionsRequest())
    assert await wire.closed() == b""
    assert log_lines() == []  # nothing is wrong: it is a line of level info
    assert dict(broker.gateway.metrics.connections_closed) == {"idle": 1}


async def test_too_many_connections(start_broker: StartBroker, log_lines: LogLines) -> None:
    broker = await start_broker(max_connections=3, max_connections_per_ip=2)
    first, second = await broker.connect(), await broker.connect()
    await first.call(18, 0, ApiVersionsRequest())
    await second.call(18, 0, ApiVersionsRequest())
    third = await broker.connect()
    assert await third.closed() == b""
    (line,) = log_lines()
    assert (line["event"], line["reason"]) == ("connection rejected", "max_connections_per_ip")
    assert dict(broker.gateway.metrics.connections_rejected) == {"max_connections_per_ip": 1}
    await first.close()
    await until(lambda: broker.gateway.metrics.connections == 1)
    fourth = await broker.connect()
    await fourth.call(18, 0, ApiVersionsRequest())


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(
    body=st.binary(max_size=200),
    key=st.sampled_from([0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 20, 22, 32]) | st.integers(-2, 100),
    version=st.integers(-1, 19),
    framed=st.booleans(),
)
def test_random_bytes(
    module_broker: SynchronousBroker,
    capsys: pytest.CaptureFixture[str],
    body: bytes,
    key: int,
    version: int,
    framed: bool,
) -> None:
    """The gateway answers or closes, and no bug of ours shows: a client's bytes are never an internal error."""
    received = module_broker.exchange(
        struct.pack(">ihhih", len(body) + 10, key, version, 1, -1) + body if framed else body
    )
    position = 0
    while position < len(received):
        (length,) = struct.unpack_from(">i", received, position)
        position += 4 + length
    assert position == len(received)
    assert "request failed" not in capsys.readouterr().err


async def test_a_heartbeat_that_is_cut_and_glued(broker: Running) -> None:
    """Requests may come in any pieces."""
    wire = await broker.connect()
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    sent = []
    original = wire.writer.write
    wire.writer.write = sent.append  # type: ignore[method-assign]
    for _ in range(3):
        wire.send(12, 0, request)
    wire.writer.write = original  # type: ignore[method-assign]
    for byte in b"".join(sent):
        wire.writer.write(bytes([byte]))
        await wire.writer.drain()
    answers = [await wire.receive() for _ in range(3)]
    assert [(correlation_id, response.error_code) for correlation_id, response in answers] == [
        (1, 25),
        (2, 25),
        (3, 25),
    ]
