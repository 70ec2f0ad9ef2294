"""ListOffsets: the offset at a timestamp, or at the end or the beginning of a partition.

Special timestamps: -1 latest (high watermark, or last stable offset for read_committed), -2 earliest, -3 the record
with the largest timestamp (version 7). Nothing is tiered here, so -4 "earliest local" (8) is the earliest. -5 "latest
tiered" (9) and -6 "earliest not yet tiered" (11) are not found: offset -1, as Apache Kafka answers without remote
storage. One of them in an older version: UNSUPPORTED_VERSION. Version 0 answers with starts of segments, newest first,
at most as many as the client says. A partition named twice is answered INVALID_REQUEST each time, as in Apache Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from broker_contract import data_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    SpecialTimestamp,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import LogContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, topic_of, topics_called
from gateway_svc.requests.rights import Rows
from gateway_svc.requests.turns import in_turns

#: The first version in which a special timestamp may be asked for.
_SINCE: Final[dict[int, int]] = {
    SpecialTimestamp.LATEST: 0,
    SpecialTimestamp.EARLIEST: 0,
    SpecialTimestamp.MAX_TIMESTAMP: 7,
    SpecialTimestamp.EARLIEST_LOCAL: 8,
    SpecialTimestamp.LATEST_TIERED: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,
}
#: Looked up as the earliest: to find out whether the partition exists at all.
_LIKE_EARLIEST: Final = frozenset(
    {SpecialTimestamp.EARLIEST_LOCAL, SpecialTimestamp.LATEST_TIERED, SpecialTimestamp.EARLIEST_PENDING_UPLOAD}
)
#: Older clients are answered LEADER_NOT_AVAILABLE instead of OFFSET_NOT_AVAILABLE, as in Apache Kafka.
_OFFSET_NOT_AVAILABLE_VERSION: Final = 5
_NEVER_FOUND: Final = frozenset({SpecialTimestamp.LATEST_TIERED, SpecialTimestamp.EARLIEST_PENDING_UPLOAD})


async def handle(call: Call, request: ListOffsetsRequest, context: LogContext) -> tuple[ListOffsetsResponse, int]:
    asked = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    named = Counter((topic, partition.partition_index) for topic, partition in asked)

    def fault(topic: str, partition: ListOffsetsPartition) -> ErrorCode:
        if named[topic, partition.partition_index] > 1:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE if _supported(partition.timestamp, call.version) else ErrorCode.UNSUPPORTED_VERSION

    responses: list[ListOffsetsPartitionResponse] = []
    async for piece in in_turns(asked):
        faults = [fault(topic, partition) for topic, partition in piece]
        targets = [
            _target(call.version, topic, partition)
            for (topic, partition), code in zip(piece, faults, strict=True)
            if not code
        ]
        found: Iterator[data_pb2.ListOffsetsResponse.Found] = iter(())
        if targets:
            answer = await context.offsets.list_offsets(
                data_pb2.ListOffsetsRequest(
                    correlation_id=call.correlation_id, isolation_level=request.isolation_level, targets=targets
                )
            )
            found = iter(answer.offsets)
        responses += [
            _error(partition, code) if code else _response(call.version, partition, next(found))
            for (_, partition), code in zip(piece, faults, strict=True)
        ]
    rows = iter(responses)
    topics = tuple(
        ListOffsetsTopicResponse(name=topic.name, partitions=tuple(islice(rows, len(topic.partitions))))
        for topic in request.topics
    )
    return ListOffsetsResponse(topics=topics), first_error(responses)


def _target(version: int, topic: str, partition: ListOffsetsPartition) -> data_pb2.ListOffsetsRequest.Target:
    return data_pb2.ListOffsetsRequest.Target(
        topic=topic,
        partition=partition.partition_index,
        timestamp=SpecialTimestamp.EARLIEST if partition.timestamp in _LIKE_EARLIEST else partition.timestamp,
        current_leader_epoch=partition.current_leader_epoch,
        segment_starts_max=max(1, partition.max_num_offsets) if version == 0 else 0,
    )


def _supported(timestamp: int, version: int) -> bool:
    if timestamp >= 0:
        return True
    since = _SINCE.get(timestamp)
    return since is not None and version >= since


def _response(
    version: int, partition: ListOffsetsPartition, found: data_pb2.ListOffsetsResponse.Found
) -> ListOffsetsPartitionResponse:
    if found.error_code == ErrorCode.OFFSET_NOT_AVAILABLE and version < _OFFSET_NOT_AVAILABLE_VERSION:
        return _error(partition, ErrorCode.LEADER_NOT_AVAILABLE)
    if found.error_code:
        return _error(partition, found.error_code)
    if partition.timestamp in _NEVER_FOUND:
        return _error(partition, ErrorCode.NONE)
    return ListOffsetsPartitionResponse(
        partition_index=partition.partition_index,
        error_code=ErrorCode.NONE,
        old_style_offsets=tuple(found.segment_starts[: max(0, partition.max_num_offsets)]),
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _error(partition: ListOffsetsPartition, error_code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error_code)


def resources(_call: Call, request: ListOffsetsRequest, _context: object) -> Iterable[Resource]:
    return topics_called(Operation.DESCRIBE, (topic.name for topic in request.topics))


def refuse(_call: Call, request: ListOffsetsRequest, error: int, _context: object) -> ListOffsetsResponse:
    topics = tuple(
        ListOffsetsTopicResponse(
            name=topic.name, partitions=tuple(_error(partition, error) for partition in topic.partitions)
        )
        for topic in request.topics
    )
    return ListOffsetsResponse(topics=topics)


HANDLER = Handler(
    ApiKey.LIST_OFFSETS,
    0,
    11,
    handle,
    context=LogContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topics", "topics", topic_of(Operation.DESCRIBE)),
)
