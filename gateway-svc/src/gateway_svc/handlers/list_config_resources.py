"""ListConfigResources: topics, live brokers with their loggers, and groups and subscriptions with a config that is set.

Version 0 asks for subscriptions to metrics of clients (KIP-714), later ones for the types they name, none being all
(KIP-1142). Any other type is UNSUPPORTED_VERSION, as in Kafka.
"""

from __future__ import annotations

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import TopicContext
from gateway_svc.requests.handler import Handler, of_cluster, with_error
from gateway_svc.requests.resources import CONFIG_TYPES, ConfigType, Operation


async def handle(
    call: Call, request: ListConfigResourcesRequest, context: TopicContext
) -> tuple[ListConfigResourcesResponse, int]:
    asked = frozenset((ConfigType.CLIENT_METRICS,) if call.version == 0 else request.resource_types or CONFIG_TYPES)
    if not asked <= CONFIG_TYPES:
        return _response(ErrorCode.UNSUPPORTED_VERSION)
    answer = await context.topics.list_config_resources(
        topics_pb2.ListConfigResourcesRequest(correlation_id=call.correlation_id)
    )
    return _response(
        ErrorCode(answer.error_code),
        *(
            ConfigResource(resource_name=each.name, resource_type=each.type)
            for each in answer.resources
            if each.type in asked
        ),
    )


def _response(error: ErrorCode, *resources: ConfigResource) -> tuple[ListConfigResourcesResponse, int]:
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=error, config_resources=resources), error


HANDLER = Handler(
    ApiKey.LIST_CONFIG_RESOURCES,
    0,
    1,
    handle,
    context=TopicContext,
    resources=of_cluster(Operation.DESCRIBE_CONFIGS),
    refuse=with_error(ListConfigResourcesResponse, throttle_time_ms=0, config_resources=()),
)
