"""ElectLeaders: never needed. A partition has one replica, and its leader is live as long as any gateway is.

An election of an existing partition is answered ELECTION_NOT_NEEDED, as Kafka answers where the preferred replica
leads. Kafka leaves such partitions out when a client asks for all of them, and names their topics only.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

from gateway_svc.handlers.partitions import partition_counts
from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler, of_cluster
from gateway_svc.requests.resources import Operation
from gateway_svc.requests.services import Services
from gateway_svc.requests.turns import in_turns

#: Preferred and unclean elections.
_ELECTION_TYPES: Final = (0, 1)


async def handle(call: Call, request: ElectLeadersRequest, services: Services) -> tuple[ElectLeadersResponse, int]:
    if request.election_type not in _ELECTION_TYPES:
        return _refused(request, ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    named = request.topic_partitions
    counts = await partition_counts(call, services, None if named is None else (topic.topic for topic in named))
    if named is None:
        return _response(ReplicaElectionResult(topic=name, partition_result=()) for name in counts), 0
    rows: list[PartitionResult] = []
    async for piece in in_turns([(topic.topic, index) for topic in named for index in topic.partitions]):
        rows += [_elected(counts, topic, index) for topic, index in piece]
    elected = iter(rows)
    results = (
        ReplicaElectionResult(topic=topic.topic, partition_result=tuple(islice(elected, len(topic.partitions))))
        for topic in named
    )
    return _response(results), first_error(rows)


def _elected(counts: dict[str, int], topic: str, index: int) -> PartitionResult:
    count = counts.get(topic)
    if count is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}"
    elif not 0 <= index < count:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}"
    else:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


def _response(results: Iterable[ReplicaElectionResult], code: int = 0) -> ElectLeadersResponse:
    return ElectLeadersResponse(throttle_time_ms=0, error_code=code, replica_election_results=tuple(results))


def _refused(request: ElectLeadersRequest, code: int, message: str | None) -> tuple[ElectLeadersResponse, int]:
    return _response(
        (
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ),
            )
            for topic in request.topic_partitions or ()
        ),
        code,
    ), code


def refuse(call: Call, request: ElectLeadersRequest, error: int, _services: Services) -> None:
    call.answer(*_refused(request, error, None))


HANDLER = Handler(
    ApiKey.ELECT_LEADERS,
    0,
    2,
    handle,
    resources=of_cluster(Operation.ALTER),
    refuse=refuse,
    elements_max=STEP_ELEMENTS_MAX,
)
