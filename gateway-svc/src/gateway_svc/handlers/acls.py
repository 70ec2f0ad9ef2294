"""DescribeAcls, CreateAcls and DeleteAcls: the access rules of the cluster, which storage keeps.

A change is answered once every gateway obeys it. Without an authorizer all three answer SECURITY_DISABLED, as Apache
Kafka does. MirrorMaker and tools for ACLs know this answer. An entry that nobody obeys is not stored.

v0: only literal patterns, of which `*` is one.   v1+: prefixed ones (KIP-290).   v2+: flexible   v3+: users (KIP-373)

Kafka closes the connection over a request with a number that says UNKNOWN (0), and so does this gateway.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from broker_contract import access_pb2 as pb
from broker_contract.access import binding_of
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from protocol_lib.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol_lib.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from service_chassis import logs

from gateway_svc.errors import RequestRefused
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import AccessContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import ONE_STEP_ELEMENTS_MAX, Handler, of_cluster
from gateway_svc.requests.resources import Operation

_DISABLED: Final = ErrorCode.SECURITY_DISABLED
_LITERAL: Final = 3

log = logs.get(__name__)


async def describe(
    call: Call, request: DescribeAclsRequest, context: AccessContext
) -> tuple[DescribeAclsResponse, int]:
    if not context.has_authorizer:
        message = "No Authorizer is configured on the broker"
        return refuse_description(call, request, _DISABLED, context, message), _DISABLED
    _refuse_unknown([_filter_codes(request)])
    answer = await context.access.describe_acls(
        pb.DescribeAclsRequest(correlation_id=call.correlation_id, filter=_filter(request))
    )
    rows = sorted(answer.acls, key=_pattern)
    response = DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=answer.error_code,
        error_message=None,
        resources=tuple([_described(*each) for each in groupby(rows, key=_pattern)]),
    )
    return response, answer.error_code


def _pattern(row: pb.Acl) -> tuple[int, str, int]:
    return row.type, row.name, row.pattern


def _described(pattern: tuple[int, str, int], rows: Iterable[pb.Acl]) -> DescribeAclsResource:
    kind, name, pattern_type = pattern
    return DescribeAclsResource(
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern_type,
        acls=tuple(
            [
                AclDescription(
                    principal=row.principal, host=row.host, operation=row.operation, permission_type=row.permission
                )
                for row in rows
            ]
        ),
    )


async def create(call: Call, request: CreateAclsRequest, context: AccessContext) -> tuple[CreateAclsResponse, int]:
    if not context.has_authorizer:
        response = refuse_creations(call, request, _DISABLED, context, "No Authorizer is configured.")
        return response, first_error(response.results)
    codes = [
        (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
        for each in request.creations
    ]
    _refuse_unknown(codes)
    rows = [
        pb.Acl(
            type=each.resource_type,
            name=each.resource_name,
            pattern=each.resource_pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission=each.permission_type,
        )
        for each in request.creations
    ]
    answer = await context.access.create_acls(pb.CreateAclsRequest(correlation_id=call.correlation_id, acls=rows))
    for row, result in zip(rows, answer.results, strict=True):
        if not result.error_code:
            _log_change("created an ACL", call, row)
    results = tuple(
        [AclCreationResult(error_code=each.error_code, error_message=each.message or None) for each in answer.results]
    )
    return CreateAclsResponse(throttle_time_ms=0, results=results), first_error(results)


async def delete(call: Call, request: DeleteAclsRequest, context: AccessContext) -> tuple[DeleteAclsResponse, int]:
    if not context.has_authorizer:
        response = refuse_deletions(call, request, _DISABLED, context, "No Authorizer is configured.")
        return response, first_error(response.filter_results)
    _refuse_unknown([_filter_codes(each) for each in request.filters])
    answer = await context.access.delete_acls(
        pb.DeleteAclsRequest(correlation_id=call.correlation_id, filters=map(_filter, request.filters))
    )
    for result in answer.results:
        for row in result.acls:
            _log_change("deleted an ACL", call, row)
    results = tuple(map(_deleted, answer.results))
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results), first_error(results)


def _deleted(result: pb.DeletedAcls) -> DeleteAclsFilterResult:
    rows = [
        DeleteAclsMatchingAcl(
            error_code=0,
            error_message=None,
            resource_type=row.type,
            resource_name=row.name,
            pattern_type=row.pattern,
            principal=row.principal,
            host=row.host,
            operation=row.operation,
            permission_type=row.permission,
        )
        for row in result.acls
    ]
    return DeleteAclsFilterResult(
        error_code=result.error_code, error_message=result.message or None, matching_acls=tuple(rows)
    )


def _filter_codes(asked: Any) -> tuple[int, ...]:
    return asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type


def _filter(asked: Any) -> pb.AclFilter:
    return pb.AclFilter(
        type=asked.resource_type_filter,
        name=asked.resource_name_filter,
        pattern=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission=asked.permission_type,
    )


def _refuse_unknown(codes: Iterable[tuple[int, ...]]) -> None:
    """Raise RequestRefused if a row or filter has an UNKNOWN element."""
    if any(0 in each for each in codes):
        raise RequestRefused("unknown_element")


def _log_change(event: str, call: Call, message: pb.Acl) -> None:
    row = binding_of(message)
    log.info(
        event,
        principal=call.subject.principal,
        host=call.client.host,
        resource=row.resource,
        acl=row.rule,
    )


def refuse_description(
    _call: Call, _request: DescribeAclsRequest, error: int, _context: object, message: str | None = None
) -> DescribeAclsResponse:
    return DescribeAclsResponse(throttle_time_ms=0, error_code=error, error_message=message, resources=())


def refuse_creations(
    _call: Call, request: CreateAclsRequest, error: int, _context: object, message: str | None = None
) -> CreateAclsResponse:
    rows = (AclCreationResult(error_code=error, error_message=message),) * len(request.creations)
    return CreateAclsResponse(throttle_time_ms=0, results=rows)


def refuse_deletions(
    _call: Call, request: DeleteAclsRequest, error: int, _context: object, message: str | None = None
) -> DeleteAclsResponse:
    row = DeleteAclsFilterResult(error_code=error, error_message=message, matching_acls=())
    rows = (row,) * len(request.filters)
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=rows)


HANDLERS: Final = (
    Handler(
        ApiKey.DESCRIBE_ACLS,
        0,
        3,
        describe,
        context=AccessContext,
        resources=of_cluster(Operation.DESCRIBE),
        refuse=refuse_description,
    ),
    Handler(
        ApiKey.CREATE_ACLS,
        0,
        3,
        create,
        context=AccessContext,
        resources=of_cluster(Operation.ALTER),
        refuse=refuse_creations,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
    Handler(
        ApiKey.DELETE_ACLS,
        0,
        3,
        delete,
        context=AccessContext,
        resources=of_cluster(Operation.ALTER),
        refuse=refuse_deletions,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
)
