"""OffsetForLeaderEpoch: where a leader epoch ended, by which a consumer sees whether records it read were lost.

Answered with the newest epoch that is not newer than the one asked for, and the offset after its last record. For an
epoch newer than the partition's that is (-1, -1). From version 2 on a client says which epoch it believes current, and
is answered FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH when it is not. Deliberately ignored: the replica id (KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from broker_contract import data_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import LogContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, cluster
from gateway_svc.requests.rights import Rows
from gateway_svc.requests.turns import in_turns


async def handle(
    call: Call, request: OffsetForLeaderEpochRequest, context: LogContext
) -> tuple[OffsetForLeaderEpochResponse, int]:
    rows: list[EpochEndOffset] = []
    asked = [(topic.topic, partition) for topic in request.topics for partition in topic.partitions]
    async for piece in in_turns(asked):
        answer = await context.offsets.end_epochs(
            data_pb2.EndEpochsRequest(
                correlation_id=call.correlation_id,
                targets=[
                    data_pb2.EndEpochsRequest.Target(
                        topic=topic,
                        partition=partition.partition,
                        current_leader_epoch=partition.current_leader_epoch,
                        leader_epoch=partition.leader_epoch,
                    )
                    for topic, partition in piece
                ],
            )
        )
        rows += [_result(partition.partition, end) for (_, partition), end in zip(piece, answer.ends, strict=True)]
    ends = iter(rows)
    topics = tuple(
        OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(islice(ends, len(topic.partitions))))
        for topic in request.topics
    )
    return OffsetForLeaderEpochResponse(topics=topics), first_error(rows)


def _result(partition: int, end: data_pb2.EndEpochsResponse.End) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=end.error_code, partition=partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset
    )


def resources(_call: Call, request: OffsetForLeaderEpochRequest, _context: object) -> Iterable[Resource]:
    return [_of(topic) for topic in dict.fromkeys(each.topic for each in request.topics)]


def _of(topic: str) -> Resource:
    """Return the topic; the right of a broker suffices."""
    alternative = cluster(Operation.CLUSTER_ACTION)
    return Resource(ResourceType.TOPIC, topic, Operation.DESCRIBE, alternative=alternative)


def refuse(
    _call: Call, request: OffsetForLeaderEpochRequest, error: int, _context: object
) -> OffsetForLeaderEpochResponse:
    topics = tuple(
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(
                EpochEndOffset(error_code=error, partition=partition.partition) for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return OffsetForLeaderEpochResponse(topics=topics)


HANDLER = Handler(
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    0,
    4,
    handle,
    context=LogContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topics", "topics", lambda entry, _: _of(entry.topic)),
)
