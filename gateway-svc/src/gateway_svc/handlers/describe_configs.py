"""DescribeConfigs: every known config of a topic, a group or the broker, with where its value comes from.

Version 0 only says whether a value is the default; synonyms and documentation are sent when asked for. Other resource
types are answered by storage, INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, configured
from gateway_svc.requests.services import Services


async def handle(
    call: Call, request: DescribeConfigsRequest, services: Services
) -> tuple[DescribeConfigsResponse, int]:
    answer = await services.storage.topics.describe_configs(
        topics_pb2.DescribeConfigsRequest(
            correlation_id=call.correlation_id,
            resources=[
                topics_pb2.ConfigResource(
                    type=each.resource_type,
                    name=each.resource_name,
                    keys=each.configuration_keys or (),
                    all_keys=each.configuration_keys is None,
                )
                for each in request.resources
            ],
        )
    )
    results = tuple(
        DescribeConfigsResult(
            error_code=found.error_code,
            error_message=found.error_message or None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=tuple(_config(config, request) for config in found.configs),
        )
        for asked, found in zip(request.resources, answer.resources, strict=True)
    )
    response = DescribeConfigsResponse(throttle_time_ms=0, results=results)
    return response, first_error(results)


def _config(config: topics_pb2.Config, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value if config.HasField("value") else None,
        read_only=config.is_read_only,
        config_source=config.source,
        is_default=config.is_default,
        is_sensitive=config.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(
                name=each.name, value=each.value if each.HasField("value") else None, source=each.source
            )
            for each in config.synonyms
        )
        if request.include_synonyms
        else (),
        config_type=config.type,
        documentation=config.documentation if request.include_documentation else None,
    )


def resources(_call: Call, request: DescribeConfigsRequest, _services: Services) -> Iterable[Resource]:
    return configured(
        Operation.DESCRIBE_CONFIGS, ((each.resource_type, each.resource_name) for each in request.resources)
    )


def refuse(call: Call, request: DescribeConfigsRequest, error: int, _services: Services) -> None:
    results = tuple(
        DescribeConfigsResult(
            error_code=error,
            error_message=None,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            configs=(),
        )
        for each in request.resources
    )
    call.answer(DescribeConfigsResponse(throttle_time_ms=0, results=results), error)


HANDLER = Handler(ApiKey.DESCRIBE_CONFIGS, 0, 4, handle, resources=resources, refuse=refuse)
