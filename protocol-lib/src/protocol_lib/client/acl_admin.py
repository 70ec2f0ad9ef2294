"""Access control lists (KIP-140, KIP-290)."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from protocol_lib.client.cluster import Cluster
from protocol_lib.client.errors import check
from protocol_lib.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol_lib.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol_lib.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


class AclResource(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One access rule."""

    resource: AclResource
    name: str
    pattern: AclPattern = AclPattern.LITERAL
    principal: str
    host: str = "*"
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Conditions on access rules. None and ANY match every value."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    pattern: AclPattern = AclPattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY


class AclAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(self, acls: Collection[Acl]) -> None:
        """Create access rules. One that is there already is a success."""
        rows = tuple(
            AclCreation(
                resource_type=each.resource,
                resource_name=each.name,
                resource_pattern_type=each.pattern,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in acls
        )

        async def attempt() -> None:
            response: CreateAclsResponse = await self._cluster.controller_request(CreateAclsRequest(creations=rows))
            for asked, result in zip(rows, response.results, strict=True):
                check(result.error_code, asked.resource_name, result.error_message)

        await self._cluster.retrying(attempt)

    async def describe(self, wanted: AclFilter) -> list[Acl]:
        """Return the access rules that a filter matches."""
        request = _filtered(DescribeAclsRequest, wanted)

        async def attempt() -> list[Acl]:
            response: DescribeAclsResponse = await self._cluster.any_request(request)
            check(response.error_code, "access rules", response.error_message)
            return [
                Acl(
                    resource=AclResource(each.resource_type),
                    name=each.resource_name,
                    pattern=AclPattern(each.pattern_type),
                    principal=row.principal,
                    host=row.host,
                    operation=AclOperation(row.operation),
                    permission=AclPermission(row.permission_type),
                )
                for each in response.resources
                for row in each.acls
            ]

        return await self._cluster.retrying(attempt)

    async def delete(self, wanted: AclFilter) -> list[Acl]:
        """Delete the access rules that a filter matches; return them."""
        request = DeleteAclsRequest(filters=(_filtered(DeleteAclsFilter, wanted),))

        async def attempt() -> list[Acl]:
            response: DeleteAclsResponse = await self._cluster.controller_request(request)
            (result,) = response.filter_results
            check(result.error_code, "access rules", result.error_message)
            return [
                Acl(
                    resource=AclResource(row.resource_type),
                    name=row.resource_name,
                    pattern=AclPattern(row.pattern_type),
                    principal=row.principal,
                    host=row.host,
                    operation=AclOperation(row.operation),
                    permission=AclPermission(row.permission_type),
                )
                for row in result.matching_acls
            ]

        return await self._cluster.retrying(attempt)


def _filtered(kind: Any, wanted: AclFilter) -> Any:
    return kind(
        resource_type_filter=wanted.resource,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
