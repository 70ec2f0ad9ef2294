"""DeleteTopics: by name, from version 6 on by name or id; the timeout is ignored (a topic is gone when the answer
comes)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol_lib.schema import ZERO_UUID

from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, topics
from gateway_svc.requests.services import Services

_BY_ID_VERSION = 6


async def handle(call: Call, request: DeleteTopicsRequest, services: Services) -> tuple[DeleteTopicsResponse, int]:
    named = _named(call, request)
    if not named:
        return DeleteTopicsResponse(responses=()), 0
    answer = await services.storage.topics.delete_topics(
        topics_pb2.DeleteTopicsRequest(
            correlation_id=call.correlation_id,
            topics=[
                topics_pb2.TopicRef(name=each.name) if each.name is not None else topics_pb2.TopicRef(id=each.topic_id)
                for each in named
            ],
        )
    )
    responses = tuple(
        DeletableTopicResult(
            name=deleted.name or asked.name,
            topic_id=deleted.id or asked.topic_id or ZERO_UUID,
            error_code=deleted.error_code,
            error_message=deleted.error_message or None,
        )
        for asked, deleted in zip(named, answer.topics, strict=True)
    )
    return DeleteTopicsResponse(responses=responses), first_error(responses)


def _named(call: Call, request: DeleteTopicsRequest) -> Sequence[DeleteTopicState]:
    """Return the topics of the request, which older versions have in another list."""
    if call.version >= _BY_ID_VERSION:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]


def resources(call: Call, request: DeleteTopicsRequest, services: Services) -> Iterable[Resource]:
    named = ((topic.name, bytes(topic.topic_id)) for topic in _named(call, request))
    return topics(Operation.DELETE, named, services.names)


def refuse(call: Call, request: DeleteTopicsRequest, error: int, _services: Services) -> None:
    responses = tuple(
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=None)
        for topic in _named(call, request)
    )
    call.answer(DeleteTopicsResponse(responses=responses), error)


HANDLER = Handler(ApiKey.DELETE_TOPICS, 0, 6, handle, resources=resources, refuse=refuse)
