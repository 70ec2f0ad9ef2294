"""AlterConfigs, which replaces all configs of a resource, and IncrementalAlterConfigs, which sets, deletes, appends to
and subtracts from single ones (KIP-339). Storage alters all resources but loggers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from broker_contract import topics_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages import alter_configs, incremental_alter_configs
from protocol_lib.messages.incremental_alter_configs import ConfigOperation

from gateway_svc.handlers.broker_loggers import alter_loggers
from gateway_svc.requests.call import Call
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
from gateway_svc.requests.turns import in_turns

#: Kafka's type of a broker as a resource with configs.
#: Resources that storage alters at a time: each change is synced.
_PIECE: Final = 50
#: The types of resources that AlterConfigs knows: it has no loggers.
_REPLACED: Final = CONFIG_TYPES - {ConfigType.BROKER_LOGGER}
_MESSAGE_LENGTH_MAX: Final = 1000
#: Configs of one resource in a request. No resource has a tenth of them, and none may be named twice.
_CONFIGS_MAX: Final = 1000
_MANY_CONFIGS: Final = topics_pb2.AlteredResource(
    error_code=ErrorCode.INVALID_CONFIG, error_message=f"A resource has no more than {_CONFIGS_MAX} configs."
)


#: A resource of either request, and a function that returns its changes.
_Asked = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource
_Changes = Callable[[Any], topics_pb2.ConfigChanges]


async def _alter(
    call: Call, context: TopicContext, request: Any, changes: _Changes
) -> list[topics_pb2.AlteredResource]:
    """Return what becomes of each resource."""

    def changes_of(resource: _Asked) -> topics_pb2.ConfigChanges:
        changed = changes(resource)
        changed.type, changed.name = resource.resource_type, resource.resource_name
        return changed

    asked, validate_only, node_id = request.resources, request.validate_only, context.membership.node_id
    fault_of = _faults(asked)
    outcomes: list[topics_pb2.AlteredResource] = []
    async for piece in in_turns(asked, _PIECE):
        decided = [fault_of(each) for each in piece]
        for number, each in enumerate(piece):
            if each.resource_type == ConfigType.BROKER_LOGGER and decided[number] is None:
                decided[number] = alter_loggers(changes_of(each), node_id, validate_only=validate_only)
        sound = [each for each, fault in zip(piece, decided, strict=True) if fault is None]
        answer = await context.topics.alter_configs(
            topics_pb2.AlterConfigsRequest(
                correlation_id=call.correlation_id,
                validate_only=validate_only,
                asking_broker=node_id,
                resources=[changes_of(each) for each in sound],
            )
        )
        altered = iter(answer.resources)
        outcomes += [fault or next(altered) for fault in decided]
    if not validate_only and any(each.resource_type == ConfigType.BROKER for each in asked):
        await context.membership.refresh()  # mutant: gateway-limits-applied
    return outcomes


def _faults(asked: Sequence[_Asked]) -> Callable[[_Asked], topics_pb2.AlteredResource | None]:
    """Return the function that returns why a resource is refused whatever the client's rights, or None.

    A resource that is named twice is refused both times, as in Apache Kafka.
    """
    named = Counter((each.resource_type, each.resource_name) for each in asked)

    def fault_of(resource: _Asked) -> topics_pb2.AlteredResource | None:
        if named[resource.resource_type, resource.resource_name] > 1:
            return _refused("Each resource must appear at most once.")
        if len(resource.configs) > _CONFIGS_MAX:
            return _MANY_CONFIGS
        names = [each.name for each in resource.configs]
        if len(set(names)) < len(names):
            return _refused("Error due to duplicate config keys")
        missing = [each.name for each in resource.configs if each.value is None and not _is_deletion(each)]
        if missing:
            return _refused(f"Null value not supported for : {', '.join(missing)}")
        known = _REPLACED if isinstance(resource, alter_configs.AlterConfigsResource) else CONFIG_TYPES
        if resource.resource_type not in known:
            return _refused(f"Unknown resource type {resource.resource_type}")
        return None

    return fault_of


def _is_deletion(config: alter_configs.AlterableConfig | incremental_alter_configs.AlterableConfig) -> bool:
    return getattr(config, "config_operation", ConfigOperation.SET) == ConfigOperation.DELETE


def _refused(message: str) -> topics_pb2.AlteredResource:
    return topics_pb2.AlteredResource(error_code=ErrorCode.INVALID_REQUEST, error_message=message[:_MESSAGE_LENGTH_MAX])


def _unjudged(asked: Sequence[_Asked]) -> Callable[[_Asked], bool]:
    fault_of = _faults(asked)
    return lambda resource: fault_of(resource) is not None


def _replaced(resource: alter_configs.AlterConfigsResource) -> topics_pb2.ConfigChanges:
    changes = [topics_pb2.ConfigChange(name=config.name, value=config.value) for config in resource.configs]
    return topics_pb2.ConfigChanges(replaces_all=True, changes=changes)


def _changed(resource: incremental_alter_configs.AlterConfigsResource) -> topics_pb2.ConfigChanges:
    changes = [
        topics_pb2.ConfigChange(name=config.name, operation=config.config_operation, value=config.value)
        for config in resource.configs
    ]
    return topics_pb2.ConfigChanges(changes=changes)


def _resources(_call: Call, request: Any, _context: object) -> Iterable[Resource]:
    named = ((each.resource_type, each.resource_name) for each in request.resources)
    return configured(Operation.ALTER_CONFIGS, named)


def _handler(
    api_key: ApiKey, max_version: int, response: Callable[..., Any], row: Callable[..., Any], changes: _Changes
) -> Handler[TopicContext]:
    def answer(request: Any, outcomes: Iterable[topics_pb2.AlteredResource]) -> Any:
        rows = (
            row(
                error_code=found.error_code,
                error_message=found.error_message or None,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each, found in zip(request.resources, outcomes, strict=False)
        )
        return response(throttle_time_ms=0, responses=tuple(rows))

    async def handle(call: Call, request: Any, context: TopicContext) -> tuple[Any, int]:
        outcomes = await _alter(call, context, request, changes)
        return answer(request, outcomes), first_error(outcomes)

    def refuse(_call: Call, request: Any, error: int, _context: object) -> Any:
        return answer(request, repeat(topics_pb2.AlteredResource(error_code=error)))

    return Handler(
        api_key,
        0,
        max_version,
        handle,
        context=TopicContext,
        resources=_resources,
        refuse=refuse,
        one_by_one=CONFIGURED,
        rows=Rows("resources", "responses", config_of(Operation.ALTER_CONFIGS), unjudged=_unjudged),
    )


HANDLERS: Final = (
    _handler(
        ApiKey.ALTER_CONFIGS,
        2,
        alter_configs.AlterConfigsResponse,
        alter_configs.AlterConfigsResourceResponse,
        _replaced,
    ),
    _handler(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        incremental_alter_configs.AlterConfigsResourceResponse,
        _changed,
    ),
)
