"""Access control lists, as Confluent's API has them. Without an authorizer they are refused as Kafka refuses them.

A row that is created or deleted leaves a line in the log, as it does in a gateway's. The request leaves its audit line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from broker_contract.acls import Binding, Filter, Operation, PatternType, Permission, ResourceType
from fastapi import FastAPI, Query, Request
from service_chassis import logs
from service_chassis.http import audit
from service_chassis.http.access import caller
from service_chassis.http.ring import REQUEST_KEY
from starlette.responses import Response

from admin_api import access_rules, errors
from admin_api.needs import on_cluster
from admin_api.paging import PageQuery
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.acls import (
    Acl,
    AclFilter,
    AclList,
    CompleteAclFilter,
    CreateAclRequest,
    CreateAclsRequest,
    DeletedAcls,
)
from admin_api.schemas.resources import ResourceMetadata
from admin_api.settings import AdminSettings
from admin_api.view import ClusterView, View

#: Values of a filter, none of which a row can have.
_NO_ROW = {
    "resource_type": ("ANY", "UNKNOWN"),
    "pattern_type": ("ANY", "MATCH", "UNKNOWN"),
    "operation": ("ANY", "UNKNOWN"),
    "permission": ("ANY", "UNKNOWN"),
}

log = logs.get(__name__)


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "ACL (v3)")
    path = f"{CLUSTER}/acls"
    created: dict[int | str, dict[str, Any]] = {
        201: {"description": "In force.", "headers": {"Location": {"schema": {"type": "string"}}}}
    }
    changes = on_cluster(Operation.ALTER)
    operations.get(path, "getKafkaAcls", search_acls, needs=on_cluster(Operation.DESCRIBE))
    operations.add(
        "POST",
        path,
        "createKafkaAcls",
        create_acl,
        status_code=201,
        responses=created,
        response_class=Response,
        needs=changes,
    )
    operations.add("DELETE", path, "deleteKafkaAcls", delete_acls, needs=changes)
    operations.add(
        "POST",
        f"{path}:batch",
        "batchCreateKafkaAcls",
        create_acls,
        status_code=201,
        response_class=Response,
        needs=changes,
    )


async def search_acls(
    view: ClusterView, wanted: Annotated[AclFilter, Query()], paging: PageQuery, request: Request
) -> AclList:
    """List the ACLs that match the parameters; an absent one matches every ACL. 40002 without an authorizer."""
    _require_authorizer(request, view)
    page = paging.cut(await access_rules.find(view.storage, _filter(wanted)), key=lambda row: row)
    metadata = view.links.collection("acls", next_query=page.next_query)
    return AclList(metadata=metadata, data=_shown(view, page.rows))


async def create_acl(view: ClusterView, given: CreateAclRequest, request: Request) -> Response:
    """Create an ACL. It is in force when this is answered, and may be there already. 40002 without an authorizer."""
    _require_authorizer(request, view)
    row = _row(given)
    await _create(view, [row], request)
    return Response(status_code=201, headers={"location": _url(view, row)})


async def delete_acls(
    view: ClusterView, wanted: Annotated[CompleteAclFilter, Query()], request: Request
) -> DeletedAcls:
    """Delete the ACLs that match the parameters, and list them. 40002 without an authorizer."""
    _require_authorizer(request, view)
    found = await access_rules.delete(view.storage, _filter(wanted))
    audit.note(request, acls=len(found))
    _log("deleted an ACL", found, request)
    return DeletedAcls(data=_shown(view, found))


async def create_acls(view: ClusterView, given: CreateAclsRequest, request: Request) -> Response:
    """Create ACLs together: all of them, or none if one cannot be. 40002 without an authorizer."""
    _require_authorizer(request, view)
    await _create(view, [_row(each) for each in given.data], request)
    return Response(status_code=201)


async def _create(view: View, rows: list[Binding], request: Request) -> None:
    audit.note(request, acls=len(rows))
    await access_rules.create(view.storage, rows)
    _log("created an ACL", rows, request)


def _require_authorizer(request: Request, view: View) -> None:
    settings: AdminSettings = request.app.state.settings
    if settings.authorizer == "none":
        raise errors.refused(f"No Authorizer is configured on the brokers of cluster {view.cluster_id}.")


def _filter(wanted: AclFilter | CompleteAclFilter) -> Filter:
    """Return the filter of a search. An empty text matches every one, as in Confluent's API."""
    for name in _NO_ROW:
        if getattr(wanted, name) == "UNKNOWN":
            raise errors.of_status(400, f"{name} cannot be UNKNOWN")
    return Filter(
        ResourceType[wanted.resource_type or "ANY"],
        wanted.resource_name or None,
        PatternType[wanted.pattern_type or "ANY"],
        wanted.principal or None,
        wanted.host or None,
        Operation[wanted.operation or "ANY"],
        Permission[wanted.permission or "ANY"],
    )


def _row(given: CreateAclRequest) -> Binding:
    for name, values in _NO_ROW.items():
        if (value := getattr(given, name)) in values:
            raise errors.of_status(400, f"{name} cannot be {value}")
    return Binding(
        ResourceType[given.resource_type],
        given.resource_name,
        PatternType[given.pattern_type],
        given.principal,
        given.host,
        Operation[given.operation],
        Permission[given.permission],
    )


def _fields(row: Binding) -> dict[str, Any]:
    return {
        "resource_type": row.type.name,
        "resource_name": row.name,
        "pattern_type": row.pattern.name,
        "principal": row.principal,
        "host": row.host,
        "operation": row.operation.name,
        "permission": row.permission.name,
    }


def _url(view: View, row: Binding) -> str:
    """Return the URL of a search that finds this row alone."""
    return f"{view.links.url('acls')}?{urlencode(_fields(row), quote_via=quote)}"


def _shown(view: View, rows: Iterable[Binding]) -> list[Acl]:
    name = f"crn:///kafka={view.cluster_id}"
    return [
        Acl(
            metadata=ResourceMetadata(self_url=_url(view, row), resource_name=name),
            cluster_id=view.cluster_id,
            **_fields(row),
        )
        for row in rows
    ]


def _log(event: str, rows: Iterable[Binding], request: Request) -> None:
    request_id = request.scope[REQUEST_KEY].request_id
    for row in rows:
        log.info(event, sender=caller(request.scope).name, resource=row.resource, acl=row.rule, request_id=request_id)
