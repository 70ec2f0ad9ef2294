"""DeleteTopics: by name, from version 6 on by name or id; the timeout is ignored (a topic is gone when the answer
comes)."""

from __future__ import annotations

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol_lib.schema import ZERO_UUID

from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.route import TaskHandler

_BY_ID_VERSION = 6


async def handle(call: Call, request: DeleteTopicsRequest, services: Services) -> tuple[DeleteTopicsResponse, int]:
    topics = (
        request.topics
        if call.version >= _BY_ID_VERSION
        else [DeleteTopicState(name=name) for name in request.topic_names]
    )
    if not topics:
        return DeleteTopicsResponse(responses=()), 0
    answer = await services.storage.topics.delete_topics(
        topics_pb2.DeleteTopicsRequest(
            correlation_id=call.correlation_id,
            topics=[
                topics_pb2.TopicRef(name=each.name) if each.name is not None else topics_pb2.TopicRef(id=each.topic_id)
                for each in topics
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
        for asked, deleted in zip(topics, answer.topics, strict=True)
    )
    return DeleteTopicsResponse(responses=responses), next(
        (each.error_code for each in responses if each.error_code), 0
    )


HANDLER = TaskHandler(ApiKey.DELETE_TOPICS, 0, 6, handle)
