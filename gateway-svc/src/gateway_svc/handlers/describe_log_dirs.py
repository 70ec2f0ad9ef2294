"""DescribeLogDirs: storage's data folder, with the partitions that this broker leads.

Storage keeps each partition once, for all brokers. So each broker describes its part, and the sum over all brokers
counts nothing twice. A broker never moves a partition to another folder: no replica is a future one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker_contract import logs_pb2
from broker_contract.leadership import partition_leaders
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from gateway_svc.handlers.partitions import partition_counts
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import LogContext
from gateway_svc.requests.handler import Handler, of_cluster, with_error
from gateway_svc.requests.resources import Operation


async def handle(
    call: Call, request: DescribeLogDirsRequest, context: LogContext
) -> tuple[DescribeLogDirsResponse, int]:
    folder = await context.logs.describe_log_dirs(logs_pb2.DescribeLogDirsRequest(correlation_id=call.correlation_id))
    node_ids = [each.node_id for each in await context.membership.brokers(call.client.listener)]
    counts = await partition_counts(call, context.topics, (topic.name for topic in folder.topics))
    leaders = {name: partition_leaders(node_ids, name, count) for name, count in counts.items()}
    asked = None if request.topics is None else {topic.topic: frozenset(topic.partitions) for topic in request.topics}
    result = DescribeLogDirsResult(
        error_code=folder.error_code,
        log_dir=folder.path,
        topics=_topics(folder, asked, context.membership.node_id, leaders),
        total_bytes=folder.total_bytes,
        usable_bytes=folder.usable_bytes,
    )
    return _response(ErrorCode.NONE, result), folder.error_code


def _topics(
    folder: logs_pb2.DescribeLogDirsResponse,
    asked: Mapping[str, frozenset[int]] | None,
    node_id: int,
    leaders: Mapping[str, Sequence[int]],
) -> tuple[DescribeLogDirsTopic, ...]:
    found = []
    for topic in folder.topics:
        led = leaders.get(topic.name, ())
        partitions = tuple(
            DescribeLogDirsPartition(
                partition_index=each.partition, partition_size=each.size_bytes, offset_lag=0, is_future_key=False
            )
            for each in topic.partitions
            if not each.is_offline
            and (asked is None or each.partition in asked.get(topic.name, ()))
            and each.partition < len(led)
            and led[each.partition] == node_id
        )
        if partitions:
            found.append(DescribeLogDirsTopic(name=topic.name, partitions=partitions))
    return tuple(found)


def _response(code: int, *results: DescribeLogDirsResult) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=code, results=results)


HANDLER = Handler(
    ApiKey.DESCRIBE_LOG_DIRS,
    0,
    5,
    handle,
    context=LogContext,
    resources=of_cluster(Operation.DESCRIBE),
    refuse=with_error(DescribeLogDirsResponse, throttle_time_ms=0, results=()),
)
