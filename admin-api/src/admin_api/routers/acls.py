"""Access control lists: refused as Kafka refuses them while no authorizer is configured."""

from __future__ import annotations

from typing import Annotated, Never

from fastapi import FastAPI, Query

from admin_api import errors
from admin_api.routers.operations import CLUSTER, Operations
from admin_api.schemas.acls import AclFilter, CompleteAclFilter, CreateAclRequest, CreateAclsRequest
from admin_api.schemas.resources import Error
from admin_api.view import ClusterView, View


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "ACL (v3)")
    for method, path, operation_id, endpoint in (
        ("GET", "acls", "getKafkaAcls", search_acls),
        ("POST", "acls", "createKafkaAcls", create_acl),
        ("DELETE", "acls", "deleteKafkaAcls", delete_acls),
        ("POST", "acls:batch", "batchCreateKafkaAcls", create_acls),
    ):
        operations.add(method, f"{CLUSTER}/{path}", operation_id, endpoint, status_code=400, answer=Error)


async def search_acls(view: ClusterView, _filter: Annotated[AclFilter, Query()]) -> Error:
    """Answer 40002: no authorizer is configured, and there are no ACLs."""
    _refuse(view)


async def create_acl(view: ClusterView, _given: CreateAclRequest) -> Error:
    """Answer 40002: no authorizer is configured that would obey the ACL."""
    _refuse(view)


async def delete_acls(view: ClusterView, _filter: Annotated[CompleteAclFilter, Query()]) -> Error:
    """Answer 40002: no authorizer is configured, and there are no ACLs."""
    _refuse(view)


async def create_acls(view: ClusterView, _given: CreateAclsRequest) -> Error:
    """Answer 40002: no authorizer is configured that would obey the ACLs."""
    _refuse(view)


def _refuse(view: View) -> Never:
    raise errors.refused(f"No Authorizer is configured on the brokers of cluster {view.cluster_id}.")
