"""The common part of AlterConfigs and IncrementalAlterConfigs. Storage alters all resources but loggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from broker_contract import topics_pb2
from protocol_lib.errors import ErrorCode

from gateway_svc.handlers.broker_loggers import BROKER_LOGGER, alter_loggers
from gateway_svc.requests.call import Call
from gateway_svc.requests.resources import Operation, Resource, configured
from gateway_svc.requests.services import Services
from gateway_svc.requests.turns import in_turns

_Outcome = TypeVar("_Outcome")
#: Kafka's type of a broker as a resource with configs.
BROKER: Final = 4
#: Resources that storage alters at a time: each change is synced.
_PIECE: Final = 50
_TWICE: Final = topics_pb2.AlteredResource(
    error_code=ErrorCode.INVALID_REQUEST, error_message="Each resource must appear at most once."
)
#: Configs of one resource in a request. No resource has a tenth of them, and none may be named twice.
_CONFIGS_MAX: Final = 1000
_MANY_CONFIGS: Final = topics_pb2.AlteredResource(
    error_code=ErrorCode.INVALID_CONFIG, error_message=f"A resource has no more than {_CONFIGS_MAX} configs."
)


class NamedResource(Protocol):
    """One resource of a request."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[object]: ...


_Named = TypeVar("_Named", bound=NamedResource)


async def alter(
    call: Call,
    services: Services,
    asked: Sequence[_Named],
    changes: Callable[[_Named], topics_pb2.ConfigChanges],
    outcome: Callable[..., _Outcome],
    *,
    validate_only: bool,
) -> tuple[tuple[_Outcome, ...], int]:
    """Return an `outcome` for each resource asked for, and the first error code among them, or 0.

    A resource that is named twice is refused both times, as in Apache Kafka.
    """
    named = Counter((each.resource_type, each.resource_name) for each in asked)
    outcomes: list[_Outcome] = []
    error = 0
    async for piece in in_turns(asked, _PIECE):
        decided = [_fault(each, named) for each in piece]
        for number, each in enumerate(piece):
            if each.resource_type == BROKER_LOGGER and decided[number] is None:
                node_id = services.cluster.node_id
                decided[number] = alter_loggers(_changes(each, changes), node_id, validate_only=validate_only)
        sound = [each for each, fault in zip(piece, decided, strict=True) if fault is None]
        answer = await services.storage.topics.alter_configs(
            topics_pb2.AlterConfigsRequest(
                correlation_id=call.correlation_id,
                validate_only=validate_only,
                asking_broker=services.cluster.node_id,
                resources=[_changes(each, changes) for each in sound],
            )
        )
        altered = iter(answer.resources)
        for resource, fault in zip(piece, decided, strict=True):
            found = fault or next(altered)
            error = error or found.error_code
            outcomes.append(
                outcome(
                    error_code=found.error_code,
                    error_message=found.error_message or None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    if not validate_only and any(each.resource_type == BROKER for each in asked):
        await services.cluster.refresh()  # mutant: gateway-limits-applied
    return tuple(outcomes), error


def _fault(resource: NamedResource, named: Counter[tuple[int, str]]) -> topics_pb2.AlteredResource | None:
    """Return the refusal of a resource that storage need not see, or None."""
    if named[resource.resource_type, resource.resource_name] > 1:
        return _TWICE
    return _MANY_CONFIGS if len(resource.configs) > _CONFIGS_MAX else None


def _changes(resource: _Named, changes: Callable[[_Named], topics_pb2.ConfigChanges]) -> topics_pb2.ConfigChanges:
    changed = changes(resource)
    changed.type, changed.name = resource.resource_type, resource.resource_name
    return changed


def altered_resources(asked: Iterable[NamedResource]) -> Iterable[Resource]:
    """Return the resources whose configs a request alters."""
    return configured(Operation.ALTER_CONFIGS, ((each.resource_type, each.resource_name) for each in asked))


def refused_rows(asked: Iterable[NamedResource], outcome: Callable[..., _Outcome], error: int) -> tuple[_Outcome, ...]:
    """Return an `outcome` with this error for each resource asked for."""
    return tuple(
        outcome(
            error_code=error, error_message=None, resource_type=each.resource_type, resource_name=each.resource_name
        )
        for each in asked
    )
