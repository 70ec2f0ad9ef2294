"""OffsetDelete: forget committed offsets of topics that no member of the group subscribes to (KIP-496)."""

from __future__ import annotations

from collections.abc import Iterable

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.error_codes import first_code
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, group, topic_of, topics_called
from gateway_svc.requests.rights import Rows
from gateway_svc.requests.turns import in_turns


async def handle(call: Call, request: OffsetDeleteRequest, context: GroupContext) -> tuple[OffsetDeleteResponse, int]:
    named = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    found: list[int] = []
    async for piece in in_turns(named or [None]):
        answer = await context.groups.delete_offsets(
            groups_pb2.DeleteOffsetsRequest(
                correlation_id=call.correlation_id,
                group_id=request.group_id,
                partitions=[
                    groups_pb2.TopicPartition(topic=each[0], partition=each[1]) for each in piece if each is not None
                ],
            )
        )
        if answer.error_code:
            return OffsetDeleteResponse(error_code=answer.error_code, throttle_time_ms=0, topics=()), answer.error_code
        found += answer.partition_error_codes
    codes = iter(found)
    topics = tuple(
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=next(codes))
                for each in topic.partitions
            ),
        )
        for topic in request.topics
        if topic.partitions
    )
    response = OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics)
    return response, first_code(found)


def resources(_call: Call, request: OffsetDeleteRequest, _context: object) -> Iterable[Resource]:
    return [
        group(Operation.DELETE, request.group_id),
        *topics_called(Operation.READ, (topic.name for topic in request.topics)),
    ]


def refuse(_call: Call, request: OffsetDeleteRequest, error: int, _context: object) -> OffsetDeleteResponse:
    """Return the error of the group, or of each partition of topics that are denied."""
    if error != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=())
    topics = tuple(
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error)
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics)


HANDLER = Handler(
    ApiKey.OFFSET_DELETE,
    0,
    0,
    handle,
    context=GroupContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topics", "topics", topic_of(Operation.READ), serves_none=True),
    elements_max=STEP_ELEMENTS_MAX,
)
