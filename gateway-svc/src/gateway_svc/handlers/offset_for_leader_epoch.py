"""OffsetForLeaderEpoch: where a leader epoch ended, by which a consumer sees whether records it read were lost.

Answered with the newest epoch that is not newer than the one asked for and the offset behind its last record; (-1, -1)
for an epoch newer than the partition's. From version 2 on a client says which epoch it believes current, and is
answered FENCED_LEADER_EPOCH or
UNKNOWN_LEADER_EPOCH when it is not. Deliberately ignored: the replica id (KIP-320).
"""

from __future__ import annotations

from broker_contract import data_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.route import TaskHandler


async def handle(
    call: Call, request: OffsetForLeaderEpochRequest, services: Services
) -> tuple[OffsetForLeaderEpochResponse, int]:
    answer = await services.storage.offsets.end_epochs(
        data_pb2.EndEpochsRequest(
            correlation_id=call.correlation_id,
            targets=[
                data_pb2.EndEpochsRequest.Target(
                    topic=topic.topic,
                    partition=partition.partition,
                    current_leader_epoch=partition.current_leader_epoch,
                    leader_epoch=partition.leader_epoch,
                )
                for topic in request.topics
                for partition in topic.partitions
            ],
        )
    )
    ends = iter(answer.ends)
    topics = tuple(
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=tuple(_result(partition.partition, next(ends)) for partition in topic.partitions),
        )
        for topic in request.topics
    )
    error = next((each.error_code for each in answer.ends if each.error_code), 0)
    return OffsetForLeaderEpochResponse(topics=topics), error


def _result(partition: int, end: data_pb2.EndEpochsResponse.End) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=end.error_code, partition=partition, leader_epoch=end.leader_epoch, end_offset=end.end_offset
    )


HANDLER = TaskHandler(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4, handle)
