"""AlterConfigs: everything that is set for a topic is replaced by what is named; the older way of altering configs."""

from __future__ import annotations

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

from gateway_svc.context import Call, Services
from gateway_svc.handler import TaskHandler


async def handle(call: Call, request: AlterConfigsRequest, services: Services) -> tuple[AlterConfigsResponse, int]:
    answer = await services.storage.topics.alter_configs(
        topics_pb2.AlterConfigsRequest(
            correlation_id=call.correlation_id,
            validate_only=request.validate_only,
            resources=[
                topics_pb2.ConfigChanges(
                    type=each.resource_type,
                    name=each.resource_name,
                    replaces_all=True,
                    changes=[topics_pb2.ConfigChange(name=config.name, value=config.value) for config in each.configs],
                )
                for each in request.resources
            ],
        )
    )
    responses = tuple(
        AlterConfigsResourceResponse(
            error_code=altered.error_code,
            error_message=altered.error_message or None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
        for asked, altered in zip(request.resources, answer.resources, strict=True)
    )
    response = AlterConfigsResponse(throttle_time_ms=0, responses=responses)
    return response, next((each.error_code for each in responses if each.error_code), 0)


HANDLER = TaskHandler(ApiKey.ALTER_CONFIGS, 0, 2, handle)
