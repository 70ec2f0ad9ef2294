"""Groups: Apache Kafka 4.3.0 and Millrace give the same answers to the same conversations."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pprint import pformat

import pytest
from millrace.broker import Broker
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.kafka_broker import ApacheKafka, need_java
from up_process import RunningUp

from tests.parity import classic_groups, classic_offsets, consumer_groups, group_bad_input, group_configs, migrations
from tests.parity.groups import GroupTalk

pytestmark = pytest.mark.conformance

#: Small groups, and assignments computed at once.
KAFKA_SETTINGS = {
    "group.max.size": "3",
    "group.consumer.max.size": "3",
    "group.consumer.assignment.interval.ms": "0",
    # Computed in another thread, a target would be there a moment later.
    "group.consumer.assignor.offload.enable": "false",
}
Script = Callable[[GroupTalk], Awaitable[None]]
TOPICS = {"orders": 3, "users": 1, "wide": 300}
SCRIPTS: dict[str, Script] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": script
    for module in (classic_groups, classic_offsets, consumer_groups, migrations, group_bad_input, group_configs)
    for name, script in inspect.getmembers(module, inspect.iscoroutinefunction)
    if script.__module__ == module.__name__
}
E = ErrorCode
#: Every error code that Kafka has for calls of groups, by request: the scripts provoke them all.
CODES: Mapping[str, set[ErrorCode]] = {
    "JoinGroupRequest": {
        E.INCONSISTENT_GROUP_PROTOCOL,
        E.INVALID_GROUP_ID,
        E.UNKNOWN_MEMBER_ID,
        E.INVALID_SESSION_TIMEOUT,
        E.MEMBER_ID_REQUIRED,
        E.GROUP_MAX_SIZE_REACHED,
        E.FENCED_INSTANCE_ID,
    },
    "SyncGroupRequest": {
        E.UNKNOWN_SERVER_ERROR,  # a record that is too large
        E.ILLEGAL_GENERATION,
        E.INCONSISTENT_GROUP_PROTOCOL,
        E.INVALID_GROUP_ID,
        E.UNKNOWN_MEMBER_ID,
        E.REBALANCE_IN_PROGRESS,
        E.FENCED_INSTANCE_ID,
    },
    "HeartbeatRequest": {
        E.ILLEGAL_GENERATION,
        E.INVALID_GROUP_ID,
        E.UNKNOWN_MEMBER_ID,
        E.REBALANCE_IN_PROGRESS,
        E.FENCED_INSTANCE_ID,
    },
    "LeaveGroupRequest": {E.INVALID_GROUP_ID, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID},
    "OffsetCommitRequest": {
        E.UNKNOWN_SERVER_ERROR,  # a record that is too large
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.OFFSET_METADATA_TOO_LARGE,
        E.ILLEGAL_GENERATION,
        E.UNKNOWN_MEMBER_ID,
        E.REBALANCE_IN_PROGRESS,
        E.UNSUPPORTED_VERSION,
        E.GROUP_ID_NOT_FOUND,
        E.FENCED_INSTANCE_ID,
        E.STALE_MEMBER_EPOCH,
    },
    "OffsetFetchRequest": {E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.STALE_MEMBER_EPOCH},
    "OffsetDeleteRequest": {
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.GROUP_ID_NOT_FOUND,
        E.NON_EMPTY_GROUP,
        E.GROUP_SUBSCRIBED_TO_TOPIC,
    },
    "DeleteGroupsRequest": {E.NON_EMPTY_GROUP, E.GROUP_ID_NOT_FOUND},
    "DescribeGroupsRequest": {E.GROUP_ID_NOT_FOUND},
    "ListGroupsRequest": set(),
    "ConsumerGroupHeartbeatRequest": {
        E.UNKNOWN_SERVER_ERROR,  # a record that is too large
        E.UNKNOWN_MEMBER_ID,
        E.INVALID_REQUEST,
        E.GROUP_ID_NOT_FOUND,
        E.GROUP_MAX_SIZE_REACHED,
        E.FENCED_INSTANCE_ID,
        E.FENCED_MEMBER_EPOCH,
        E.UNRELEASED_INSTANCE_ID,
        E.UNSUPPORTED_ASSIGNOR,
        E.INVALID_REGULAR_EXPRESSION,
    },
    "ConsumerGroupDescribeRequest": {E.INVALID_GROUP_ID, E.GROUP_ID_NOT_FOUND},
    "DescribeConfigsRequest": {E.INVALID_REQUEST},
    "AlterConfigsRequest": {E.INVALID_CONFIG, E.INVALID_REQUEST},
    "IncrementalAlterConfigsRequest": {E.INVALID_CONFIG, E.INVALID_REQUEST},
    "ListConfigResourcesRequest": {E.UNSUPPORTED_VERSION},
}
# Codes of a broker in trouble no conversation with one brings about; these are tested elsewhere:
# COORDINATOR_LOAD_IN_PROGRESS in storage_svc/coordinator/test_group_coordinator.py and faults/test_group_kills.py,
# COORDINATOR_NOT_AVAILABLE in storage_svc/coordinator/test_group.py (Dead) and test_offsets.py (failed appends),
# NOT_COORDINATOR in storage_svc/coordinator/test_group_coordinator.py (a log that goes offline; a stop).


def group_of(name: str) -> str:
    """Return the group of a script."""
    return f"g-{name}"


@dataclass(frozen=True)
class Peer:
    """A broker with the topics, ready for groups."""

    address: tuple[str, int]
    topic_ids: Mapping[str, bytes]

    @classmethod
    def prepare(cls, host: str, port: int) -> Peer:
        return asyncio.run(cls._prepare((host, port)))

    @classmethod
    async def _prepare(cls, address: tuple[str, int]) -> Peer:
        talk = GroupTalk(address, "prepared", {})
        made = tuple(
            CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=(), configs=())
            for name, count in TOPICS.items()
        )
        created = await talk.ask("a", 19, 7, CreateTopicsRequest(topics=made, timeout_ms=10_000))
        assert {topic.error_code for topic in created.topics} == {0}
        asked = tuple(MetadataRequestTopic(name=name) for name in TOPICS)
        async with asyncio.timeout(60):
            known = False
            while not known:  # Kafka's broker hears of the topics a moment later
                answer = await talk.ask("a", 3, 12, MetadataRequest(topics=asked))
                known = all(topic.error_code == 0 for topic in answer.topics)
            # The first to look for a coordinator makes Kafka make __consumer_offsets; each of its partitions serves
            # its groups a moment later.
            for name in SCRIPTS:
                group = group_of(name)
                while (await talk.heartbeat("a", "nobody", 0, group_id=group)).error_code != E.UNKNOWN_MEMBER_ID:
                    await talk.ask("a", 10, 4, FindCoordinatorRequest(coordinator_keys=(group,)))
                    await asyncio.sleep(0.1)
        await talk.close()
        return cls(address, {topic.name: topic.topic_id for topic in created.topics})

    async def transcript(self, name: str) -> list[object]:
        talk = GroupTalk(self.address, group_of(name), self.topic_ids)
        try:
            await SCRIPTS[name](talk)
        finally:
            await talk.close()
        return talk.transcript


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    need_java()
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), KAFKA_SETTINGS) as node:
        host, port = node.bootstrap.rsplit(":", 1)
        yield Peer.prepare(host, int(port))


@pytest.fixture(scope="module", params=["combined", "separate"])
def millrace(request: pytest.FixtureRequest) -> Iterator[Peer]:
    settings = {"group_max_size": 3, "group_consumer_max_size": 3, "group_consumer_assignment_interval_ms": 0}
    if request.param == "combined":
        with Broker(**settings) as broker:
            yield Peer.prepare(*broker.kafka_address)
        return
    environment = {f"MILLRACE_{name.upper()}": str(value) for name, value in settings.items()}
    with RunningUp("--kafka-port", "0", "--http-port", "0", "--processes", environment=environment) as up:
        host, port = up.kafka.rsplit(":", 1)
        yield Peer.prepare(host, int(port))


def _error_codes(value: object) -> set[int]:
    if isinstance(value, dict):
        own = {value["error_code"]} if isinstance(value.get("error_code"), int) else set()
        return own.union(*map(_error_codes, value.values()))
    if isinstance(value, list | tuple):
        return set().union(*map(_error_codes, value))
    return set()


#: Script -> Kafka's answers: its groups have changed when the next mode is asked.
_kafkas_answers: dict[str, list[object]] = {}
#: Request -> the codes that Kafka answered.
_seen: dict[str, set[int]] = {}


def _note(transcript: list[object]) -> None:
    for each in transcript:
        if isinstance(each, tuple):
            request = str(each[0]).split()[1]
            _seen.setdefault(request, set()).update(_error_codes(each[1]))


@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_same_answers(name: str, kafka: Peer, millrace: Peer) -> None:
    if name not in _kafkas_answers:
        _kafkas_answers[name] = await kafka.transcript(name)
    expected, answers = _kafkas_answers[name], await millrace.transcript(name)
    _note(expected)
    assert pformat(answers, width=100) == pformat(expected, width=100)


def test_the_scripts_provoke_the_error_codes(request: pytest.FixtureRequest) -> None:
    if sum("test_the_same_answers" in each.name for each in request.session.items) < len(SCRIPTS):
        pytest.skip("not all scripts were run")
    assert {api: missing for api, codes in CODES.items() if (missing := codes - _seen.get(api, set()))} == {}
