"""DeleteRecords: move partitions' log start offsets up; the records below are gone when the answer comes.

Offset -1 is the high watermark. Storage decides: POLICY_VIOLATION where cleanup.policy is compact alone, 1 for an
offset that is negative or above the high watermark, 17 for internal topics. An offset below the log start changes
nothing and is no error. The answer's low watermark is the log start offset. When `timeout_ms` is over first, the
partition is answered REQUEST_TIMED_OUT. Of a partition that is named twice, the last offset counts, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from broker_contract import data_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import LogContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, topic_of, topics_called
from gateway_svc.requests.rights import Rows
from gateway_svc.requests.time_limit import TimeLimit
from gateway_svc.requests.turns import in_turns


async def handle(call: Call, request: DeleteRecordsRequest, context: LogContext) -> tuple[DeleteRecordsResponse, int]:
    offsets = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    results: dict[str, list[DeleteRecordsPartitionResult]] = {}
    error = 0
    limit = TimeLimit(request.timeout_ms)
    async for piece in in_turns(tuple(offsets)):
        asked = data_pb2.DeleteRecordsRequest(
            correlation_id=call.correlation_id,
            targets=[
                data_pb2.DeleteRecordsRequest.Target(topic=topic, partition=partition, offset=offset)
                for topic, partition in piece
                for offset in (offsets[topic, partition],)
            ],
        )
        answer = await limit.within(partial(context.offsets.delete_records, asked), partial(_late, len(piece)))
        for (topic, partition), deleted in zip(piece, answer.partitions, strict=True):
            results.setdefault(topic, []).append(_result(partition, deleted))
        error = error or first_error(answer.partitions)
    topics = tuple(DeleteRecordsTopicResult(name=name, partitions=tuple(rows)) for name, rows in results.items())
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics), error


def _late(count: int) -> data_pb2.DeleteRecordsResponse:
    late = data_pb2.DeleteRecordsResponse.Deleted(log_start_offset=-1, error_code=ErrorCode.REQUEST_TIMED_OUT)
    return data_pb2.DeleteRecordsResponse(partitions=[late] * count)


def _result(partition: int, deleted: data_pb2.DeleteRecordsResponse.Deleted) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=deleted.log_start_offset, error_code=deleted.error_code
    )


def resources(_call: Call, request: DeleteRecordsRequest, _context: object) -> Iterable[Resource]:
    return topics_called(Operation.DELETE, (topic.name for topic in request.topics))


def refuse(_call: Call, request: DeleteRecordsRequest, error: int, _context: object) -> DeleteRecordsResponse:
    topics = tuple(
        DeleteRecordsTopicResult(
            name=topic.name,
            partitions=tuple(
                DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index, low_watermark=-1, error_code=error
                )
                for partition in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


HANDLER = Handler(
    ApiKey.DELETE_RECORDS,
    0,
    2,
    handle,
    context=LogContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.TOPIC}),
    rows=Rows("topics", "topics", topic_of(Operation.DELETE)),
)
