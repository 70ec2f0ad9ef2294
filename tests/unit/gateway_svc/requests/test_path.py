"""The way in: requests are recognised or decoded, judged once, admitted each, and served or refused."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from broker_contract import groups_pb2, topics_pb2
from broker_contract.data import Append, AppendedPartition, AppendResponse
from gateway_svc.clients.pipeline import Kind
from gateway_svc.errors import RequestRefused, StorageUnavailable
from gateway_svc.requests.call import Call
from protocol_lib.codec import decode
from protocol_lib.errors import ErrorCode
from protocol_lib.headers import decode_response_header
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record

from tests.unit.gateway_svc.rig import FakePolicy, Rig, framed

TOPIC_ID = b"i" * 16
BATCH = build_batch([Record(0, 1000, None, b"v")])


class Groups:
    """A storage that answers heartbeats, and does not offer to repeat them."""

    def __init__(self) -> None:
        self.asked = 0

    def heartbeat(self, request: Any, done: Callable[[Any], None]) -> None:
        self.asked += 1
        done(groups_pb2.HeartbeatResponse())


class Broken:
    """A storage with a bug."""

    def heartbeat(self, request: Any, done: Callable[[Any], None]) -> None:
        raise ZeroDivisionError

    def append(self, append: Append, done: Callable[[AppendResponse], None]) -> None:
        raise ZeroDivisionError


class Records:
    """A storage that keeps appends and answers them."""

    def __init__(self) -> None:
        self.appended: list[Append] = []

    def append(self, append: Append, done: Callable[[AppendResponse], None]) -> None:
        self.appended.append(append)
        done(AppendResponse([AppendedPartition(0, 5) for _ in append.batches]))


class Topics:
    """A storage with one topic; it answers when the test lets it."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.is_away = False
        #: Whether an answer lacks its rows.
        self.is_broken = False
        self.asked: list[list[bytes]] = []

    async def describe_topics(self, request: topics_pb2.DescribeTopicsRequest) -> topics_pb2.DescribeTopicsResponse:
        self.asked.append([each.id for each in request.topics])
        await self.answers.wait()
        if self.is_away:
            raise StorageUnavailable("away")
        found = [
            topics_pb2.Topic(id=each.id, name="orders")
            if each.id == TOPIC_ID
            else topics_pb2.Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for each in request.topics
        ]
        return topics_pb2.DescribeTopicsResponse(topics=[] if self.is_broken else found)


def beat(correlation_id: int = 1) -> bytes:
    return framed(12, 4, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), correlation_id)


def produce(correlation_id: int, *, version: int = 7, topic_id: bytes = bytes(16), acks: int = 1) -> bytes:
    data = PartitionProduceData(index=0, records=BATCH)
    named = {"topic_id": topic_id} if version >= 13 else {"name": "orders"}
    topic = TopicProduceData(**named, partition_data=(data,))
    return framed(0, version, ProduceRequest(acks=acks, timeout_ms=1, topic_data=(topic,)), correlation_id)


def produced(answers: list[bytes], version: int = 7) -> list[tuple[int, int, int]]:
    """Return correlation id, error code and throttle time of each answer."""
    stream, position, found = b"".join(answers), 0, []
    while position < len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        frame = stream[position + 4 : position + 4 + size]
        correlation_id, body_at = decode_response_header(0, version, frame)
        response = decode(ProduceResponse, version, frame, body_at)
        code = response.responses[0].partition_responses[0].error_code
        found.append((correlation_id, code, response.throttle_time_ms))
        position += 4 + size
    return found


def test_a_decoded_request_is_judged_admitted_served_and_finished() -> None:
    policy, groups = FakePolicy(), Groups()
    rig = Rig(policy, groups=groups)
    (answer,) = rig.receive(beat(9))
    assert answer[4:8] == b"\0\0\0\x09"
    assert decode(HeartbeatResponse, 4, answer, 9) == HeartbeatResponse(throttle_time_ms=17, error_code=0)
    assert policy.asked == [("READ", "GROUP", "g")]
    assert (policy.throttled, groups.asked) == ([1], 1)
    assert rig.finished("Heartbeat") == {(4, "NONE"): 1}
    assert rig.parts.requests.used == len(beat()) - 4  # the connection gives it back


def test_a_denied_request_does_not_reach_storage() -> None:
    policy, groups = FakePolicy(), Groups()
    policy.denies = lambda name: name == "g"
    rig = Rig(policy, groups=groups)
    (answer,) = rig.receive(beat())
    assert decode(HeartbeatResponse, 4, answer, 9).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert (groups.asked, policy.throttled) == (0, [1])
    assert rig.finished("Heartbeat") == {(4, "GROUP_AUTHORIZATION_FAILED"): 1}
    assert not rig.path._by_api_and_version


def test_alike_requests_are_judged_once_and_throttled_as_one_run() -> None:
    policy, records = FakePolicy(), Records()
    rig = Rig(policy, records=records)
    assert produced(rig.receive(produce(1))) == [(1, 0, 17)]
    assert produced(rig.receive(*[produce(number) for number in range(2, 7)])) == [(n, 0, 17) for n in range(2, 7)]
    assert (policy.asked, policy.throttled, len(records.appended)) == ([("WRITE", "TOPIC", "orders")], [1, 5], 2)
    assert rig.recognised("Produce") == 5


def test_after_a_change_of_the_policy_a_request_is_judged_and_learned_again() -> None:
    policy, records = FakePolicy(), Records()
    rig = Rig(policy, records=records)
    for number in range(2):
        rig.receive(produce(number))
    policy.changed()
    for number in range(2, 5):
        rig.receive(produce(number))
    assert (policy.asked, rig.recognised("Produce")) == ([("WRITE", "TOPIC", "orders")] * 2, 3)


def test_a_bug_closes_the_connection_and_is_finished_once() -> None:
    rig = Rig(groups=Broken())
    assert rig.receive(beat()) == []
    assert [str(each) for each in rig.client.refused] == [str(RequestRefused("failed", "ZeroDivisionError"))]
    assert rig.finished("Heartbeat") == {(4, "UNKNOWN_SERVER_ERROR"): 1}


def test_a_bug_on_the_way_of_a_recognised_request() -> None:
    records = Records()
    rig = Rig(records=records)
    rig.receive(produce(1))
    records.append = Broken().append  # type: ignore[method-assign]
    rig.receive(produce(2), produce(3))
    assert [each.reason for each in rig.client.refused] == ["failed"]
    assert rig.client.refused[0].fields == {"client_id": "c", "api_key": 0, "version": 7, "correlation_id": 2}
    assert rig.finished("Produce") == {(7, "NONE"): 1, (7, "UNKNOWN_SERVER_ERROR"): 2}


def test_a_request_that_is_given_up_with_its_client_is_finished_once() -> None:
    class Waiting:
        def heartbeat(self, request: Any, done: Callable[[Any], None]) -> None: ...

    rig, given_up = Rig(groups=Waiting()), []
    rig.receive(beat())
    (call,) = rig.pipeline.order
    call.abandon = lambda: given_up.append(call)
    rig.pipeline.close()
    assert given_up == [call]
    assert rig.finished("Heartbeat") == {(4, "NETWORK_EXCEPTION"): 1}


def test_requests_of_the_shared_buffer_are_copied() -> None:
    """The rig clears its buffer after each read."""
    records = Records()
    rig = Rig(records=records)
    rig.receive(produce(1))
    rig.receive(produce(2), produce(3))
    assert [[bytes(each) for each in append.batches] for append in records.appended] == [[BATCH], [BATCH, BATCH]]


def test_kinds() -> None:
    rig = Rig()
    assert [rig.path.kind(frame, 4) for frame in (produce(1), beat(), produce(1, version=2))] == [
        Kind.APPEND,
        Kind.CONTROL,
        Kind.CONTROL,
    ]


async def test_a_topic_called_by_id_is_judged_by_its_name() -> None:
    policy, records, topics = FakePolicy(), Records(), Topics()
    rig = Rig(policy, records=records, topics=topics)
    assert rig.receive(produce(1, version=13, topic_id=TOPIC_ID), produce(2, version=13, topic_id=TOPIC_ID)) == []
    assert policy.asked == []
    topics.answers.set()
    while len(records.appended) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert produced(rig.client.answers, 13) == [(1, 0, 17), (2, 0, 17)]
    assert [append.correlation_id for append in records.appended] == [1, 2]
    assert policy.asked == [("WRITE", "TOPIC", "orders")]
    assert produced(rig.receive(produce(3, version=13, topic_id=TOPIC_ID)), 13) == [(3, 0, 17)]
    assert (topics.asked, rig.recognised("Produce")) == ([[TOPIC_ID]], 2)
    assert rig.parts.metrics.topics["orders"].produces == 3


async def test_no_request_overtakes_one_that_waits_for_names() -> None:
    policy, records, topics = FakePolicy(), Records(), Topics()
    topics.answers.set()
    rig = Rig(policy, records=records, topics=topics)
    rig.parts.names.learn(TOPIC_ID, "orders")
    rig.receive(produce(1, version=13, topic_id=TOPIC_ID))
    unknown = produce(2, version=13, topic_id=b"u" * 16)
    assert rig.receive(unknown, produce(3, version=13, topic_id=TOPIC_ID), beat(4)) == []
    assert [append.correlation_id for append in records.appended] == [1]
    while len(records.appended) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert [append.correlation_id for append in records.appended] == [1, 2, 3]
    rig.pipeline.check_invariants()


async def test_a_bug_in_the_answer_about_names_is_a_failed_request() -> None:
    policy, topics = FakePolicy(), Topics()
    topics.answers.set()
    topics.is_broken = True
    rig = Rig(policy, records=Records(), topics=topics)
    rig.receive(produce(1, version=13, topic_id=TOPIC_ID))
    while not rig.client.refused:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert [each.reason for each in rig.client.refused] == ["failed"]
    assert rig.finished("Produce") == {(13, "UNKNOWN_SERVER_ERROR"): 1}


class BrokenPolicy(FakePolicy):
    """A policy that fails at one step."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self.step = step

    def may(self, *asked: Any) -> bool:
        if self.step == "judge":
            raise ZeroDivisionError
        return super().may(*asked)

    def throttle_ms(self, call: Call, size: int) -> int:
        if self.step == "throttle" or (self.step == "throttle again" and self.throttled):
            raise ZeroDivisionError
        return super().throttle_ms(call, size)


@pytest.mark.parametrize(("step", "answered"), [("judge", 0), ("throttle", 0), ("throttle again", 1)])
def test_a_bug_in_the_policy_is_a_failed_request(step: str, answered: int) -> None:
    rig = Rig(BrokenPolicy(step), records=Records())
    rig.receive(produce(1), produce(2) if answered else b"")
    assert len(rig.client.answers) == answered
    assert [each.reason for each in rig.client.refused] == ["failed"]
    assert rig.finished("Produce") == {(7, "UNKNOWN_SERVER_ERROR"): 1} | ({(7, "NONE"): 1} if answered else {})


async def test_a_topic_that_does_not_exist_is_no_resource() -> None:
    policy, records, topics = FakePolicy(), Records(), Topics()
    topics.answers.set()
    rig = Rig(policy, records=records, topics=topics)
    rig.receive(produce(1, version=13, topic_id=b"u" * 16))
    while not rig.client.answers:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert policy.asked == []


@pytest.mark.parametrize("is_closed", [False, True])
async def test_without_storage_a_topic_called_by_id_is_not_judged(is_closed: bool) -> None:
    policy, records, topics = FakePolicy(), Records(), Topics()
    topics.is_away = True
    rig = Rig(policy, records=records, topics=topics)
    rig.receive(produce(1, version=13, topic_id=TOPIC_ID))
    if is_closed:
        rig.pipeline.close()
    topics.answers.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (policy.asked, records.appended) == ([], [])
    assert [each.reason for each in rig.client.refused] == ([] if is_closed else ["storage_unavailable"])
