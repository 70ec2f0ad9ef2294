"""AlterReplicaLogDirs: storage has one data folder, so that a partition is there already or cannot go there.

The data folder itself is a success without any work, as in Kafka. Any other is answered LOG_DIR_NOT_FOUND, and a
partition that does not exist REPLICA_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_contract import logs_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import first_code
from gateway_svc.requests.handler import Handler, of_cluster
from gateway_svc.requests.resources import Operation
from gateway_svc.requests.services import Services


async def handle(
    call: Call, request: AlterReplicaLogDirsRequest, services: Services
) -> tuple[AlterReplicaLogDirsResponse, int]:
    folder = await services.storage.logs.describe_log_dirs(
        logs_pb2.DescribeLogDirsRequest(correlation_id=call.correlation_id)
    )
    existing = {(topic.name, each.partition): each.is_offline for topic in folder.topics for each in topic.partitions}

    def code(path: str, topic: str, partition: int) -> int:
        if path.rstrip("/") != folder.path.rstrip("/"):
            return ErrorCode.LOG_DIR_NOT_FOUND
        is_offline = existing.get((topic, partition))
        if is_offline is None:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.KAFKA_STORAGE_ERROR if is_offline else ErrorCode.NONE

    codes = {
        (topic.name, index): code(each.path, topic.name, index)
        for each in request.dirs
        for topic in each.topics
        for index in topic.partitions
    }
    return _response(codes.items()), first_code(codes.values())


def _response(codes: Iterable[tuple[tuple[str, int], int]]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, index), code in codes:
        row = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        topics.setdefault(topic, []).append(row)
    results = (AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(rows)) for name, rows in topics.items())
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=tuple(results))


def refuse(call: Call, request: AlterReplicaLogDirsRequest, error: int, _services: Services) -> None:
    named = ((topic.name, index) for each in request.dirs for topic in each.topics for index in topic.partitions)
    call.answer(_response((each, error) for each in dict.fromkeys(named)), error)


HANDLER = Handler(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2, handle, resources=of_cluster(Operation.ALTER), refuse=refuse)
