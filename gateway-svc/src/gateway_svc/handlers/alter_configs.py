"""AlterConfigs: the request replaces all configs that are set for a resource. The older of two APIs."""

from __future__ import annotations

from collections.abc import Iterable

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

from gateway_svc.handlers.config_alterations import alter, altered_resources, refused_rows
from gateway_svc.requests.call import Call
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Resource
from gateway_svc.requests.services import Services


async def handle(call: Call, request: AlterConfigsRequest, services: Services) -> tuple[AlterConfigsResponse, int]:
    responses, error = await alter(
        call, services, request.resources, _changes, AlterConfigsResourceResponse, validate_only=request.validate_only
    )
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses), error


def _changes(resource: AlterConfigsResource) -> topics_pb2.ConfigChanges:
    return topics_pb2.ConfigChanges(
        replaces_all=True,
        changes=[topics_pb2.ConfigChange(name=config.name, value=config.value) for config in resource.configs],
    )


def resources(_call: Call, request: AlterConfigsRequest, _services: Services) -> Iterable[Resource]:
    return altered_resources(request.resources)


def refuse(call: Call, request: AlterConfigsRequest, error: int, _services: Services) -> None:
    rows = refused_rows(request.resources, AlterConfigsResourceResponse, error)
    call.answer(AlterConfigsResponse(throttle_time_ms=0, responses=rows), error)


HANDLER = Handler(ApiKey.ALTER_CONFIGS, 0, 2, handle, resources=resources, refuse=refuse)
