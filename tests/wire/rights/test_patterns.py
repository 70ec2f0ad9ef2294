"""A consumer group's pattern (KIP-848) matches only topics that the member may describe, as in Apache Kafka 4.3.0.

Kafka leaves the others out without an error (`filterTopicDescribeAuthorizedTopics`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from gateway_svc.requests.admission import Admission
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.metadata import MetadataRequest

from tests.wire.conftest import Wire
from tests.wire.rights.prefixed import Prefixed
from tests.wire.test_every_path import Start
from tests.wire.test_every_path import start as start


def beat(epoch: int, owned: tuple[bytes, ...] | None = None, pattern: str | None = None) -> Any:
    rows = None if owned is None else tuple(TopicPartitions(topic_id=each, partitions=(0,)) for each in owned)
    return ConsumerGroupHeartbeatRequest(
        group_id="a-group",
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if pattern else -1,
        subscribed_topic_regex=pattern,
        topic_partitions=rows,
    )


async def topics(wire: Wire) -> dict[bytes, str]:
    return {topic.topic_id: topic.name for topic in (await wire.call(3, 12, MetadataRequest(topics=None))).topics}


async def create(wire: Wire, *names: str) -> None:
    rows = tuple(
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()) for name in names
    )
    made = await wire.call(19, 5, CreateTopicsRequest(topics=rows, timeout_ms=10_000))
    assert {each.error_code for each in made.topics} == {0}


async def assigned(wire: Wire, epoch: int, count: int) -> tuple[int, tuple[bytes, ...]]:
    """Send heartbeats until the member has this number of topics; return its epoch and their ids."""
    async with asyncio.timeout(60):
        while True:
            answer = await wire.call(68, 1, beat(epoch))
            assert answer.error_code == ErrorCode.NONE
            epoch = answer.member_epoch
            held = () if answer.assignment is None else answer.assignment.topic_partitions
            if len(held) == count:
                return epoch, tuple(each.topic_id for each in held)
            await asyncio.sleep(0.01)


async def test_a_pattern_matches_what_the_member_may_describe(start: Start) -> None:
    policy = Prefixed()
    settings = {"topics": "a:1,b:1", "group_consumer_assignment_interval_ms": 0}
    async with start(partial(Admission, policy=policy), **settings) as broker:
        wire = await broker.connect()
        policy.set(False)
        joined = await wire.call(68, 1, beat(0, (), ".*"))
        assert joined.error_code == ErrorCode.NONE
        epoch, held = await assigned(wire, joined.member_epoch, 1)
        policy.set(True)
        names = await topics(wire)
        assert [names[each] for each in held] == ["a"]
        await create(wire, "a-late", "b-late")
        policy.set(False)
        await wire.call(68, 1, beat(epoch, held))
        epoch, held = await assigned(wire, epoch, 2)
        policy.set(True)
        names = await topics(wire)
        assert sorted(names[each] for each in held) == ["a", "a-late"]
        await wire.close()
