"""The table of rights, asked of one broker: each case in each version, by users with different rights."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

from gateway_svc.handlers import HANDLERS
from protocol_lib.api import APIS, ApiKey
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol_lib.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.init_producer_id import InitProducerIdRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from tests.wire.rights.answers import lines_of
from tests.wire.rights.odd_requests import ODD_CASES
from tests.wire.rights.requests import CASES, SINCE
from tests.wire.rights.table import Table
from tests.wire.rights.users import (
    PATTERN_USERS,
    SCENARIOS,
    SCENARIOS_OF_ODD_REQUESTS,
    SCENARIOS_OF_OPERATIONS,
    SCENARIOS_WITHOUT_ACL,
    SUPER_USER,
    Scenario,
)

#: The records of the requests are years old.
_KEEP: Final = CreatableTopicConfig(name="retention.ms", value="-1")
_KEPT: Final = ("a", "b")
_DOOMED: Final = ("a-doomed", "b-doomed")
#: The case of a member that subscribes by a pattern: a conversation, whose lines are the topics that it gets.
PATTERN_CASE: Final = "ConsumerGroupHeartbeat of a pattern"
_PATTERN: Final = "a.*|b.*"
#: Heartbeats without another topic after which a member has all of its topics, where their number is not known.
_SETTLED: Final = 25
RANGES: Final = {each.api_key: range(each.min_version, each.max_version + 1) for each in HANDLERS}

#: A function that sends a request as a user, and returns the response; None if the broker closed the connection.
Send = Callable[[str, ApiKey, int, Any], Awaitable[Any]]
#: A function that returns whether a broker serves an API in a version.
IsServed = Callable[[ApiKey, int], bool]


class Question(NamedTuple):
    """One cell of the table."""

    case: str
    version: int
    scenario: Scenario


def questions(is_served: IsServed, *, without_acl: bool) -> Iterator[Question]:
    """Yield every question; `without_acl` for a broker that allows what no ACL covers."""
    for case, (api_key, _) in {**CASES, **ODD_CASES}.items():
        since = SINCE.get(case.partition(":")[0], 0)
        versions = [each for each in RANGES[api_key] if each >= since and is_served(api_key, each)]
        if without_acl:
            scenarios = SCENARIOS_WITHOUT_ACL
        else:
            scenarios = SCENARIOS_OF_ODD_REQUESTS if case in ODD_CASES else SCENARIOS
        for version in versions:
            for scenario in scenarios:
                yield Question(case, version, scenario)
        if not without_acl and case in CASES:
            for scenario in SCENARIOS_OF_OPERATIONS:
                yield Question(case, versions[-1], scenario)


def request_of(api_key: ApiKey, asked: Mapping[str, Any]) -> Any:
    """Return the request of an API with these fields, in which rows are dictionaries, too."""
    return _made(APIS[api_key].request, asked)


def _made(cls: type, values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    known = {each.name for each in fields(cls)}
    return cls(**{name: _value(hints[name], value) for name, value in values.items() if name in known})


def _value(hint: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        row = next((each for each in _arguments(hint) if is_dataclass(each)), None)
        return tuple(value) if row is None else tuple(_made(row, each) for each in value)  # type: ignore[arg-type]
    return _made(hint, value) if is_dataclass(hint) and isinstance(value, Mapping) else value  # type: ignore[arg-type]


def _arguments(hint: Any) -> list[Any]:
    found = []
    for each in typing.get_args(hint):
        found += [each, *_arguments(each)]
    return found


async def prepared(send: Send) -> dict[bytes, str]:
    """Make the topics, committed offsets and transactional ids that the cases name; return the topics by id."""
    topics: dict[bytes, str] = {}
    await _create(send, topics, *_KEPT, *_DOOMED)
    for key_type in (0, 1):
        find = FindCoordinatorRequest(key="a", key_type=key_type)
        await until_fine(send, ApiKey.FIND_COORDINATOR, 3, find, lambda found: found.error_code)
    named = tuple(MetadataRequestTopic(name=name) for name in (*_KEPT, *_DOOMED))
    await until_fine(
        send, ApiKey.METADATA, 12, MetadataRequest(topics=named), lambda found: any(t.error_code for t in found.topics)
    )
    for name in _KEPT:
        await _commit(send, f"{name}-commits")
        init = InitProducerIdRequest(transactional_id=f"{name}-tx", transaction_timeout_ms=1000)
        await until_fine(send, ApiKey.INIT_PRODUCER_ID, 1, init, lambda found: found.error_code)
    return topics


async def _create(send: Send, topics: dict[bytes, str], *names: str) -> None:
    """Make topics that are not there, and note their ids."""
    rows = tuple(
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=(_KEEP,))
        for name in names
    )
    made = await send(SUPER_USER, ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=rows, timeout_ms=10_000))
    topics.update({bytes(each.topic_id): each.name for each in made.topics if not each.error_code})


async def _commit(send: Send, group_id: str) -> None:
    row = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    topics = tuple(OffsetCommitRequestTopic(name=each, partitions=(row,)) for each in _KEPT)
    commit = OffsetCommitRequest(group_id=group_id, topics=topics)
    await until_fine(send, ApiKey.OFFSET_COMMIT, 7, commit, lambda found: found.topics[0].partitions[0].error_code)


async def until_fine(send: Send, api_key: ApiKey, version: int, request: Any, code: Callable[[Any], int]) -> None:
    """Send a request again until the coordinator is there."""
    for _ in range(1000):
        if not code(await send(SUPER_USER, api_key, version, request)):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(api_key)


async def served(send: Send) -> IsServed:
    """Return whether the broker serves an API in a version, as it says."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    listed = await send(SUPER_USER, ApiKey.API_VERSIONS, 3, request)
    ranges = {each.api_key: range(each.min_version, each.max_version + 1) for each in listed.api_keys}
    return lambda api_key, version: version in ranges[api_key]


async def answers(send: Send, topics: dict[bytes, str], is_served: IsServed, *, without_acl: bool) -> Table:
    """Ask every question; return the lines of the answers."""
    found: Table = {}
    for case, version, scenario in questions(is_served, without_acl=without_acl):
        if case == "DeleteTopics by id":
            await _create(send, topics, *_DOOMED)
        elif case == "OffsetDelete":
            await _commit(send, "a-commits")
        ids = {name: topic_id for topic_id, name in topics.items()}
        api_key, ask = {**CASES, **ODD_CASES}[case]
        response = await send(scenario.user, api_key, version, request_of(api_key, ask(version, scenario.names, ids)))
        lines = ["closed"] if response is None else lines_of(response, topics)
        row = found.setdefault(case, {}).setdefault(version, {})
        if case in ODD_CASES:  # how often a row is there that is asked for twice is for `test_named_twice`
            lines = sorted(set(lines))
        row[str(scenario)] = [line for line in lines if "[__" not in line]
    return found


async def patterns(
    send: Send, topics: Mapping[bytes, str], expected: Mapping[str, Sequence[str]] | None = None
) -> Table:
    """Return the lines of PATTERN_CASE."""
    found = {}
    for user in PATTERN_USERS:
        scenario = str(Scenario(user, _KEPT))
        wanted = None if expected is None else expected[scenario]
        found[scenario] = await _assigned_by_pattern(send, topics, user, wanted)
    return {PATTERN_CASE: {1: found}}


async def _assigned_by_pattern(
    send: Send, topics: Mapping[bytes, str], user: str, expected: Sequence[str] | None
) -> list[str]:
    """Return the topics that a user's member gets that subscribes to all of them.

    Kafka and Millrace match patterns in the background. With `expected`, wait for these topics and see that no others
    follow.
    """
    held: tuple[bytes, ...] = ()
    epoch, quiet, enough = 0, 0, _SETTLED if expected is None else 3
    while quiet < enough:
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"a-{user}",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=-1 if epoch else 60_000,
            subscribed_topic_regex=None if epoch else _PATTERN,
            topic_partitions=tuple(TopicPartitions(topic_id=each, partitions=(0,)) for each in held),
        )
        answer = await send(user, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
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
