"""DescribeClientQuotas and AlterClientQuotas (KIP-546). There are no quotas: none are described, and none are stored.

A filter is checked in the order and with the messages of Kafka's ClientQuotasImage. An alteration is refused, entry for
entry: a quota that no broker enforces must not look as if it were in force.
"""

from __future__ import annotations

from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, EntryResult
from protocol_lib.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import NoContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import ONE_STEP_ELEMENTS_MAX, Handler, of_cluster
from gateway_svc.requests.resources import Operation

_ENTITY_TYPES: Final = ("ip", "user", "client-id")
_EXACT, _DEFAULT, _SPECIFIED = range(3)
_SHOWN: Final = 100
_NOT_STORED: Final = "Quotas are not stored, because this version of the broker does not enforce them."


def describe(call: Call, request: DescribeClientQuotasRequest, _context: object) -> None:
    code, message = ErrorCode.NONE, ""
    types: set[str] = set()
    for component in request.components:
        code, message = _fault(component, types)
        if code:
            break
        types.add(component.entity_type)
    else:
        if "ip" in types and len(types) > 1:
            code = ErrorCode.INVALID_REQUEST
            message = (
                "Invalid entity filter component combination. IP filter component should not be used with user or"
                " clientId filter component."
            )
    response = DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=code, error_message=message, entries=None if code else ()
    )
    call.answer(response, code)


def _fault(component: ComponentData, before: set[str]) -> tuple[ErrorCode, str]:
    """Return the fault of a component of a filter after those of these types, or NONE."""
    named, match = component.entity_type, component.match_type
    message = ""
    if not named:
        message = "Invalid empty entity type."
    elif named in before:
        message = f"Entity type {named} cannot appear more than once in the filter."
    elif named not in _ENTITY_TYPES:
        return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {named[:_SHOWN]}"
    elif match == _EXACT:
        if component.match is None:
            message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
    elif match not in (_DEFAULT, _SPECIFIED):
        message = f"Unknown match type {match}"
    elif component.match is not None:
        kind = "DEFAULT" if match == _DEFAULT else "SPECIFIED"
        message = f"Request specified MATCH_TYPE_{kind}, but also specified a match string."
    return ErrorCode.INVALID_REQUEST if message else ErrorCode.NONE, message


def refuse_description(
    _call: Call, _request: DescribeClientQuotasRequest, error: int, _context: object
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=error, error_message=None, entries=None)


def alter(call: Call, request: AlterClientQuotasRequest, context: NoContext) -> None:
    response = refuse_alterations(call, request, ErrorCode.INVALID_REQUEST, context, _NOT_STORED)
    call.answer(response, first_error(response.entries))


def refuse_alterations(
    _call: Call, request: AlterClientQuotasRequest, error: int, _context: object, message: str | None = None
) -> AlterClientQuotasResponse:
    rows = tuple([EntryResult(error_code=error, error_message=message, entity=each.entity) for each in request.entries])
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=rows)


HANDLERS: Final = (
    Handler(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        0,
        1,
        describe,
        context=NoContext,
        resources=of_cluster(Operation.DESCRIBE_CONFIGS),
        refuse=refuse_description,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
    Handler(
        ApiKey.ALTER_CLIENT_QUOTAS,
        0,
        1,
        alter,
        context=NoContext,
        resources=of_cluster(Operation.ALTER_CONFIGS),
        refuse=refuse_alterations,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
)
