"""AlterPartitionReassignments: a partition stays where it is, because storage keeps it once.

An assignment to the leader changes nothing and succeeds. Any other is refused with the code that
Kafka has for it and a message that says why. No reassignment is ever under way, so that none can be cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from broker_contract.leadership import assignment_fault, partition_leaders
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

from gateway_svc.handlers.partitions import partition_counts
from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler, of_cluster
from gateway_svc.requests.resources import Operation
from gateway_svc.requests.services import Services
from gateway_svc.requests.turns import in_turns

Fault = tuple[ErrorCode, str | None]


async def handle(
    call: Call, request: AlterPartitionReassignmentsRequest, services: Services
) -> tuple[AlterPartitionReassignmentsResponse, int]:
    counts = await partition_counts(call, services, (topic.name for topic in request.topics))
    node_ids = [each.node_id for each in await services.cluster.brokers(call.client.listener)]
    leaders = {name: partition_leaders(node_ids, name, count) for name, count in counts.items()}
    may_change = request.allow_replication_factor_change
    rows = []
    async for piece in in_turns([(topic.name, each) for topic in request.topics for each in topic.partitions]):
        for name, partition in piece:
            code, message = _fault(name, partition, leaders.get(name), node_ids, may_change=may_change)
            index = partition.partition_index
            rows.append(ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message))
    altered = iter(rows)
    responses = (
        ReassignableTopicResponse(name=topic.name, partitions=tuple(islice(altered, len(topic.partitions))))
        for topic in request.topics
    )
    answer = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=may_change,
        error_code=0,
        error_message=None,
        responses=tuple(responses),
    )
    return answer, first_error(rows)


def _fault(
    topic: str,
    partition: ReassignablePartition,
    leaders: Sequence[int] | None,
    node_ids: Sequence[int],
    *,
    may_change: bool,
) -> Fault:
    index, replicas = partition.partition_index, partition.replicas
    if leaders is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
    if not 0 <= index < len(leaders):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
    if (reason := assignment_fault(replicas, node_ids)) is not None:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}"
    if len(replicas) > 1:
        if not may_change:
            message = f"The replication factor is changed from 1 to {len(replicas)}"
        else:
            message = f"Each partition is stored once, it cannot have {len(replicas)} replicas."
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    if replicas[0] != (leader := leaders[index]):
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers share one storage. Broker {leader} leads the partition until a broker comes or goes.",
        )
    return ErrorCode.NONE, None


def refuse(call: Call, _request: AlterPartitionReassignmentsRequest, error: int, _services: Services) -> None:
    call.answer(
        AlterPartitionReassignmentsResponse(throttle_time_ms=0, error_code=error, error_message=None, responses=()),
        error,
    )


HANDLER = Handler(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    0,
    1,
    handle,
    resources=of_cluster(Operation.ALTER),
    refuse=refuse,
    elements_max=STEP_ELEMENTS_MAX,
)
