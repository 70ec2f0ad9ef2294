"""The common part of AlterConfigs and IncrementalAlterConfigs: one question to storage, an outcome per resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from broker_contract import topics_pb2

from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.resources import Operation, Resource, configured
from gateway_svc.requests.services import Services

_Outcome = TypeVar("_Outcome")


class NamedResource(Protocol):
    """One resource of a request."""

    resource_type: int
    resource_name: str


async def alter(
    call: Call,
    services: Services,
    asked: Sequence[NamedResource],
    changes: list[topics_pb2.ConfigChanges],
    outcome: Callable[..., _Outcome],
    *,
    validate_only: bool,
) -> tuple[tuple[_Outcome, ...], int]:
    """Return an `outcome` for each resource asked for, and the first error code among them, or 0."""
    for resource, change in zip(asked, changes, strict=True):
        change.type, change.name = resource.resource_type, resource.resource_name
    answer = await services.storage.topics.alter_configs(
        topics_pb2.AlterConfigsRequest(
            correlation_id=call.correlation_id, validate_only=validate_only, resources=changes
        )
    )
    outcomes = tuple(
        outcome(
            error_code=altered.error_code,
            error_message=altered.error_message or None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, altered in zip(asked, answer.resources, strict=True)
    )
    return outcomes, first_error(answer.resources)


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
