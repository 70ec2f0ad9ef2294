"""DescribeConfigs: every known config of a topic, a group or the broker, with where its value comes from.

Each resource is answered once, however often it is named. Version 0 only says whether a value is the default; synonyms
and documentation are sent when asked for. Levels of loggers are this gateway's own. One unknown type of resource makes
the answer of all of them INVALID_REQUEST, whatever the client's rights, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

from gateway_svc.handlers.broker_loggers import describe_loggers
from gateway_svc.requests.call import Call
from gateway_svc.requests.config_rows import ConfigRows
from gateway_svc.requests.contexts import TopicContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import (
    CONFIG_TYPES,
    CONFIGURED,
    ConfigType,
    Operation,
    Resource,
    config_of,
    configured,
)
from gateway_svc.requests.rights import Rows
from gateway_svc.requests.turns import AnswerMemory, in_turns

#: Resources that storage describes at a time: each has some thirty configs.
_PIECE: Final = 25
#: Bytes that a config's row takes, without its strings.
_ROW_BYTES: Final = 1000


async def handle(
    call: Call, request: DescribeConfigsRequest, context: TopicContext
) -> tuple[DescribeConfigsResponse, int]:
    if not all(map(_has_known_type, request.resources)):
        return refuse(call, request, ErrorCode.INVALID_REQUEST, context), ErrorCode.INVALID_REQUEST
    memory = AnswerMemory(call.size)
    rows = ConfigRows(partial(_config, request=request), made=partial(memory.take, _ROW_BYTES))
    results = []
    async for piece in in_turns(_resources(request), _PIECE):
        answers = await _described(call, piece, context)
        memory.take(sum(answer.ByteSize() for answer in answers))
        results += [
            DescribeConfigsResult(
                error_code=found.error_code,
                error_message=found.error_message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=rows.of(found.configs),
            )
            for asked, found in zip(piece, answers, strict=True)
        ]
    return DescribeConfigsResponse(throttle_time_ms=0, results=tuple(results)), first_error(results)


async def _described(
    call: Call, asked: Sequence[DescribeConfigsResource], context: TopicContext
) -> list[topics_pb2.ResourceConfigs]:
    """Return the configs of each resource: of loggers from this process, all others from storage."""
    node_id = context.membership.node_id
    of_storage = [each for each in asked if each.resource_type != ConfigType.BROKER_LOGGER]
    answer = topics_pb2.DescribeConfigsResponse()
    if of_storage:
        answer = await context.topics.describe_configs(
            topics_pb2.DescribeConfigsRequest(
                correlation_id=call.correlation_id,
                asking_broker=node_id,
                resources=[
                    topics_pb2.ConfigResource(
                        type=each.resource_type,
                        name=each.resource_name,
                        keys=each.configuration_keys or (),
                        all_keys=not each.configuration_keys,  # an empty list too, as in Kafka (ConfigHelper)
                    )
                    for each in of_storage
                ],
            )
        )
    found = iter(answer.resources)
    return [
        describe_loggers(each.resource_name, each.configuration_keys or None, node_id)
        if each.resource_type == ConfigType.BROKER_LOGGER
        else next(found)
        for each in asked
    ]


def _has_known_type(resource: DescribeConfigsResource) -> bool:
    return resource.resource_type in CONFIG_TYPES


def _unjudged(asked: Sequence[DescribeConfigsResource]) -> Callable[[DescribeConfigsResource], bool]:
    is_refused = not all(map(_has_known_type, asked))
    return lambda _: is_refused


def _resources(request: DescribeConfigsRequest) -> Sequence[DescribeConfigsResource]:
    """Return each resource that a request names, once."""
    return tuple({(each.resource_type, each.resource_name): each for each in request.resources}.values())


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


def resources(_call: Call, request: DescribeConfigsRequest, _context: object) -> Iterable[Resource]:
    return configured(
        Operation.DESCRIBE_CONFIGS, ((each.resource_type, each.resource_name) for each in request.resources)
    )


def refuse(_call: Call, request: DescribeConfigsRequest, error: int, _context: object) -> DescribeConfigsResponse:
    results = tuple(
        DescribeConfigsResult(
            error_code=error,
            error_message=None,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            configs=(),
        )
        for each in _resources(request)
    )
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


HANDLER = Handler(
    ApiKey.DESCRIBE_CONFIGS,
    0,
    4,
    handle,
    context=TopicContext,
    resources=resources,
    refuse=refuse,
    one_by_one=CONFIGURED,
    rows=Rows("resources", "results", config_of(Operation.DESCRIBE_CONFIGS), unjudged=_unjudged),
)
