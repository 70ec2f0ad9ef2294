"""Groups: the machine, Millrace in both layouts and Apache Kafka 4.3.0 give the answers that the scripts say."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from pprint import pformat
from typing import Any

import pytest
from millrace.broker import Broker
from protocol_lib.errors import ErrorCode as E
from protocol_lib.messages import incremental_alter_configs as alteration
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.kafka_broker import ApacheKafka, need_java
from up_process import RunningUp

from tests.groups.machine import SIZE_MAX, MachineLevel
from tests.groups.requests import CONFIGS, GROUP_RESOURCE, Asked, GroupRequests
from tests.groups.script import CONFIG_APIS, LEVELS, SCRIPTS
from tests.groups.talk import Talk

TOPICS = {"orders": 3, "users": 1, "wide": 300}
HEARTBEAT = CONFIGS["HEARTBEAT"]
#: Time between the announcement of a config by Kafka's broker and its use.
FOLLOWED_S = 0.05
SETTINGS = {"group_max_size": SIZE_MAX, "group_consumer_max_size": SIZE_MAX, "group_consumer_assignment_interval_ms": 0}
#: Computed in another thread, a target would be there a moment later.
KAFKA_SETTINGS = {"group.consumer.assignor.offload.enable": "false"}
#: Every error code that Kafka has for calls of groups: the scripts expect them all.
CODES: Mapping[str, str] = {
    "join": (
        "INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT "
        "MEMBER_ID_REQUIRED GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID"
    ),
    "sync": (
        "UNKNOWN_SERVER_ERROR ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID "
        "UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID"
    ),
    "heartbeat": "ILLEGAL_GENERATION INVALID_GROUP_ID UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS FENCED_INSTANCE_ID",
    "leave": "INVALID_GROUP_ID UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID",
    "commit": (
        "UNKNOWN_SERVER_ERROR UNKNOWN_TOPIC_OR_PARTITION OFFSET_METADATA_TOO_LARGE ILLEGAL_GENERATION "
        "UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS UNSUPPORTED_VERSION GROUP_ID_NOT_FOUND "
        "FENCED_INSTANCE_ID STALE_MEMBER_EPOCH"
    ),
    "fetch": "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH",
    "forget": "UNKNOWN_TOPIC_OR_PARTITION GROUP_ID_NOT_FOUND NON_EMPTY_GROUP GROUP_SUBSCRIBED_TO_TOPIC",
    "delete": "NON_EMPTY_GROUP GROUP_ID_NOT_FOUND",
    "describe": "GROUP_ID_NOT_FOUND",
    "beat|enter": (
        "UNKNOWN_SERVER_ERROR UNKNOWN_MEMBER_ID INVALID_REQUEST GROUP_ID_NOT_FOUND "
        "GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID "
        "UNSUPPORTED_ASSIGNOR INVALID_REGULAR_EXPRESSION"
    ),
    "described": "INVALID_GROUP_ID GROUP_ID_NOT_FOUND",
    "configs": "INVALID_REQUEST",
    "replace": "INVALID_CONFIG INVALID_REQUEST",
    "alter": "INVALID_CONFIG INVALID_REQUEST",
    "config_resources": "UNSUPPORTED_VERSION",
}
# Codes of a broker in trouble no conversation with one brings about; these are tested elsewhere:
# COORDINATOR_LOAD_IN_PROGRESS in storage_svc/coordinator/test_group_coordinator.py and faults/test_group_kills.py,
# COORDINATOR_NOT_AVAILABLE in storage_svc/coordinator/classic (Dead) and test_offsets.py (failed appends),
# NOT_COORDINATOR in storage_svc/coordinator/test_group_coordinator.py (a log that goes offline; a stop).


def group_of(name: str) -> str:
    """Return the group of a script: no other one's begins with it."""
    return f"g-{name}."


class Peer:
    """A broker with the topics, ready for groups. A `Level` of one script at a time."""

    def __init__(self, address: tuple[str, int], short_ms: int, soon_ms: int) -> None:
        self.short_ms, self.soon_ms = short_ms, soon_ms
        self._address = address
        self._marks = 0
        self.topic_ids = asyncio.run(self._prepare())

    async def _prepare(self) -> Mapping[str, bytes]:
        talk = Talk(self._address, "prepared", {})
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
                heartbeat = GroupRequests(group, {}).heartbeat("nobody", 0)
                while (await talk.ask("a", *heartbeat)).error_code != E.UNKNOWN_MEMBER_ID:
                    await talk.ask("a", 10, 4, FindCoordinatorRequest(coordinator_keys=(group,)))
                    await asyncio.sleep(0.1)
        await talk.close()
        return {topic.name: topic.topic_id for topic in created.topics}

    async def run(self, name: str) -> None:
        self._talk = Talk(self._address, group_of(name), self.topic_ids)
        self.park = self._talk.park
        try:
            await check(self, name)
        finally:
            await self._talk.close()

    def serves(self, _api_key: int) -> bool:
        return True

    async def send(self, who: str, asked: Asked) -> Any:
        answer = await self._talk.send(who, asked)
        if asked.api_key in CONFIG_APIS:
            await answer
            await self._until_followed()
        return answer

    async def wait(self, milliseconds: float) -> None:
        await asyncio.sleep(milliseconds / 1000)

    async def until_epoch_after(self, epoch: int, requests: GroupRequests) -> None:
        async with asyncio.timeout(30):
            while (await self._talk.ask("a", *requests.described())).groups[0].group_epoch <= epoch:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def _until_followed(self) -> None:
        """Wait until Kafka's broker has read a mark, and so all writes before it.

        The broker reads its controller's writes in their order.
        """
        self._marks += 1
        name, value = "g-mark", str(5_000 + self._marks)
        change = alteration.AlterableConfig(name=HEARTBEAT, config_operation=0, value=value)
        marked = alteration.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configs=(change,))
        request = alteration.IncrementalAlterConfigsRequest(resources=(marked,), validate_only=False)
        assert (await self._talk.ask("mark", 44, 1, request)).responses[0].error_code == 0
        looked_at = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=name, configuration_keys=(HEARTBEAT,)
        )
        async with asyncio.timeout(30):
            known = ""
            while known != value:
                answer = await self._talk.ask("mark", 32, 4, DescribeConfigsRequest(resources=(looked_at,)))
                known = answer.results[0].configs[0].value
        await asyncio.sleep(FOLLOWED_S)


async def check(level: Any, name: str) -> None:
    expected, said = await SCRIPTS[name].run(level, group_of(name))
    assert pformat(said, width=140) == pformat(expected, width=140)


def scripts_of(level: str) -> list[str]:
    return [name for name, script in SCRIPTS.items() if level not in script.excluded]


@pytest.mark.parametrize("name", scripts_of("machine"))
async def test_machine(name: str) -> None:
    await check(MachineLevel(TOPICS), name)


@pytest.fixture(scope="module")
def combined() -> Iterator[Peer]:
    with Broker(**SETTINGS, group_min_session_timeout_ms=400) as broker:
        yield Peer(broker.kafka_address, 400, 400)


@pytest.mark.parametrize("name", scripts_of("combined"))
async def test_combined(combined: Peer, name: str) -> None:
    await combined.run(name)


@pytest.fixture(scope="module")
def separate() -> Iterator[Peer]:
    environment = {f"MILLRACE_{name.upper()}": str(value) for name, value in SETTINGS.items()}
    with RunningUp("--kafka-port", "0", "--http-port", "0", "--processes", environment=environment) as up:
        host, port = up.kafka.rsplit(":", 1)
        yield Peer((host, int(port)), 6_000, 4_000)


@pytest.mark.conformance
@pytest.mark.parametrize("name", scripts_of("separate"))
async def test_separate(separate: Peer, name: str) -> None:
    await separate.run(name)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    need_java()
    settings = {name.replace("_", "."): str(value) for name, value in SETTINGS.items()}
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings | KAFKA_SETTINGS) as node:
        host, port = node.bootstrap.rsplit(":", 1)
        yield Peer((host, int(port)), 6_000, 4_000)


@pytest.mark.conformance
@pytest.mark.parametrize("name", scripts_of("kafka"))
async def test_kafka(kafka: Peer, name: str) -> None:
    await kafka.run(name)


def test_the_scripts_expect_the_error_codes() -> None:
    lines = [line for script in SCRIPTS.values() if "kafka" not in script.excluded for line in script.lines]
    missing = {
        f"{api}: {code}"
        for api, codes in CODES.items()
        for code in codes.split()
        if not any(re.search(rf"\b({api})\(", line) and code in line for line in lines)
    }
    assert missing == set()


def test_scripts_name_levels_that_there_are() -> None:
    assert {level for script in SCRIPTS.values() for level in script.excluded} <= set(LEVELS)
