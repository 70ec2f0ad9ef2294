"""OffsetCommit: a group saves its positions.

Version 0 of Kafka wrote to ZooKeeper; here all versions write to the same place. The commit timestamp of version 1 is
ignored, as in Apache Kafka since 2.1; the retention time of versions 2-4 is passed on. From version 9 on an unknown
group is GROUP_ID_NOT_FOUND; version 10 names topics by id, an unknown id is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.route import InlineHandler

_GROUP_NOT_FOUND_VERSION = 9
_TOPIC_ID_VERSION = 10


def serve(call: Call, request: OffsetCommitRequest, services: Services) -> None:
    services.storage.groups.commit_offsets(asked(call, request), partial(_committed, call, request))


def asked(call: Call, request: OffsetCommitRequest) -> groups_pb2.CommitOffsetsRequest:
    """What storage is asked: a row for each partition, in the order of the request."""
    by_id = call.version >= _TOPIC_ID_VERSION
    return groups_pb2.CommitOffsetsRequest(
        correlation_id=call.correlation_id,
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        offsets=[
            groups_pb2.CommitOffsetsRequest.Offset(
                topic="" if by_id else topic.name,
                topic_id=bytes(topic.topic_id) if by_id else b"",
                partition=partition.partition_index,
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=partition.committed_metadata,
            )
            for topic in request.topics
            for partition in topic.partitions
        ],
        group_not_found_supported=call.version >= _GROUP_NOT_FOUND_VERSION,
    )


def _committed(call: Call, request: OffsetCommitRequest, outcome: groups_pb2.CommitOffsetsResponse) -> None:
    answer(call, request, outcome.error_codes)


def answer(call: Call, request: OffsetCommitRequest, error_codes: Sequence[int]) -> None:
    """`error_codes`: in the order of the request's partitions."""
    call.answer(answered(request, error_codes), next(filter(None, error_codes), 0))


def answered(request: OffsetCommitRequest, error_codes: Iterable[int]) -> OffsetCommitResponse:
    """The answer; codes in the order of the request's partitions."""
    codes = iter(error_codes)
    topics = tuple(
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=next(codes))
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
        if topic.partitions
    )
    return OffsetCommitResponse(topics=topics)


HANDLER = InlineHandler(ApiKey.OFFSET_COMMIT, 0, 10, serve)
