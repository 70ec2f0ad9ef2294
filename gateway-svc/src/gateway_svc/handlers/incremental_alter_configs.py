"""IncrementalAlterConfigs: configs of topics and groups are set, deleted, appended to, subtracted from (KIP-339)."""

from __future__ import annotations

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from gateway_svc.handlers.config_alterations import alter
from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.route import TaskHandler


async def handle(
    call: Call, request: IncrementalAlterConfigsRequest, services: Services
) -> tuple[IncrementalAlterConfigsResponse, int]:
    changes = [
        topics_pb2.ConfigChanges(
            changes=[
                topics_pb2.ConfigChange(name=config.name, operation=config.config_operation, value=config.value)
                for config in each.configs
            ]
        )
        for each in request.resources
    ]
    responses, error = await alter(
        call, services, request.resources, changes, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses), error


HANDLER = TaskHandler(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, handle)
