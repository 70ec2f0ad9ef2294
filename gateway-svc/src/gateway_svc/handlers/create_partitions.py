"""CreatePartitions: topics get more partitions; the timeout is ignored (they are there when the answer comes).

A name that stands twice in one request is INVALID_REQUEST, as in Apache Kafka. Records stay where they are, so that
keys of a default partitioner continue in other partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

from gateway_svc.handlers.mutation_quota import MESSAGE, over_quota
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TopicContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, topic_of, topics_called
from gateway_svc.requests.rights import Rows, named_twice
from gateway_svc.requests.turns import in_turns

#: The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_QUOTA_VERSION: Final = 3


async def handle(
    call: Call, request: CreatePartitionsRequest, context: TopicContext
) -> tuple[CreatePartitionsResponse, int]:
    named = Counter(topic.name for topic in request.topics)
    results = [
        _result(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name, count in named.items() if count > 1
    ]
    single = [topic for topic in request.topics if named[topic.name] == 1]
    if not request.validate_only:
        counts = [(topic.name, topic.count) for topic in single if topic.count > 0]
        over = await over_quota(call, context.access, counts, strict_since=_QUOTA_VERSION)
        results += [_result(name, ErrorCode.THROTTLING_QUOTA_EXCEEDED, MESSAGE) for name in sorted(over)]
        single = [topic for topic in single if topic.name not in over]
    async for piece in in_turns(single):
        answer = await context.topics.create_partitions(
            topics_pb2.CreatePartitionsRequest(
                correlation_id=call.correlation_id,
                validate_only=request.validate_only,
                topics=[_growing(topic) for topic in piece],
            )
        )
        results += [_result(each.name, each.error_code, each.error_message or None) for each in answer.topics]
    return CreatePartitionsResponse(throttle_time_ms=0, results=tuple(results)), first_error(results)


def _growing(topic: CreatePartitionsTopic) -> topics_pb2.GrowingTopic:
    return topics_pb2.GrowingTopic(
        name=topic.name,
        partition_count=topic.count,
        is_assigned=topic.assignments is not None,
        assignments=[topics_pb2.Assignment(broker_ids=each.broker_ids) for each in topic.assignments or ()],
    )


def _result(name: str, code: int, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)


def resources(_call: Call, request: CreatePartitionsRequest, _context: object) -> Iterable[Resource]:
    return topics_called(Operation.ALTER, (topic.name for topic in request.topics))


def refuse(_call: Call, request: CreatePartitionsRequest, error: int, _context: object) -> CreatePartitionsResponse:
    results = tuple(_result(name, error, None) for name in dict.fromkeys(topic.name for topic in request.topics))
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


HANDLER = Handler(
    ApiKey.CREATE_PARTITIONS,
    0,
    3,
    handle,
    context=TopicContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topics", "results", topic_of(Operation.ALTER), unjudged=named_twice(attrgetter("name"))),
    elements_max=STEP_ELEMENTS_MAX,
)
