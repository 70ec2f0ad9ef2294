"""The APIs that move partitions and elect their leaders. Storage keeps each partition once, in one data folder, so that
nothing moves and no election is needed.

API                           answer
AlterPartitionReassignments   success for the broker that leads the partition, else Kafka's code and the reason
ListPartitionReassignments    none: no reassignment is ever under way
ElectLeaders                  ELECTION_NOT_NEEDED for each partition that is named, as in Kafka where the preferred
                              replica leads; names of topics alone if all partitions are meant
AlterReplicaLogDirs           success for storage's folder, LOG_DIR_NOT_FOUND for others, REPLICA_NOT_AVAILABLE for
                              partitions that do not exist
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from broker_contract import logs_pb2
from broker_contract.leadership import assignment_fault, partition_leaders
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages import alter_partition_reassignments as reassign
from protocol_lib.messages import alter_replica_log_dirs as log_dirs
from protocol_lib.messages import elect_leaders as elect
from protocol_lib.messages.list_partition_reassignments import ListPartitionReassignmentsResponse

from gateway_svc.handlers.partitions import partition_counts
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import LogContext, TopicContext
from gateway_svc.requests.error_codes import first_code, first_error
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler, of_cluster, with_error
from gateway_svc.requests.resources import Operation
from gateway_svc.requests.turns import in_turns

T = TypeVar("T")
RowT = TypeVar("RowT")
Verdict = tuple[ErrorCode, str | None]

#: Preferred and unclean elections.
_ELECTION_TYPES: Final = (0, 1)


async def _rows(
    topics: Sequence[tuple[str, Sequence[T]]], row: Callable[[str, T], RowT]
) -> list[tuple[str, tuple[RowT, ...]]]:
    """Return each topic with the rows of its partitions, which are made in turns."""
    rows: list[RowT] = []
    async for piece in in_turns([(name, each) for name, partitions in topics for each in partitions]):
        rows += [row(name, each) for name, each in piece]
    made = iter(rows)
    return [(name, tuple(islice(made, len(partitions)))) for name, partitions in topics]


async def alter_reassignments(
    call: Call, request: reassign.AlterPartitionReassignmentsRequest, context: TopicContext
) -> tuple[reassign.AlterPartitionReassignmentsResponse, int]:
    counts = await partition_counts(call, context.topics, (topic.name for topic in request.topics))
    node_ids = [each.node_id for each in await context.membership.brokers(call.client.listener)]
    leaders = {name: partition_leaders(node_ids, name, count) for name, count in counts.items()}
    may_change = request.allow_replication_factor_change

    def row(topic: str, partition: reassign.ReassignablePartition) -> reassign.ReassignablePartitionResponse:
        code, message = _assignment(topic, partition, leaders.get(topic), node_ids, may_change=may_change)
        index = partition.partition_index
        return reassign.ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)

    topics = await _rows([(topic.name, topic.partitions) for topic in request.topics], row)
    responses = tuple(reassign.ReassignableTopicResponse(name=name, partitions=rows) for name, rows in topics)
    answer = reassign.AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=may_change,
        error_code=0,
        error_message=None,
        responses=responses,
    )
    return answer, first_error(row for _, rows in topics for row in rows)


def refuse_reassignments(
    _call: Call, request: reassign.AlterPartitionReassignmentsRequest, error: int, _context: object
) -> reassign.AlterPartitionReassignmentsResponse:
    responses = tuple(
        reassign.ReassignableTopicResponse(
            name=topic.name,
            partitions=tuple(
                reassign.ReassignablePartitionResponse(
                    partition_index=each.partition_index, error_code=error, error_message=None
                )
                for each in topic.partitions
            ),
        )
        for topic in request.topics
    )
    return reassign.AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=error, error_message=None, responses=responses
    )


def _assignment(
    topic: str,
    partition: reassign.ReassignablePartition,
    leaders: Sequence[int] | None,
    node_ids: Sequence[int],
    *,
    may_change: bool,
) -> Verdict:
    index, replicas = partition.partition_index, partition.replicas
    if leaders is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
    if not 0 <= index < len(leaders):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
    if (reason := assignment_fault(replicas, node_ids)) is not None:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}"
    if len(replicas) > 1 and not may_change:
        return ErrorCode.INVALID_REPLICATION_FACTOR, f"The replication factor is changed from 1 to {len(replicas)}"
    if len(replicas) > 1:
        message = f"Each partition is stored once, it cannot have {len(replicas)} replicas."
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    if replicas[0] != (leader := leaders[index]):
        message = f"All brokers share one storage. Broker {leader} leads the partition until a broker comes or goes."
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    return ErrorCode.NONE, None


def list_reassignments(call: Call, _request: Any, _context: object) -> None:
    none = ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=())
    call.answer(none, ErrorCode.NONE)


async def elect_leaders(
    call: Call, request: elect.ElectLeadersRequest, context: TopicContext
) -> tuple[elect.ElectLeadersResponse, int]:
    if request.election_type not in _ELECTION_TYPES:
        return _no_election(request, ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    named = request.topic_partitions
    counts = await partition_counts(call, context.topics, None if named is None else (topic.topic for topic in named))
    if named is None:
        return _elections((name, ()) for name in counts), 0
    topics = await _rows(
        [(topic.topic, topic.partitions) for topic in named],
        lambda topic, index: _elected(index, *_election(topic, index, counts.get(topic))),
    )
    return _elections(topics), first_error(row for _, rows in topics for row in rows)


def _election(topic: str, index: int, count: int | None) -> Verdict:
    if count is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}"
    if not 0 <= index < count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}"
    return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."


def _elected(index: int, code: int, message: str | None) -> elect.PartitionResult:
    return elect.PartitionResult(partition_id=index, error_code=code, error_message=message)


def _elections(
    topics: Iterable[tuple[str, tuple[elect.PartitionResult, ...]]], code: int = 0
) -> elect.ElectLeadersResponse:
    results = tuple(elect.ReplicaElectionResult(topic=name, partition_result=rows) for name, rows in topics)
    return elect.ElectLeadersResponse(throttle_time_ms=0, error_code=code, replica_election_results=results)


def _no_election(
    request: elect.ElectLeadersRequest, code: int, message: str | None
) -> tuple[elect.ElectLeadersResponse, int]:
    named = request.topic_partitions or ()
    topics = ((topic.topic, tuple(_elected(index, code, message) for index in topic.partitions)) for topic in named)
    return _elections(topics, code), code


def refuse_elections(
    _call: Call, request: elect.ElectLeadersRequest, error: int, _context: object
) -> elect.ElectLeadersResponse:
    response, _ = _no_election(request, error, None)
    return response


async def alter_log_dirs(
    call: Call, request: log_dirs.AlterReplicaLogDirsRequest, context: LogContext
) -> tuple[log_dirs.AlterReplicaLogDirsResponse, int]:
    folder = await context.logs.describe_log_dirs(logs_pb2.DescribeLogDirsRequest(correlation_id=call.correlation_id))
    existing = {(topic.name, each.partition): each.is_offline for topic in folder.topics for each in topic.partitions}

    def code(path: str, partition: tuple[str, int]) -> int:
        if path.rstrip("/") != folder.path.rstrip("/"):
            return ErrorCode.LOG_DIR_NOT_FOUND
        if partition not in existing:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.KAFKA_STORAGE_ERROR if existing[partition] else ErrorCode.NONE

    codes = {partition: code(path, partition) for path, partition in _moves(request)}
    return _moved(codes), first_code(codes.values())


def _moves(request: log_dirs.AlterReplicaLogDirsRequest) -> Iterable[tuple[str, tuple[str, int]]]:
    return (
        (each.path, (topic.name, index)) for each in request.dirs for topic in each.topics for index in topic.partitions
    )


def _moved(codes: Mapping[tuple[str, int], int]) -> log_dirs.AlterReplicaLogDirsResponse:
    topics: dict[str, list[log_dirs.AlterReplicaLogDirPartitionResult]] = {}
    for (topic, index), code in codes.items():
        row = log_dirs.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        topics.setdefault(topic, []).append(row)
    results = (
        log_dirs.AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(rows)) for name, rows in topics.items()
    )
    return log_dirs.AlterReplicaLogDirsResponse(throttle_time_ms=0, results=tuple(results))


def refuse_moves(_call: Call, request: log_dirs.AlterReplicaLogDirsRequest, error: int, _context: object) -> Any:
    return _moved({partition: error for _, partition in _moves(request)})


_ALTER: Final = of_cluster(Operation.ALTER)
_STEPS: Final = STEP_ELEMENTS_MAX

HANDLERS: Final = (
    Handler(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        1,
        alter_reassignments,
        context=TopicContext,
        resources=_ALTER,
        refuse=refuse_reassignments,
        elements_max=_STEPS,
    ),
    Handler(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        0,
        list_reassignments,
        context=TopicContext,
        resources=of_cluster(Operation.DESCRIBE),
        refuse=with_error(ListPartitionReassignmentsResponse, throttle_time_ms=0, error_message=None, topics=()),
    ),
    Handler(
        ApiKey.ELECT_LEADERS,
        0,
        2,
        elect_leaders,
        context=TopicContext,
        resources=_ALTER,
        refuse=refuse_elections,
        elements_max=_STEPS,
    ),
    Handler(
        ApiKey.ALTER_REPLICA_LOG_DIRS, 0, 2, alter_log_dirs, context=LogContext, resources=_ALTER, refuse=refuse_moves
    ),
)
