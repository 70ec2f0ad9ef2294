"""OffsetCommit between client and storage: the question to storage, and the answer to the client."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from broker_contract import groups_pb2
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import first_code

_GROUP_NOT_FOUND_VERSION = 9
_TOPIC_ID_VERSION = 10


def asked(call: Call, request: OffsetCommitRequest) -> groups_pb2.CommitOffsetsRequest:
    """Return the question to storage: a row for each partition, in the order of the request."""
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


def answer(call: Call, request: OffsetCommitRequest, error_codes: Sequence[int]) -> None:
    """Answer with these codes, in the order of the request's partitions."""
    call.answer(response_of(request, error_codes), first_code(error_codes))


def refuse(_call: Call, request: OffsetCommitRequest, error: int, _context: object) -> OffsetCommitResponse:
    """Answer every partition with the error."""
    return response_of(request, itertools.repeat(error))


def response_of(request: OffsetCommitRequest, error_codes: Iterable[int]) -> OffsetCommitResponse:
    """Return the answer with these codes, in the order of the request's partitions."""
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
