"""The common part of AlterConfigs and IncrementalAlterConfigs: one question to storage, an outcome per resource."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from broker_contract import topics_pb2

from gateway_svc.requests.call import Call
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.services import Services

_Outcome = TypeVar("_Outcome")


class Resource(Protocol):
    """One of a request's, in the order of its changes."""

    resource_type: int
    resource_name: str


async def alter(
    call: Call,
    services: Services,
    asked: Sequence[Resource],
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
