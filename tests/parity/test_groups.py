"""Groups: Apache Kafka 4.3.0 and Millrace give the same answers to the same conversations."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pprint import pformat

import pytest
from kafka_broker import ApacheKafka, need_java
from millrace.broker import Broker
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic

from tests.parity import classic_groups, consumer_groups, migrations
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
TOPICS = {"orders": 3, "users": 1}
SCRIPTS: dict[str, Script] = {
    name: script
    for module in (classic_groups, consumer_groups, migrations)
    for name, script in inspect.getmembers(module, inspect.iscoroutinefunction)
    if script.__module__ == module.__name__
}
#: What the scripts must have provoked together; the other codes of the group APIs need a broker in trouble.
PROVOKED = {0, 12, 22, 23, 24, 25, 26, 27, 3, 35, 42, 68, 69, 79, 81, 82, 86, 110, 111, 112, 113, 128}


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
        await talk.ask("a", 19, 7, CreateTopicsRequest(topics=made, timeout_ms=10_000))
        asked = tuple(MetadataRequestTopic(name=name) for name in TOPICS)
        response = await talk.ask("a", 3, 12, MetadataRequest(topics=asked))
        # The first to look for a coordinator makes Kafka make __consumer_offsets; it serves groups a moment later.
        async with asyncio.timeout(30):
            while (await talk.heartbeat("a", "nobody", 0)).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
                await talk.ask("a", 10, 4, FindCoordinatorRequest(coordinator_keys=("prepared",)))
                await asyncio.sleep(0.1)
        await talk.close()
        return cls(address, {topic.name: topic.topic_id for topic in response.topics})

    async def transcript(self, script: Script) -> list[object]:
        talk = GroupTalk(self.address, f"g-{script.__name__}", self.topic_ids)
        try:
            await script(talk)
        finally:
            await talk.close()
        return talk.transcript


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    need_java()
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), KAFKA_SETTINGS) as node:
        host, port = node.bootstrap.rsplit(":", 1)
        yield Peer.prepare(host, int(port))


@pytest.fixture(scope="module")
def millrace() -> Iterator[Peer]:
    with Broker(group_max_size=3, group_consumer_max_size=3, group_consumer_assignment_interval_ms=0) as broker:
        yield Peer.prepare(*broker.kafka_address)


def _error_codes(value: object) -> set[int]:
    if isinstance(value, dict):
        own = {value["error_code"]} if isinstance(value.get("error_code"), int) else set()
        return own.union(*map(_error_codes, value.values()))
    if isinstance(value, list | tuple):
        return set().union(*map(_error_codes, value))
    return set()


_seen: set[int] = set()


@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_same_answers(name: str, kafka: Peer, millrace: Peer) -> None:
    expected, answers = await asyncio.gather(kafka.transcript(SCRIPTS[name]), millrace.transcript(SCRIPTS[name]))
    _seen.update(_error_codes(expected))
    assert pformat(answers, width=100) == pformat(expected, width=100)


def test_the_scripts_provoke_the_error_codes(request: pytest.FixtureRequest) -> None:
    if sum("test_the_same_answers" in each.name for each in request.session.items) < len(SCRIPTS):
        pytest.skip("not all scripts were run")
    assert sorted(PROVOKED - _seen) == []
