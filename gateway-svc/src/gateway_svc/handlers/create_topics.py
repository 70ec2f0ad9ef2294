"""CreateTopics: any broker does it, since storage keeps the catalog; REQUEST_TIMED_OUT when its time is over first.

A name that stands twice in one request is INVALID_REQUEST for both, as in Apache Kafka. A number of partitions or
replicas of -1 means the broker's default in every version. Version 5 returns the new topic's configs, version 7 its id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol_lib.schema import ZERO_UUID

from gateway_svc.handlers.mutation_quota import MESSAGE, over_quota
from gateway_svc.requests.call import Call
from gateway_svc.requests.config_rows import ConfigRows
from gateway_svc.requests.contexts import TopicContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, cluster
from gateway_svc.requests.rights import Rights, Rows, named_twice
from gateway_svc.requests.time_limit import TimeLimit
from gateway_svc.requests.turns import in_turns

#: Topics that storage creates together, with two syncs: each is answered with some thirty configs.
_PIECE: Final = 100
#: The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_QUOTA_VERSION: Final = 6


async def handle(call: Call, request: CreateTopicsRequest, context: TopicContext) -> tuple[CreateTopicsResponse, int]:
    named = Counter(topic.name for topic in request.topics)
    single = [topic for topic in request.topics if named[topic.name] == 1]
    rows = ConfigRows(_config)
    created: dict[str, CreatableTopicResult] = {}
    if not request.validate_only:
        counts = [(topic.name, len(topic.assignments) or topic.num_partitions) for topic in single]
        over = await over_quota(call, context.access, counts, strict_since=_QUOTA_VERSION)
        created |= {name: _refused(name, ErrorCode.THROTTLING_QUOTA_EXCEEDED, MESSAGE) for name in over}
        single = [topic for topic in single if topic.name not in over]
    limit = TimeLimit(request.timeout_ms)
    async for piece in in_turns(single, _PIECE):
        asked = topics_pb2.CreateTopicsRequest(
            correlation_id=call.correlation_id,
            validate_only=request.validate_only,
            topics=[_new_topic(topic) for topic in piece],
        )
        answer = await limit.within(partial(context.topics.create_topics, asked), partial(_late, piece))
        rights = call.rights
        created |= {topic.name: _result(made, rows, rights) for topic, made in zip(piece, answer.topics, strict=True)}
    results = tuple(created.get(name) or _named_twice(name) for name in named)
    return CreateTopicsResponse(topics=results), first_error(results)


def _named_twice(name: str) -> CreatableTopicResult:
    return _refused(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


def _refused(name: str, code: int, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message, configs=None)


def _late(topics: Sequence[CreatableTopic]) -> topics_pb2.CreateTopicsResponse:
    error = ErrorCode.REQUEST_TIMED_OUT
    return topics_pb2.CreateTopicsResponse(
        topics=[topics_pb2.CreatedTopic(name=topic.name, error_code=error) for topic in topics]
    )


def _new_topic(topic: CreatableTopic) -> topics_pb2.NewTopic:
    return topics_pb2.NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=[topics_pb2.ConfigEntry(name=each.name, value=each.value) for each in topic.configs],
        assignments=[
            topics_pb2.Assignment(partition=each.partition_index, broker_ids=each.broker_ids)
            for each in topic.assignments
        ],
    )


def _result(
    created: topics_pb2.CreatedTopic, rows: ConfigRows[CreatableTopicConfigs], rights: Rights
) -> CreatableTopicResult:
    if created.error_code:
        return CreatableTopicResult(
            name=created.name,
            error_code=created.error_code,
            error_message=created.error_message or None,
            configs=None,
        )
    if not rights.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, created.name):
        return CreatableTopicResult(
            name=created.name,
            topic_id=created.id or ZERO_UUID,
            error_code=ErrorCode.NONE,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=(),
        )
    return CreatableTopicResult(
        name=created.name,
        topic_id=created.id or ZERO_UUID,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=created.partition_count,
        replication_factor=created.replication_factor,
        configs=rows.of(created.configs),
    )


def _config(config: topics_pb2.Config) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=config.name,
        value=config.value if config.HasField("value") else None,
        read_only=config.is_read_only,
        config_source=config.source,
        is_sensitive=config.is_sensitive,
    )


def resources(_call: Call, request: CreateTopicsRequest, _context: object) -> Iterable[Resource]:
    return [_of(name) for name in dict.fromkeys(topic.name for topic in request.topics)]


def _of(name: str) -> Resource:
    create = Operation.CREATE
    return Resource(ResourceType.TOPIC, name, create, alternative=cluster(create))


def refuse(_call: Call, request: CreateTopicsRequest, error: int, _context: object) -> CreateTopicsResponse:
    results = tuple(
        CreatableTopicResult(name=name, error_code=error, error_message="Authorization failed.", configs=None)
        for name in dict.fromkeys(topic.name for topic in request.topics)
    )
    return CreateTopicsResponse(topics=results)


HANDLER = Handler(
    ApiKey.CREATE_TOPICS,
    0,
    7,
    handle,
    context=TopicContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topics", "topics", lambda entry, _: _of(entry.name), unjudged=named_twice(attrgetter("name"))),
    elements_max=STEP_ELEMENTS_MAX,
)
