"""DeleteTopics: by name, from version 6 on by name or id. A topic is gone when the answer comes, which is
REQUEST_TIMED_OUT when `timeout_ms` is over first. A topic with both a name and an id, or with neither, is answered
INVALID_REQUEST, as KRaft's controller does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol_lib.schema import ZERO_UUID

from gateway_svc.handlers.mutation_quota import MESSAGE, over_quota
from gateway_svc.handlers.partitions import partition_counts
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TopicContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, cluster, topic_of
from gateway_svc.requests.rights import named_twice
from gateway_svc.requests.time_limit import TimeLimit

_BY_ID_VERSION = 6
#: The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599).
_QUOTA_VERSION = 5
_topic = topic_of(Operation.DELETE)


async def handle(call: Call, request: DeleteTopicsRequest, context: TopicContext) -> tuple[DeleteTopicsResponse, int]:
    named = _named(call, request)
    if not named:
        return DeleteTopicsResponse(responses=()), 0
    denied = await _denied(call, context, named)
    names = {id(each): each.name or context.names.name_of(each.topic_id) for each in named}
    counts = [(name, 0) for each in named if id(each) not in denied and (name := names[id(each)]) is not None]
    over = await over_quota(call, context.access, counts, strict_since=_QUOTA_VERSION)
    for each in named:
        if id(each) not in denied and names[id(each)] in over:
            denied[id(each)] = DeletableTopicResult(
                name=each.name,
                topic_id=each.topic_id,
                error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                error_message=MESSAGE,
            )
    wanted = [each for each in named if _fault(each) is None and id(each) not in denied]
    asked = topics_pb2.DeleteTopicsRequest(
        correlation_id=call.correlation_id,
        topics=[
            topics_pb2.TopicRef(name=each.name) if each.name is not None else topics_pb2.TopicRef(id=each.topic_id)
            for each in wanted
        ],
    )
    late = topics_pb2.DeletedTopic(error_code=ErrorCode.REQUEST_TIMED_OUT)
    answer = await TimeLimit(request.timeout_ms).within(
        lambda: context.topics.delete_topics(asked),
        lambda: topics_pb2.DeleteTopicsResponse(topics=[late for _ in wanted]),
    )
    if len(answer.topics) != len(wanted):
        raise ValueError(f"storage answered {len(answer.topics)} of {len(wanted)} topics")
    deleted = iter(answer.topics)
    responses = tuple(
        denied[id(asked)]
        if id(asked) in denied
        else _result(asked, next(deleted))
        if (fault := _fault(asked)) is None
        else _refused(asked, fault)
        for asked in named
    )
    return DeleteTopicsResponse(responses=responses), first_error(responses)


async def _denied(
    call: Call, context: TopicContext, named: Sequence[DeleteTopicState]
) -> dict[int, DeletableTopicResult]:
    """Return the rows of the topics that the client may not delete, by the identity of their entries.

    One that is named twice is left to storage, which refuses it. A missing topic that it may describe is answered as
    missing. For an id, the answer has the name only if the client
    may describe the topic.
    """
    rights = call.rights
    if rights.are_total:
        return {}
    is_twice = named_twice(_meant)(named)
    denied: dict[int, DeletableTopicResult] = {}
    described: dict[str, DeleteTopicState] = {}
    for each in named:
        resource = _resource(each, context.names.name_of)
        name = resource.name
        if _fault(each) is not None or is_twice(each) or name is None or rights.allow(resource):
            continue
        is_shown = rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
        if is_shown and each.name is not None:
            described[name] = each
        denied[id(each)] = DeletableTopicResult(
            name=name if is_shown or each.name is not None else None,
            topic_id=each.topic_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message=None,
        )
    existing = await partition_counts(call, context.topics, described) if described else {}
    for name, each in described.items():
        if name not in existing:
            del denied[id(each)]  # storage says that it does not exist
    return denied


def _meant(asked: DeleteTopicState) -> tuple[str | None, bytes]:
    return asked.name, asked.topic_id


def _fault(asked: DeleteTopicState) -> str | None:
    """Return the reason why no topic can be meant."""
    if asked.name is None and asked.topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    return None


def _result(asked: DeleteTopicState, deleted: topics_pb2.DeletedTopic) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=deleted.name or asked.name,
        topic_id=deleted.id or asked.topic_id or ZERO_UUID,
        error_code=deleted.error_code,
        error_message=deleted.error_message or None,
    )


def _refused(asked: DeleteTopicState, fault: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=asked.name, topic_id=asked.topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=fault
    )


def _named(call: Call, request: DeleteTopicsRequest) -> Sequence[DeleteTopicState]:
    """Return the topics of the request, which older versions have in another list."""
    if call.version >= _BY_ID_VERSION:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]


def resources(call: Call, request: DeleteTopicsRequest, context: TopicContext) -> Iterable[Resource]:
    return dict.fromkeys(_resource(each, context.names.name_of) for each in _named(call, request))


def _resource(asked: DeleteTopicState, name_of: Callable[[bytes], str | None]) -> Resource:
    """Return the topic; the right to delete any topic of the cluster suffices."""
    return replace(_topic(asked, name_of), alternative=cluster(Operation.DELETE))


def refuse(call: Call, request: DeleteTopicsRequest, error: int, _context: object) -> DeleteTopicsResponse:
    responses = tuple(
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=None)
        for topic in _named(call, request)
    )
    return DeleteTopicsResponse(responses=responses)


HANDLER = Handler(
    ApiKey.DELETE_TOPICS,
    0,
    6,
    handle,
    context=TopicContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    elements_max=STEP_ELEMENTS_MAX,
)
