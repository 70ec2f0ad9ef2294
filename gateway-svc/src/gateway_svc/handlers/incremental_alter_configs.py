"""IncrementalAlterConfigs: single configs of topics are set, deleted, appended to or subtracted from (KIP-339)."""

from __future__ import annotations

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from gateway_svc.context import Call, Services
from gateway_svc.handler import TaskHandler


async def handle(
    call: Call, request: IncrementalAlterConfigsRequest, services: Services
) -> tuple[IncrementalAlterConfigsResponse, int]:
    answer = await services.storage.topics.alter_configs(
        topics_pb2.AlterConfigsRequest(
            correlation_id=call.correlation_id,
            validate_only=request.validate_only,
            resources=[
                topics_pb2.ConfigChanges(
                    type=each.resource_type,
                    name=each.resource_name,
                    changes=[
                        topics_pb2.ConfigChange(name=config.name, operation=config.config_operation, value=config.value)
                        for config in each.configs
                    ],
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
    response = IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)
    return response, next((each.error_code for each in responses if each.error_code), 0)


HANDLER = TaskHandler(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, handle)
