"""Access control lists, as Confluent's API has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from admin_api.schemas.answer import Answer
from admin_api.schemas.requests import Request, Text, example
from admin_api.schemas.resources import Collection, Resource

#: ACLs of one request.
ACLS_MAX = 100

AclResourceType = Literal["UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
AclPatternType = Literal["UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"]
AclOperation = Literal[
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
]
AclPermission = Literal["UNKNOWN", "ANY", "DENY", "ALLOW"]


class Acl(Resource):
    kind: Literal["KafkaAcl"] = "KafkaAcl"
    cluster_id: str
    resource_type: AclResourceType
    resource_name: str
    pattern_type: AclPatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


class AclList(Collection):
    kind: Literal["KafkaAclList"] = "KafkaAclList"
    data: list[Acl]


class DeletedAcls(Answer):
    data: list[Acl]


class AclFilter(BaseModel):
    """A search: a parameter that is absent matches everything."""

    resource_type: AclResourceType | None = None
    resource_name: str | None = None
    pattern_type: AclPatternType | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: AclPermission | None = None


class CompleteAclFilter(BaseModel):
    """A search for ACLs to delete. Its kinds have to be named, lest a parameter left out deletes too much."""

    resource_type: AclResourceType
    resource_name: str | None = None
    pattern_type: AclPatternType
    principal: str | None = None
    host: str | None = None
    operation: AclOperation
    permission: AclPermission


_EXAMPLE = {
    "resource_type": "TOPIC",
    "resource_name": "orders",
    "pattern_type": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}


class CreateAclRequest(Request):
    model_config = example(**_EXAMPLE)

    resource_type: AclResourceType
    resource_name: Text
    pattern_type: AclPatternType
    principal: Text
    host: Text
    operation: AclOperation
    permission: AclPermission


class CreateAclsRequest(Request):
    model_config = example(data=[_EXAMPLE])

    data: Annotated[list[CreateAclRequest], Field(max_length=ACLS_MAX, fail_fast=True)]
