"""The table of rights, asked of one broker: each case in each version, by a client with all rights and one with few."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gateway_svc.handlers import HANDLERS
from protocol_lib.api import ApiKey
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.init_producer_id import InitProducerIdRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from tests.wire.rights.answers import lines_of
from tests.wire.rights.requests import CASES, SINCE, request_of

TOPICS: Final = ("a", "b", "a-doomed", "b-doomed")
#: Scenarios by name: whether the client has all rights, and the names in the request.
SCENARIOS: Final[dict[str, tuple[bool, Sequence[str]]]] = {
    "denied": (False, ("b",)),
    "half denied": (False, ("a", "b")),
    "allowed": (True, ("a", "b")),
}
#: The case of a member that subscribes by a pattern: a conversation, whose lines are the topics that it gets.
PATTERN_CASE: Final = "ConsumerGroupHeartbeat of a pattern v1"
#: Heartbeats without another topic after which a member has all of its topics, where their number is not known.
_SETTLED: Final = 25
RANGES: Final = {each.api_key: range(each.min_version, each.max_version + 1) for each in HANDLERS}

#: A function that sends a request as the client with all rights (True) or with few, and returns the response.
Send = Callable[[bool, ApiKey, int, Any], Awaitable[Any]]


async def prepared(send: Send) -> dict[bytes, str]:
    """Make the topics, committed offsets and transactional ids that the cases name; return the topics by id."""
    rows = tuple(
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()) for name in TOPICS
    )
    await send(True, ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=rows, timeout_ms=10_000))
    for key_type in (0, 1):
        find = FindCoordinatorRequest(key="a", key_type=key_type)
        await until_fine(send, ApiKey.FIND_COORDINATOR, 3, find, lambda found: found.error_code)
    for name in TOPICS[:2]:
        row = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
        topics = tuple(OffsetCommitRequestTopic(name=each, partitions=(row,)) for each in TOPICS[:2])
        commit = OffsetCommitRequest(group_id=f"{name}-commits", topics=topics)
        await until_fine(send, ApiKey.OFFSET_COMMIT, 7, commit, lambda found: found.topics[0].partitions[0].error_code)
        init = InitProducerIdRequest(transactional_id=f"{name}-tx", transaction_timeout_ms=1000)
        await until_fine(send, ApiKey.INIT_PRODUCER_ID, 1, init, lambda found: found.error_code)
    named = tuple(MetadataRequestTopic(name=name) for name in TOPICS)
    metadata = await send(True, ApiKey.METADATA, 12, MetadataRequest(topics=named))
    return {topic.topic_id: topic.name for topic in metadata.topics}


async def until_fine(send: Send, api_key: ApiKey, version: int, request: Any, code: Callable[[Any], int]) -> None:
    """Send a request again until the coordinator is there."""
    for _ in range(1000):
        if not code(await send(True, api_key, version, request)):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(api_key)


def asked() -> Iterator[tuple[str, ApiKey, int]]:
    """Yield case, API and version of each question."""
    for name, (api_key, _) in CASES.items():
        for version in RANGES[api_key]:
            if version >= SINCE.get(name, 0):
                yield name, api_key, version


async def served(send: Send) -> Callable[[ApiKey, int], bool]:
    """Return whether the broker serves an API in a version, as it says."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    listed = await send(True, ApiKey.API_VERSIONS, 3, request)
    ranges = {each.api_key: range(each.min_version, each.max_version + 1) for each in listed.api_keys}
    return lambda api_key, version: version in ranges[api_key]


async def answers(
    send: Send, topics: Mapping[bytes, str], is_served: Callable[[ApiKey, int], bool]
) -> dict[str, dict[str, list[str]]]:
    """Return the lines of the answers in versions that are served, by scenario and by case with its version."""
    ids = {name: topic_id for topic_id, name in topics.items()}
    found: dict[str, dict[str, list[str]]] = {scenario: {} for scenario in SCENARIOS}
    for name, api_key, version in asked():
        if not is_served(api_key, version):
            continue
        for scenario, (has_all, names) in SCENARIOS.items():
            request = request_of(api_key, CASES[name][1](version, names, ids))
            response = await send(has_all, api_key, version, request)
            lines = lines_of(response, topics)
            found[scenario][f"{name} v{version}"] = [line for line in lines if "[__" not in line]
    return found


async def assigned_by_pattern(
    send: Send, topics: Mapping[bytes, str], scenario: str, expected: Sequence[str] | None = None
) -> list[str]:
    """Return the lines of PATTERN_CASE: the topics of a member that subscribes to all those of the scenario's names.

    Kafka and Millrace match patterns in the background. With `expected`, wait for these topics and see that no others
    follow.
    """
    has_all, names = SCENARIOS[scenario]
    group_id, pattern = f"a-{scenario}", "|".join(f"{name}.*" for name in names)
    held: tuple[bytes, ...] = ()
    epoch, quiet, enough = 0, 0, _SETTLED if expected is None else 3
    while quiet < enough:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=-1 if epoch else 60_000,
            subscribed_topic_regex=None if epoch else pattern,
            topic_partitions=tuple(TopicPartitions(topic_id=each, partitions=(0,)) for each in held),
        )
        answer = await send(has_all, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
        if answer.error_code:
            return [f"error_code={answer.error_code}"]
        epoch, before = answer.member_epoch, held
        if answer.assignment is not None:
            held = tuple(each.topic_id for each in answer.assignment.topic_partitions)
        is_complete = expected is None or _lines(held, topics) == list(expected)
        quiet = quiet + 1 if held == before and is_complete else 0
        await asyncio.sleep(0.2 if expected is None else 0.01)
    return _lines(held, topics)


def _lines(held: Sequence[bytes], topics: Mapping[bytes, str]) -> list[str]:
    return sorted(f"assigned {topics[each]}" for each in held)
