"""DescribeCluster: the brokers, the controller and the cluster's id, as Metadata has them.

This listener is a broker's. Clients that look for controllers (KIP-919) are answered MISMATCHED_ENDPOINT_TYPE, in
version 0 INVALID_REQUEST. No broker is ever fenced: a gateway without a live lease is not listed.
"""

from __future__ import annotations

from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from protocol_lib.messages.metadata import NO_AUTHORIZED_OPERATIONS

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ClusterContext
from gateway_svc.requests.handler import NOTHING, Handler
from gateway_svc.requests.rights import cluster_operations

BROKERS: Final = 1
CONTROLLERS: Final = 2


async def handle(
    call: Call, request: DescribeClusterRequest, context: ClusterContext
) -> tuple[DescribeClusterResponse, int]:
    if request.endpoint_type != BROKERS:
        return _wrong_endpoint(call.version, request.endpoint_type)
    brokers = await context.membership.brokers(call.client.listener)
    return (
        DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            error_message=None,
            endpoint_type=BROKERS,
            cluster_id=context.membership.cluster_id,
            controller_id=brokers[0].node_id,
            brokers=tuple(
                DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port) for each in brokers
            ),
            cluster_authorized_operations=(
                cluster_operations(call.rights)
                if request.include_cluster_authorized_operations
                else NO_AUTHORIZED_OPERATIONS
            ),
        ),
        ErrorCode.NONE,
    )


def _wrong_endpoint(version: int, endpoint_type: int) -> tuple[DescribeClusterResponse, int]:
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}"
    return _refused(ErrorCode.INVALID_REQUEST if version == 0 else code, message)


def _refused(code: int, message: str | None) -> tuple[DescribeClusterResponse, int]:
    response = DescribeClusterResponse(
        throttle_time_ms=0, error_code=code, error_message=message, cluster_id="", brokers=()
    )
    return response, code


def refuse(_call: Call, _request: DescribeClusterRequest, error: int, _context: object) -> DescribeClusterResponse:
    response, _ = _refused(error, None)
    return response


HANDLER = Handler(ApiKey.DESCRIBE_CLUSTER, 0, 2, handle, context=ClusterContext, resources=NOTHING, refuse=refuse)
