"""IncrementalAlterConfigs: configs and levels of loggers are set, deleted, appended to, subtracted from (KIP-339)."""

from __future__ import annotations

from collections.abc import Iterable

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from gateway_svc.handlers.config_alterations import alter, altered_resources, refused_rows
from gateway_svc.requests.call import Call
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Resource
from gateway_svc.requests.services import Services


async def handle(
    call: Call, request: IncrementalAlterConfigsRequest, services: Services
) -> tuple[IncrementalAlterConfigsResponse, int]:
    responses, error = await alter(
        call, services, request.resources, _changes, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses), error


def _changes(resource: AlterConfigsResource) -> topics_pb2.ConfigChanges:
    return topics_pb2.ConfigChanges(
        changes=[
            topics_pb2.ConfigChange(name=config.name, operation=config.config_operation, value=config.value)
            for config in resource.configs
        ]
    )


def resources(_call: Call, request: IncrementalAlterConfigsRequest, _services: Services) -> Iterable[Resource]:
    return altered_resources(request.resources)


def refuse(call: Call, request: IncrementalAlterConfigsRequest, error: int, _services: Services) -> None:
    rows = refused_rows(request.resources, AlterConfigsResourceResponse, error)
    call.answer(IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=rows), error)


HANDLER = Handler(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, handle, resources=resources, refuse=refuse)
