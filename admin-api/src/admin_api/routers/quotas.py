"""Quotas of clients, by the rules of DescribeClientQuotas and AlterClientQuotas. Storage keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from broker_contract import access_pb2 as pb
from broker_contract.access import component_messages, entity_of
from broker_contract.acls import Operation
from broker_contract.quotas import CLIENT_ID, IP, USER, Entity, entity, entity_fault
from fastapi import Depends, FastAPI, Query, Request
from service_chassis.http import audit

from admin_api import errors
from admin_api.needs import Calls, on_cluster
from admin_api.paging import Key, PageQuery
from admin_api.routers.insight import ROWS_MAX, next_url
from admin_api.routers.operations import Operations
from admin_api.schemas.quotas import Quota, QuotaComponent, QuotaKey, QuotaList, SetQuotaRequest
from admin_api.storage import StorageCalls

PATH = "/api/v1/quotas"

_Name = Annotated[str | None, Query(max_length=1000, description="The name of this component.")]
_Default = Annotated[bool, Query(description="The default of this type is the component.")]


def _components(
    user: _Name = None,
    client_id: _Name = None,
    ip: _Name = None,
    user_default: _Default = False,
    client_id_default: _Default = False,
    ip_default: _Default = False,
) -> dict[str, str | None]:
    """Return the components that the parameters name. Raises ApiError if one is a name and the default."""
    found: dict[str, str | None] = {}
    for kind, name, is_default in (
        (USER, user, user_default),
        (CLIENT_ID, client_id, client_id_default),
        (IP, ip, ip_default),
    ):
        if name is not None and is_default:
            raise errors.refused(f"{kind} is a name and the default.")
        if name is not None or is_default:
            found[kind] = name
    return found


Components = Annotated[dict[str, str | None], Depends(_components)]


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Quotas (api/v1)")
    operations.get(PATH, "listQuotas", list_quotas, needs=on_cluster(Operation.DESCRIBE_CONFIGS))
    operations.change("PUT", PATH, "setQuota", set_quota, needs=on_cluster(Operation.ALTER_CONFIGS))
    operations.change("DELETE", PATH, "deleteQuota", delete_quota, needs=on_cluster(Operation.ALTER_CONFIGS))


async def list_quotas(
    calls: Calls,
    request: Request,
    components: Components,
    paging: PageQuery,
    strict: Annotated[bool, Query(description="Only entities without other components.")] = False,
) -> QuotaList:
    """List the quotas of entities that have all of these components; at most 1,000 a page."""
    found = [
        (which, values)
        for which, values in await _quotas(calls)
        if components.items() <= dict(which).items() and not (strict and len(which) != len(components))
    ]
    page = paging.cut(found, lambda each: _key(each[0]), rows_max=ROWS_MAX)
    return QuotaList(data=[_shown(*each) for each in page.rows], next=next_url(request, page.next_query))


async def set_quota(calls: Calls, given: SetQuotaRequest, request: Request) -> None:
    """Set or remove values of one entity's quota. They are in force when this is answered."""
    components = [(each.type, each.name) for each in given.entity]
    asked = {name: getattr(given.values, name) for name in sorted(given.values.model_fields_set)}
    _note(request, components, asked)
    audit.note(request, validate_only=given.validate_only)
    ops = [pb.QuotaOp(key=key, value=value or 0.0, remove=value is None) for key, value in asked.items()]
    await _alter(calls, components, ops, validate_only=given.validate_only)


async def delete_quota(
    calls: Calls,
    request: Request,
    components: Components,
    key: Annotated[QuotaKey | None, Query(description="Absent: all of its values.")] = None,
) -> None:
    """Remove the quota of the entity that has these components and no others."""
    if why := entity_fault(components.items()):
        raise errors.refused(why)
    which = entity(components.items())
    keys = sorted(key for found, values in await _quotas(calls) if found == which for key in values)
    removed = [each for each in keys if key in (None, each)]
    _note(request, which, dict.fromkeys(removed))
    if not removed:
        raise errors.not_found("There is no such quota.")
    await _alter(calls, which, [pb.QuotaOp(key=each, remove=True) for each in removed])


async def _quotas(calls: StorageCalls) -> list[tuple[Entity, Mapping[str, float]]]:
    request = pb.DescribeQuotasRequest(correlation_id=calls.correlation_id)
    answer = await calls.ask(lambda storage: storage.access.DescribeQuotas, request)
    return [(entity_of(each.entity), each.values) for each in answer.quotas]


async def _alter(
    calls: StorageCalls,
    components: Sequence[tuple[str, str | None]],
    ops: Sequence[pb.QuotaOp],
    *,
    validate_only: bool = False,
) -> None:
    alteration = pb.QuotaAlteration(entity=component_messages(tuple(components)), ops=ops)
    request = pb.AlterQuotasRequest(
        correlation_id=calls.correlation_id, alterations=[alteration], validate_only=validate_only
    )
    for result in (await calls.change(lambda storage: storage.access.AlterQuotas, request)).results:
        errors.check(result.error_code, result.message)


def _note(request: Request, components: Sequence[tuple[str, str | None]], values: Mapping[str, float | None]) -> None:
    named = ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in components)
    given = ", ".join(f"{key} {'removed' if value is None else value}" for key, value in values.items())
    audit.note(request, entity=named, values=given)


def _key(which: Entity) -> Key:
    """Return the place of an entity in the list: a default is before the names of its type."""
    return tuple(part for kind, name in which for part in (kind, int(name is not None), name or ""))


def _shown(which: Entity, values: Mapping[str, float]) -> Quota:
    return Quota(
        entity=[QuotaComponent(type=kind, name=name) for kind, name in which],  # type: ignore[arg-type]  # storage's
        values=dict(sorted(values.items())),  # type: ignore[arg-type]  # those of the contract
    )
