"""No request holds up others for long, or takes many times its size in memory: every API, every version, worst shapes.

A broker in another process measures itself (measured_broker.py). The requests are made from the declarations of the
APIs (request_shapes.py), so a new API or version is among them without a change here.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from gateway_svc.handlers import HANDLERS
from gateway_svc.requests.handler import OLD_ELEMENTS_MAX
from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode, encode
from protocol_lib.headers import RequestHeader, decode_response_header, encode_request_header
from protocol_lib.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.delete_topics import DeleteTopicsRequest
from protocol_lib.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from tests.wire.request_shapes import GROUP, TOPIC, Shape, shapes, with_batches

STEP_MS_MAX: Final = 50.0
#: Times the size of the request, and beyond that.
MEMORY_RATIO_MAX: Final = 20
MEMORY_MB_MAX: Final = 64
#: Objects that only a collection frees: those of one call or task, not of an element of the request.
UNREACHABLE_MAX: Final = 200
ANSWER_TIMEOUT_S: Final = 60.0
#: Times that a request beyond a bound is measured. Other processes make a step longer, never shorter: the least counts.
MEASUREMENTS_MAX: Final = 4
MANY_TOPICS: Final = 400
MANY_TOPICS_STEP_MS_MAX: Final = 20.0


@dataclass
class Measured:
    shape: Shape
    step_ms: float
    memory_mb: float
    unreachable: int
    what: str
    answer_bytes: int

    @property
    def row(self) -> str:
        sizes = f"{len(self.shape.body) / 1e6:6.3f} MB in, {self.answer_bytes / 1e6:7.3f} MB out"
        return (
            f"{self.step_ms:7.1f} ms  {self.memory_mb:7.1f} MB  {self.unreachable:6} unreachable  {sizes}"
            f"  {self.shape.label}  {self.what[:160] if self.step_ms > STEP_MS_MAX else ''}"
        )

    @property
    def is_bounded(self) -> bool:
        size_mb = len(self.shape.body) / (1 << 20)
        memory_mb_max = MEMORY_MB_MAX + MEMORY_RATIO_MAX * size_mb
        is_quick = self.step_ms <= STEP_MS_MAX
        return is_quick and self.memory_mb <= memory_mb_max and self.unreachable <= UNREACHABLE_MAX


class MeasuredBroker:
    def __init__(self, folder: Path) -> None:
        program = Path(__file__).with_name("measured_broker.py")
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port: int = self._read()["port"]

    def _read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the broker has ended"
        return json.loads(line)

    def _ask(self, line: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._read()

    def connect(self) -> socket.socket:
        return socket.create_connection(("localhost", self.port), timeout=ANSWER_TIMEOUT_S)

    def measure(self, shape: Shape) -> Measured:
        header = encode_request_header(RequestHeader(shape.api_key, shape.version, 1, "shapes"))
        frame = struct.pack(">i", len(header) + len(shape.body)) + header + shape.body
        self._ask("begin")
        received = 0
        with self.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(frame)
            received = _receive_frame(connection)
        return Measured(shape, answer_bytes=received, **self._ask("end"))

    def least(self, shape: Shape) -> Measured:
        """Measure a request, and again if it is beyond a bound."""
        measured = self.measure(shape)
        for _ in range(MEASUREMENTS_MAX - 1):
            if measured.is_bounded:
                break
            measured = min(measured, self.measure(shape), key=lambda row: (not row.is_bounded, row.step_ms))
        return measured

    def call(self, connection: socket.socket, api_key: int, version: int, request: Any) -> Any:
        header = encode_request_header(RequestHeader(api_key, version, 1, "shapes"))
        body = header + encode(request, version)
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        frame = connection.recv(size, socket.MSG_WAITALL)
        _, position = decode_response_header(api_key, version, frame)
        return decode(APIS[api_key].response, version, frame, position)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


def _receive_frame(connection: socket.socket) -> int:
    """Return the size of the answer; 0 if the broker closes the connection."""
    start = connection.recv(4, socket.MSG_WAITALL)
    if len(start) < 4:
        return 0
    (size,) = struct.unpack(">i", start)
    left = size
    while left and (part := connection.recv(min(left, 1 << 20))):
        left -= len(part)
    return int(size)


@pytest.fixture(scope="module")
def measured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MeasuredBroker, bytes]]:
    """A broker with a topic of many partitions, and a group that has a member, and offsets for all of them."""
    broker = MeasuredBroker(tmp_path_factory.mktemp("measured"))
    with broker.connect() as connection:
        metadata = broker.call(connection, 3, 12, MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),)))
        broker.call(connection, 10, 0, FindCoordinatorRequest(key=GROUP))
        protocols = (JoinGroupRequestProtocol(name="range", metadata=bytes(10_000)),)
        joined = broker.call(
            connection,
            11,
            2,
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=1_800_000,
                rebalance_timeout_ms=60_000,
                member_id="",
                protocol_type="consumer",
                protocols=protocols,
            ),
        )
        assert joined.error_code == 0
        assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(10_000))
        member = {"group_id": GROUP, "member_id": joined.member_id}
        synced = broker.call(connection, 14, 1, SyncGroupRequest(generation_id=1, assignments=(assignment,), **member))
        assert synced.error_code == 0
        partitions = tuple(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="note" * 100)
            for index in range(200)
        )
        topics = (OffsetCommitRequestTopic(name=TOPIC, partitions=partitions),)
        committed = broker.call(
            connection, 8, 2, OffsetCommitRequest(generation_id_or_member_epoch=1, topics=topics, **member)
        )
        assert not any(each.error_code for topic in committed.topics for each in topic.partitions)
        yield broker, metadata.topics[0].topic_id
    broker.close()


def _versions(handler: Any, *, every: bool) -> list[int]:
    """Return all versions; or the last, and the first if its records are converted."""
    served = range(handler.min_version, handler.max_version + 1)
    some = {served[-1], served[0] if handler.converted_below else served[-1]}
    return [version for version in served if every or version in some]


def _check(broker: MeasuredBroker, topic_id: bytes, handler: Any, size: int, *, every: bool) -> None:
    rows = []
    for version in _versions(handler, every=every):
        elements_max = OLD_ELEMENTS_MAX if version < handler.converted_below else handler.elements_max
        sent = list(shapes(handler.api_key, version, size, elements_max, topic_id))
        if handler.api_key == 0:
            sent += [with_batches(version, min(size // 80, elements_max - 1), topic_id)]
        rows += [broker.least(shape) for shape in sent]
    rows.sort(key=lambda row: (row.is_bounded, -row.step_ms))
    worst = {id(row): row for row in [*rows[:5], *sorted(rows, key=lambda row: -row.memory_mb)[:3]]}
    for row in worst.values():
        print(row.row)
    assert all(row.is_bounded for row in rows)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
def test_no_step_is_long_for_many_topics(measured_broker: tuple[MeasuredBroker, bytes]) -> None:
    """The topics are really made: the shapes name one topic, or topics that are not there."""
    broker, _ = measured_broker
    names = [f"one-of-many-{number}" for number in range(MANY_TOPICS)]
    requests: list[tuple[ApiKey, int, Any]] = [
        (ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=tuple(map(_creatable, names)), timeout_ms=60_000)),
        (ApiKey.METADATA, 12, MetadataRequest(topics=None)),
        (ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=tuple(map(_described, names)))),
        (
            ApiKey.CREATE_PARTITIONS,
            3,
            CreatePartitionsRequest(topics=tuple(map(_grown, names)), timeout_ms=60_000, validate_only=False),
        ),
        (ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=60_000)),
    ]
    least = [math.inf] * len(requests)
    for _ in range(MEASUREMENTS_MAX):  # the last request deletes the topics
        rows = [
            broker.measure(Shape(api_key, version, "of many topics", encode(request, version), MANY_TOPICS))
            for api_key, version, request in requests
        ]
        print(*(row.row for row in rows), sep="\n")
        assert all(row.answer_bytes > 10 * MANY_TOPICS for row in rows)
        least = [min(before, row.step_ms) for before, row in zip(least, rows, strict=True)]
        if max(least) <= MANY_TOPICS_STEP_MS_MAX:
            break
    assert max(least) <= MANY_TOPICS_STEP_MS_MAX


def _creatable(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())


def _described(name: str) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)


def _grown(name: str) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(name=name, count=2, assignments=None)


by_api = pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.api_key.name.lower())


@by_api
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
def test_no_shape_of_a_request_takes_long_or_much(measured_broker: tuple[MeasuredBroker, bytes], handler: Any) -> None:
    _check(*measured_broker, handler, 1 << 17, every=False)


@by_api
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
def test_no_shape_of_a_long_request_takes_long_or_much(
    measured_broker: tuple[MeasuredBroker, bytes], handler: Any
) -> None:
    _check(*measured_broker, handler, 1 << 20, every=True)
