"""TxnOffsetCommit: a group's positions, which it gets if the producer's transaction commits (KIP-98).

Version 3 names the group's member (KIP-447), before it no member is checked. Version 5 adds the group to the
transaction, as AddOffsetsToTxn does (KIP-890). Before version 2 a coordinator that loads is COORDINATOR_NOT_AVAILABLE:
clients of that time end otherwise (KAFKA-7296). A group, a transaction or a member with an error is the error of every
partition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.error_codes import first_code
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, group, topic_of, topics_called
from gateway_svc.requests.rights import Rows
from gateway_svc.requests.turns import in_turns

_LOADING_VERSION = 2


async def handle(
    call: Call, request: TxnOffsetCommitRequest, context: GroupContext
) -> tuple[TxnOffsetCommitResponse, int]:
    named = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    found: list[int] = []
    async for piece in in_turns(named):
        answer = await context.groups.commit_transaction_offsets(
            groups_pb2.CommitTransactionOffsetsRequest(
                correlation_id=call.correlation_id,
                commit=groups_pb2.CommitOffsetsRequest(
                    correlation_id=call.correlation_id,
                    group_id=request.group_id,
                    generation_id=request.generation_id_or_member_epoch,
                    member_id=request.member_id,
                    group_instance_id=request.group_instance_id,
                    retention_time_ms=-1,
                    offsets=[_offset(name, each) for name, each in piece],
                ),
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                version=call.version,
            )
        )
        found += answer.error_codes
    if call.version < _LOADING_VERSION:
        loading, gone = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = [gone if code == loading else code for code in found]
    return _response(request, found), first_code(found)


def _offset(topic: str, partition: TxnOffsetCommitRequestPartition) -> groups_pb2.CommitOffsetsRequest.Offset:
    return groups_pb2.CommitOffsetsRequest.Offset(
        topic=topic,
        partition=partition.partition_index,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata,
    )


def _response(request: TxnOffsetCommitRequest, codes: Iterable[int]) -> TxnOffsetCommitResponse:
    """Return the answer with these codes, in the order of the request's partitions."""
    left = iter(codes)
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=next(left))
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def refuse(_call: Call, request: TxnOffsetCommitRequest, error: int, _context: object) -> TxnOffsetCommitResponse:
    """Answer every partition with the error."""
    return _response(request, itertools.repeat(error))


def resources(_call: Call, request: TxnOffsetCommitRequest, _context: object) -> Iterable[Resource]:
    return [
        Resource(ResourceType.TRANSACTIONAL_ID, request.transactional_id, Operation.WRITE),
        group(Operation.READ, request.group_id),
        *topics_called(Operation.READ, (topic.name for topic in request.topics)),
    ]


HANDLER = Handler(
    ApiKey.TXN_OFFSET_COMMIT,
    0,
    5,
    handle,
    context=GroupContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topics", "topics", topic_of(Operation.READ)),
    elements_max=STEP_ELEMENTS_MAX,
)
