"""UnregisterBroker: ends the lease of a gateway, so that clients are not sent there any more.

A gateway that lives registers again with its next renewal, under the same node id, as a running Kafka broker does. A
gateway without a lease is unknown already: BROKER_ID_NOT_REGISTERED.
"""

from __future__ import annotations

from broker_contract import cluster_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ClusterContext
from gateway_svc.requests.handler import Handler, of_cluster, with_error
from gateway_svc.requests.resources import Operation


async def handle(
    call: Call, request: UnregisterBrokerRequest, context: ClusterContext
) -> tuple[UnregisterBrokerResponse, int]:
    cluster = context.cluster
    answer = await cluster.describe_cluster(cluster_pb2.DescribeClusterRequest(correlation_id=call.correlation_id))
    names = [gateway.name for gateway in answer.gateways if gateway.node_id == request.broker_id]
    if not names:
        message = f"Broker ID {request.broker_id} is not currently registered"
        code = ErrorCode.BROKER_ID_NOT_REGISTERED
        return UnregisterBrokerResponse(throttle_time_ms=0, error_code=code, error_message=message), code
    await cluster.remove_gateway(cluster_pb2.RemoveGatewayRequest(name=names[0]))
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None), ErrorCode.NONE


HANDLER = Handler(
    ApiKey.UNREGISTER_BROKER,
    0,
    0,
    handle,
    context=ClusterContext,
    resources=of_cluster(Operation.ALTER),
    refuse=with_error(UnregisterBrokerResponse, throttle_time_ms=0, error_message=None),
)
