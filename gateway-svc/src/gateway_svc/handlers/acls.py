"""DescribeAcls, CreateAcls and DeleteAcls without an authorizer: SECURITY_DISABLED, as Apache Kafka answers then.

MirrorMaker and tools for ACLs know this answer. An entry that nobody obeys is not stored.
"""

from __future__ import annotations

from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from protocol_lib.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from protocol_lib.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

from gateway_svc.requests.call import Call
from gateway_svc.requests.handler import ONE_STEP_ELEMENTS_MAX, Handler, of_cluster
from gateway_svc.requests.resources import Operation
from gateway_svc.requests.services import Services

_DISABLED: Final = ErrorCode.SECURITY_DISABLED


def describe(call: Call, request: DescribeAclsRequest, services: Services) -> None:
    response = refuse_description(call, request, _DISABLED, services, "No Authorizer is configured on the broker")
    call.answer(response, _DISABLED)


def create(call: Call, request: CreateAclsRequest, services: Services) -> None:
    response = refuse_creations(call, request, _DISABLED, services, "No Authorizer is configured.")
    call.answer(response, _DISABLED if response.results else ErrorCode.NONE)


def delete(call: Call, request: DeleteAclsRequest, services: Services) -> None:
    response = refuse_deletions(call, request, _DISABLED, services, "No Authorizer is configured.")
    call.answer(response, _DISABLED if response.filter_results else ErrorCode.NONE)


def refuse_description(
    _call: Call, _request: DescribeAclsRequest, error: int, _services: Services, message: str | None = None
) -> DescribeAclsResponse:
    return DescribeAclsResponse(throttle_time_ms=0, error_code=error, error_message=message, resources=())


def refuse_creations(
    _call: Call, request: CreateAclsRequest, error: int, _services: Services, message: str | None = None
) -> CreateAclsResponse:
    rows = (AclCreationResult(error_code=error, error_message=message),) * len(request.creations)
    return CreateAclsResponse(throttle_time_ms=0, results=rows)


def refuse_deletions(
    _call: Call, request: DeleteAclsRequest, error: int, _services: Services, message: str | None = None
) -> DeleteAclsResponse:
    row = DeleteAclsFilterResult(error_code=error, error_message=message, matching_acls=())
    rows = (row,) * len(request.filters)
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=rows)


HANDLERS: Final = (
    Handler(ApiKey.DESCRIBE_ACLS, 0, 3, describe, resources=of_cluster(Operation.DESCRIBE), refuse=refuse_description),
    Handler(
        ApiKey.CREATE_ACLS,
        0,
        3,
        create,
        resources=of_cluster(Operation.ALTER),
        refuse=refuse_creations,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
    Handler(
        ApiKey.DELETE_ACLS,
        0,
        3,
        delete,
        resources=of_cluster(Operation.ALTER),
        refuse=refuse_deletions,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
)
