"""ListPartitionReassignments: none is ever under way, so the list is empty, whichever topics it is asked for."""

from __future__ import annotations

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.handler import Handler, of_cluster, with_error
from gateway_svc.requests.resources import Operation
from gateway_svc.requests.services import Services


def serve(call: Call, _request: ListPartitionReassignmentsRequest, _services: Services) -> None:
    call.answer(
        ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, topics=()
        ),
        ErrorCode.NONE,
    )


HANDLER = Handler(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    0,
    0,
    serve,
    resources=of_cluster(Operation.DESCRIBE),
    refuse=with_error(ListPartitionReassignmentsResponse, throttle_time_ms=0, error_message=None, topics=()),
)
