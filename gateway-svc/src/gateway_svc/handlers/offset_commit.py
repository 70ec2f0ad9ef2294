"""OffsetCommit: a group saves its positions.

Version 0 of Kafka wrote to ZooKeeper; here all versions write to the same place. The commit timestamp of version 1 is
ignored, as in Apache Kafka since 2.1; the retention time of versions 2-4 is passed on. From version 9 on an unknown
group is GROUP_ID_NOT_FOUND; version 10 names topics by id, an unknown id is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from gateway_svc.context import Call, Services
from gateway_svc.handler import TaskHandler
from gateway_svc.topic_ids import names_by_id

_GROUP_NOT_FOUND_VERSION = 9
_TOPIC_ID_VERSION = 10


async def handle(call: Call, request: OffsetCommitRequest, services: Services) -> tuple[OffsetCommitResponse, int]:
    if call.version >= _TOPIC_ID_VERSION:
        known = await names_by_id(call, (topic.topic_id for topic in request.topics), services)
        names = [known.get(topic.topic_id) for topic in request.topics]
    else:
        names = [topic.name for topic in request.topics]
    answer = await services.storage.groups.commit_offsets(
        groups_pb2.CommitOffsetsRequest(
            correlation_id=call.correlation_id,
            group_id=request.group_id,
            generation_id=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            offsets=[
                groups_pb2.CommitOffsetsRequest.Offset(
                    topic=name,
                    partition=partition.partition_index,
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata,
                )
                for name, topic in zip(names, request.topics, strict=True)
                if name is not None
                for partition in topic.partitions
            ],
            group_not_found_supported=call.version >= _GROUP_NOT_FOUND_VERSION,
        )
    )
    codes = iter(answer.error_codes)
    topics = tuple(
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID if name is None else next(codes),
                )
                for partition in topic.partitions
            ),
        )
        for name, topic in zip(names, request.topics, strict=True)
    )
    error = next((each.error_code for topic in topics for each in topic.partitions if each.error_code), 0)
    return OffsetCommitResponse(topics=topics), error


HANDLER = TaskHandler(ApiKey.OFFSET_COMMIT, 0, 10, handle)
