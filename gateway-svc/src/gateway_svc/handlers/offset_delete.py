"""OffsetDelete: forget committed offsets of topics that no member of the group subscribes to (KIP-496)."""

from __future__ import annotations

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.route import TaskHandler


async def handle(call: Call, request: OffsetDeleteRequest, services: Services) -> tuple[OffsetDeleteResponse, int]:
    answer = await services.storage.groups.delete_offsets(
        groups_pb2.DeleteOffsetsRequest(
            correlation_id=call.correlation_id,
            group_id=request.group_id,
            partitions=[
                groups_pb2.TopicPartition(topic=topic.name, partition=each.partition_index)
                for topic in request.topics
                for each in topic.partitions
            ],
        )
    )
    if answer.error_code:
        return OffsetDeleteResponse(error_code=answer.error_code, throttle_time_ms=0, topics=()), answer.error_code
    codes = iter(answer.partition_error_codes)
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
    first = next((code for code in answer.partition_error_codes if code), 0)
    return OffsetDeleteResponse(error_code=0, throttle_time_ms=0, topics=topics), first


HANDLER = TaskHandler(ApiKey.OFFSET_DELETE, 0, 0, handle)
