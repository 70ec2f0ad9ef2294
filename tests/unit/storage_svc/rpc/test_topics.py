"""The topics service over gRPC: topics are made, described and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from broker_contract import cluster_pb2 as cluster
from broker_contract import topics_pb2 as topics
from protocol_lib.errors import ErrorCode
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.rpc import topics as topics_service
from storage_svc.topics.catalog_file import CatalogFull, CatalogTopic

from tests.unit.storage_svc.rpc.control_peer import Peer, new

E = ErrorCode


async def test_create_describe_delete(peer: Peer) -> None:
    (made,) = await peer.create(new("orders", 3, 1, retention_ms="-1"))
    assert (made.error_code, made.partition_count, made.replication_factor, len(made.id)) == (0, 3, 1, 16)
    (seen,) = await peer.describe()
    assert seen == topics.Topic(name="orders", id=made.id, partition_count=3, leader_epochs=[0, 0, 0])
    by_id = await peer.topics.DescribeTopics(topics.DescribeTopicsRequest(topics=[topics.TopicRef(id=made.id)]))
    assert list(by_id.topics) == [seen]
    deleted = await peer.topics.DeleteTopics(
        topics.DeleteTopicsRequest(topics=[topics.TopicRef(name="orders"), topics.TopicRef(name="nothing")])
    )
    codes = {each.name: each.error_code for each in deleted.topics}
    assert codes == {"orders": 0, "nothing": E.UNKNOWN_TOPIC_OR_PARTITION}
    assert deleted.topics[0].id == made.id
    assert await peer.describe() == []
    by_id = await peer.topics.DescribeTopics(topics.DescribeTopicsRequest(topics=[topics.TopicRef(id=made.id)]))
    assert [(each.error_code, each.id) for each in by_id.topics] == [(E.UNKNOWN_TOPIC_ID, made.id)]


async def test_delete_by_id(peer: Peer) -> None:
    (made,) = await peer.create(new("orders"))
    refs = [topics.TopicRef(id=made.id), topics.TopicRef(id=b"x" * 16)]
    deleted = await peer.topics.DeleteTopics(topics.DeleteTopicsRequest(topics=refs))
    assert [(each.name, each.error_code) for each in deleted.topics] == [("orders", 0), ("", E.UNKNOWN_TOPIC_ID)]


async def test_the_same_topic_twice_in_a_deletion_is_refused(peer: Peer) -> None:
    (made,) = await peer.create(new("orders"))
    refs = [topics.TopicRef(id=made.id), topics.TopicRef(name="orders")]
    deleted = await peer.topics.DeleteTopics(topics.DeleteTopicsRequest(topics=refs))
    assert [each.error_code for each in deleted.topics] == [E.INVALID_REQUEST] * 2
    assert await peer.names() == ["orders"]


@pytest.mark.parametrize(
    ("given", "expected", "message"),
    [
        (new(""), E.INVALID_TOPIC_EXCEPTION, "Illegal topic name"),
        (new(".."), E.INVALID_TOPIC_EXCEPTION, "Illegal topic name"),
        (new("a/b"), E.INVALID_TOPIC_EXCEPTION, "Illegal topic name"),
        (new("x" * 250), E.INVALID_TOPIC_EXCEPTION, "250 characters"),
        (new("taken.name"), E.TOPIC_ALREADY_EXISTS, "Topic 'taken.name' already exists."),
        (new("taken_name"), E.INVALID_TOPIC_EXCEPTION, "collides with existing topic: taken.name"),
        (new("__consumer_offsets"), E.INVALID_TOPIC_EXCEPTION, "made by the broker"),
        (new("a", 0), E.INVALID_PARTITIONS, "non-positive value: 0"),
        (new("a", -2), E.INVALID_PARTITIONS, "non-positive value: -2"),
        (new("a", 1, 0), E.INVALID_REPLICATION_FACTOR, "not 0"),
        (new("a", 1, 2), E.INVALID_REPLICATION_FACTOR, "not 2"),
        (new("a", 1, -2), E.INVALID_REPLICATION_FACTOR, "not -2"),
        (new("a", 60), E.POLICY_VIOLATION, "60 more partitions are too many: 2 of at most 60 exist"),
        (new("a", 2**31 - 1), E.POLICY_VIOLATION, "too many"),
        (new("a", no_such="1"), E.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (new("a", retention_ms="soon"), E.INVALID_CONFIG, "Invalid value 'soon' for configuration retention.ms"),
        (new("a", preallocate="true"), E.INVALID_CONFIG, "no effect in this broker"),
        (
            new("a", retention_ms=None, segment_ms="soon", no_such=None),
            E.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms,no.such",
        ),
    ],
)
async def test_creations_that_are_refused(
    peer: Peer, given: topics.NewTopic, expected: ErrorCode, message: str
) -> None:
    await peer.create(new("taken.name"))
    for validate_only in (True, False):
        (refused,) = await peer.create(given, validate_only=validate_only)
        assert refused.error_code == expected
        assert message in refused.error_message
        assert (refused.partition_count, refused.replication_factor, refused.id) == (-1, -1, bytes(16))
    assert await peer.names() == ["taken.name"]


async def test_the_topics_of_one_request_stand_alone(peer: Peer) -> None:
    made = await peer.create(new("twice"), new("good"), new("twice"), new("bad", 0))
    assert [(each.name, each.error_code) for each in made] == [
        ("twice", E.INVALID_REQUEST),
        ("good", 0),
        ("twice", E.INVALID_REQUEST),
        ("bad", E.INVALID_PARTITIONS),
    ]
    assert await peer.names() == ["good"]


async def test_validate_only_creates_nothing(peer: Peer) -> None:
    (made,) = await peer.create(new("orders", -1, -1), validate_only=True)
    assert (made.error_code, made.partition_count, made.id) == (0, 2, bytes(16))
    assert await peer.names() == []


async def test_validate_only_answers_as_the_creation_of_the_same_topics(peer: Peer) -> None:
    given = new("a.b", 1), new("a_b", 1), new("c", 1)
    checked = [each.error_code for each in await peer.create(*given, validate_only=True)]
    assert checked == [each.error_code for each in await peer.create(*given)] == [0, E.INVALID_TOPIC_EXCEPTION, 0]


@pytest.mark.parametrize(
    ("assignments", "partitions", "replication", "expected"),
    [
        ({0: [1], 1: [1]}, -1, -1, E.NONE),
        ({0: [1], 1: [1]}, 2, -1, E.INVALID_REQUEST),
        ({0: [1]}, -1, 1, E.INVALID_REQUEST),
        ({0: [1], 2: [1]}, -1, -1, E.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 2]}, -1, -1, E.INVALID_REPLICA_ASSIGNMENT),
        ({0: []}, -1, -1, E.INVALID_REPLICA_ASSIGNMENT),
        ({0: [9]}, -1, -1, E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_manual_assignments(
    peer: Peer, assignments: dict[int, list[int]], partitions: int, replication: int, expected: ErrorCode
) -> None:
    await peer.cluster.RegisterGateway(cluster.RegisterGatewayRequest(name="gw", lease_ms=60_000))
    given = new("orders", partitions, replication)
    for partition, brokers in assignments.items():
        given.assignments.add(partition=partition, broker_ids=brokers)
    (made,) = await peer.create(given)
    assert made.error_code == expected
    assert await peer.names() == (["orders"] if expected == E.NONE else [])


async def test_unknown_topics_are_created_when_that_is_asked_for(peer: Peer) -> None:
    assert [each.error_code for each in await peer.describe("a")] == [E.UNKNOWN_TOPIC_OR_PARTITION]
    answer = await peer.describe("a", "b!", "a", "__consumer_offsets", auto_create=True)
    assert [(each.name, each.error_code, each.partition_count, each.is_internal) for each in answer] == [
        ("a", 0, 2, False),
        ("b!", E.INVALID_TOPIC_EXCEPTION, 0, False),
        ("a", 0, 2, False),
        ("__consumer_offsets", 0, 50, True),
    ]
    await peer.create(new("x.y"))
    (refused,) = await peer.describe("x_y", auto_create=True)
    assert refused.error_code == E.INVALID_TOPIC_EXCEPTION


async def test_one_request_creates_few_topics_and_the_next_ones_more(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client asks again for topics that it is answered not to exist."""
    monkeypatch.setattr(topics_service, "AUTO_CREATED_MAX", 3)
    names = [f"t{number}" for number in range(7)]
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    answers = [[each.error_code for each in await peer.describe(*names, auto_create=True)] for _ in range(3)]
    assert answers == [[0] * 3 + [unknown] * 4, [0] * 6 + [unknown], [0] * 7]


async def test_topics_that_a_description_creates_are_made_in_steps(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a few partitions are made before the event loop goes on."""
    monkeypatch.setattr(peer.storage.topics, "_defaults", replace(peer.storage.topics._defaults, partition_count=25))
    steps: list[int] = []
    create_many = peer.storage.logs.create_many

    def noted(topic: str, partitions: Iterable[int], *rest: Any) -> list[PartitionLog]:
        wanted = list(partitions)
        steps.append(len(wanted))
        return create_many(topic, wanted, *rest)

    monkeypatch.setattr(peer.storage.logs, "create_many", noted)
    (made,) = await peer.describe("wide", auto_create=True)
    assert (made.error_code, made.partition_count, steps) == (0, 25, [10, 10, 5])


async def test_a_creation_waits_for_an_earlier_one_of_its_name(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer says that a topic exists before the catalog has stored it."""
    file, refusals = peer.storage._catalog.file, [CatalogFull("no space")]
    add_topics = file.add_topics

    def refuse_once(added: Sequence[CatalogTopic]) -> None:
        if refusals:
            raise refusals.pop()
        add_topics(added)

    monkeypatch.setattr(file, "add_topics", refuse_once)
    answers = await asyncio.gather(*(peer.create(new("a")) for _ in range(3)))
    assert [each[0].error_code for each in answers] == [E.KAFKA_STORAGE_ERROR, 0, E.TOPIC_ALREADY_EXISTS]


async def test_clients_that_ask_for_a_new_topic_at_once_all_find_it(peer: Peer) -> None:
    answers = await asyncio.gather(*(peer.describe("a", auto_create=True) for _ in range(3)))
    assert [(each[0].error_code, each[0].id) for each in answers] == [(0, answers[0][0].id)] * 3


async def test_the_answer_has_whether_topics_were_created(peer: Peer) -> None:
    async def created(*names: str, auto_create: bool = True) -> bool:
        refs = [topics.TopicRef(name=name) for name in names]
        request = topics.DescribeTopicsRequest(topics=refs, auto_create=auto_create)
        return (await peer.topics.DescribeTopics(request)).created

    first = [await created("a", auto_create=False), await created("b!"), await created("a", "b!")]
    assert first == [False, False, True]
    assert [await created("a"), await created("a", "c")] == [False, True]


async def test_one_request_deletes_many_topics_and_answers_each(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that has no space for the change of two topics has it for that of one."""
    await peer.describe("__consumer_offsets", auto_create=True)
    made = await peer.create(*(new(f"t{number}", 1) for number in range(5)))
    remove, sizes = peer.storage._catalog.file.remove_topics, []

    def full(names: Sequence[str]) -> None:
        sizes.append(len(names))
        if len(names) > 1 or names == ["t3"]:
            raise CatalogFull("no space")
        remove(names)

    monkeypatch.setattr(peer.storage._catalog.file, "remove_topics", full)
    refs = [topics.TopicRef(name=name) for name in ("t0", "missing", "t1", "t1", "__consumer_offsets", "t3")]
    refs += [topics.TopicRef(id=made[4].id), topics.TopicRef(id=b"x" * 16)]
    deleted = await peer.topics.DeleteTopics(topics.DeleteTopicsRequest(topics=refs))
    assert [(each.name, each.error_code) for each in deleted.topics] == [
        ("t0", 0),
        ("missing", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("t1", E.INVALID_REQUEST),
        ("t1", E.INVALID_REQUEST),
        ("__consumer_offsets", E.INVALID_TOPIC_EXCEPTION),
        ("t3", E.KAFKA_STORAGE_ERROR),
        ("t4", 0),
        ("", E.UNKNOWN_TOPIC_ID),
    ]
    assert sizes == [3, 1, 1, 1]
    assert await peer.names() == ["__consumer_offsets", "t1", "t2", "t3"]


async def test_internal_topics_cannot_be_deleted(peer: Peer) -> None:
    await peer.describe("__consumer_offsets", auto_create=True)
    refs = [topics.TopicRef(name="__consumer_offsets")]
    deleted = await peer.topics.DeleteTopics(topics.DeleteTopicsRequest(topics=refs))
    assert [each.error_code for each in deleted.topics] == [E.INVALID_TOPIC_EXCEPTION]
