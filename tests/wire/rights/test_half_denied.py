"""Requests of which a client may use a half, on the paths that the table of rights does not take."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from gateway_svc.requests.admission import Admission
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.list_groups import ListGroupsRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from tests.wire.conftest import Running, StartBroker, Wire, batch, until
from tests.wire.rights.prefixed import Prefixed

SMALL = batch(b"x")
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Scene:
    """A broker with topics a and b of one partition each, and a client that may lose its rights to b."""

    def __init__(self, broker: Running, policy: Prefixed, wire: Wire) -> None:
        self.broker = broker
        self.policy = policy
        self.wire = wire

    def produced(self) -> Any:
        return self.broker.gateway.metrics.api("Produce").recognised

    async def end_offsets(self) -> tuple[int, int]:
        """Return the end of partition 0 of a, once it has records that are synced, and of b."""
        self.policy.set(True)
        wire = await self.broker.connect()
        found = {"a": 0}
        while not found["a"]:
            response = await wire.call(1, 11, fetch("a", "b", wait_ms=1000))
            found = {each.topic: each.partitions[0].high_watermark for each in response.responses}
        await wire.close()
        return found["a"], found["b"]


@pytest.fixture
async def scene(start_broker: StartBroker) -> Scene:
    policy = Prefixed()
    broker = await start_broker(admission=partial(Admission, policy=policy), topics="a:1,b:1", flush_policy="os")
    wire = await broker.connect()
    return Scene(broker, policy, wire)


def produce(*names: str, partitions: int = 1, acks: int = 1, records: bytes = SMALL) -> ProduceRequest:
    rows = tuple(PartitionProduceData(index=index, records=records) for index in range(partitions))
    topics = tuple(TopicProduceData(name=name, partition_data=rows) for name in names)
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)


def codes(response: Any) -> dict[str, set[int]]:
    return {topic.name: {each.error_code for each in topic.partition_responses} for topic in response.responses}


def fetch(
    *names: str, session: tuple[int, int] = (0, -1), wait_ms: int = 0, offset: int = 0, most: int = 1000
) -> FetchRequest:
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=most)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=tuple(FetchTopic(topic=name, partitions=(row,)) for name in names),
        session_id=session[0],
        session_epoch=session[1],
    )


async def test_a_half_denied_request_is_no_example_of_the_next_one(scene: Scene) -> None:
    scene.policy.set(False)
    for _ in range(3):
        assert codes(await scene.wire.call(0, 7, produce("a", "b"))) == {"a": {0}, "b": {DENIED}}
    assert scene.produced() == 0
    for _ in range(3):
        assert codes(await scene.wire.call(0, 7, produce("a"))) == {"a": {0}}
        assert codes(await scene.wire.call(0, 7, produce("b"))) == {"b": {DENIED}}
    assert scene.produced() == 2
    assert await scene.end_offsets() == (6, 0)


async def test_hundreds_of_partitions_are_half_appended(scene: Scene) -> None:
    scene.policy.set(False)
    response = await scene.wire.call(0, 7, produce("b", "a", partitions=600))
    assert codes(response) == {"a": {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "b": {DENIED}}
    assert [len(topic.partition_responses) for topic in response.responses] == [600, 600]
    assert await scene.end_offsets() == (1, 0)


@pytest.mark.parametrize("partitions", [1, 600])
async def test_without_an_answer_the_allowed_half_is_appended_and_the_connection_closed(
    scene: Scene, partitions: int
) -> None:
    scene.policy.set(False)
    scene.wire.send(0, 7, produce("a", "b", partitions=partitions, acks=0))
    assert await scene.wire.closed() == b""
    assert await scene.end_offsets() == (1, 0)


async def test_rights_that_are_lost_count_in_a_fetch_session_and_for_what_was_read_ahead(scene: Scene) -> None:
    scene.policy.set(True)
    await scene.wire.call(0, 7, produce("a", "b"))
    first = await scene.wire.call(1, 11, fetch("a", "b", session=(0, 0)))
    assert [(each.topic, each.partitions[0].error_code) for each in first.responses] == [("a", 0), ("b", 0)]
    scene.policy.set(False)
    again = await scene.wire.call(1, 11, fetch("a", session=(first.session_id, 1)))
    found = {each.topic: (each.partitions[0].error_code, bool(each.partitions[0].records)) for each in again.responses}
    assert found == {"a": (0, True), "b": (DENIED, False)}
    scene.policy.set(True)
    given = await scene.wire.call(1, 11, fetch("b", session=(first.session_id, 2)))
    found = {each.topic: (each.partitions[0].error_code, bool(each.partitions[0].records)) for each in given.responses}
    assert found["b"] == (0, True)


@pytest.mark.parametrize("names", [("b",), ("a", "b")])
async def test_a_parked_read_is_judged_again_when_rights_were_lost_meanwhile(
    scene: Scene, names: tuple[str, ...]
) -> None:
    """It waits for more bytes than there are. The connection's next fetch goes on."""
    scene.policy.set(True)
    await scene.wire.call(0, 7, produce("a", "b"))
    for _ in range(2):
        scene.policy.set(True)
        scene.wire.send(1, 11, replace(fetch(*names, wait_ms=150), min_bytes=1 << 20))
        await until(lambda: scene.broker.gateway._connections.requests_in_service == 1)
        scene.policy.set(False)
        _, answer = await scene.wire.receive()
        rows = {each.topic: each.partitions[0] for each in answer.responses}
        found = {name: (row.error_code, bool(row.records)) for name, row in rows.items()}
        assert found == {"a": (0, True), "b": (DENIED, False)} if "a" in names else {"b": (DENIED, False)}


async def test_records_that_were_read_ahead_are_not_sent_without_the_right(scene: Scene) -> None:
    counts, asked = scene.broker.gateway.metrics, itertools.cycle(range(12))
    large = batch(b"x" * 100_000)
    for _ in range(12):
        await scene.wire.call(0, 7, produce("b", records=large))

    async def fetched() -> tuple[int, bool]:
        response = await scene.wire.call(1, 4, fetch("b", offset=next(asked), most=len(large) + 10))
        (partition,) = response.responses[0].partitions
        return partition.error_code, bool(partition.records)

    for _ in range(5):
        scene.policy.set(True)
        before = counts.fetches_read_ahead
        for _ in range(1000):  # a result may be used for a tenth of a second
            assert await fetched() == (0, True)
            if counts.fetches_read_ahead > before:
                break
        assert counts.fetches_read_ahead > before
        scene.policy.set(False)
        assert await fetched() == (DENIED, False)


@pytest.mark.parametrize("creates", [True, False])
async def test_a_topic_that_a_client_may_not_create_is_not_created(scene: Scene, creates: bool) -> None:
    scene.policy.set(False)
    scene.policy.creates = creates
    named = tuple(MetadataRequestTopic(name=name) for name in ("a-new", "b-new", "a"))
    response = await scene.wire.call(3, 9, MetadataRequest(topics=named))
    found = {topic.name: topic.error_code for topic in response.topics}
    assert found == {"a-new": 0 if creates else DENIED, "b-new": DENIED, "a": 0}
    scene.policy.set(True)
    every = await scene.wire.call(3, 9, MetadataRequest(topics=None))
    assert {topic.name for topic in every.topics} == {"a", "b"} | ({"a-new"} if creates else set())


async def test_decisions_are_forgotten_with_their_revision(scene: Scene) -> None:
    for has_all in (True, False, True):
        scene.policy.set(has_all)
        assert codes(await scene.wire.call(0, 7, produce("b"))) == {"b": {0 if has_all else DENIED}}
        assert (await scene.wire.call(16, 4, ListGroupsRequest())).error_code == 0


async def test_a_commit_that_is_half_denied_is_no_example(scene: Scene) -> None:
    scene.policy.set(False)
    for offset in range(4):
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = tuple(OffsetCommitRequestTopic(name=name, partitions=(row,)) for name in ("a", "b"))
        response = await scene.wire.call(8, 7, OffsetCommitRequest(group_id="a-group", topics=topics))
        assert [(each.name, each.partitions[0].error_code) for each in response.topics] == [("a", 0), ("b", DENIED)]
