"""AlterConfigs: everything that is set for a topic or a group is replaced by what is named; the older way."""

from __future__ import annotations

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

from gateway_svc.handlers.config_alterations import alter
from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.route import TaskHandler


async def handle(call: Call, request: AlterConfigsRequest, services: Services) -> tuple[AlterConfigsResponse, int]:
    changes = [
        topics_pb2.ConfigChanges(
            replaces_all=True,
            changes=[topics_pb2.ConfigChange(name=config.name, value=config.value) for config in each.configs],
        )
        for each in request.resources
    ]
    responses, error = await alter(
        call, services, request.resources, changes, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses), error


HANDLER = TaskHandler(ApiKey.ALTER_CONFIGS, 0, 2, handle)
