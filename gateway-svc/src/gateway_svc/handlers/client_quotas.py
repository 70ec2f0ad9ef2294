"""DescribeClientQuotas and AlterClientQuotas (KIP-546): the quotas of clients, which storage keeps.

A filter is checked in the order and with the messages of Kafka's ClientQuotasImage. An alteration is answered once
every gateway obeys it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_contract import access_pb2 as pb
from broker_contract.access import components_of
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, EntryResult
from protocol_lib.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from service_chassis import logs

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import AccessContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import ONE_STEP_ELEMENTS_MAX, Handler, of_cluster
from gateway_svc.requests.resources import Operation

_ENTITY_TYPES: Final = ("ip", "user", "client-id")
_EXACT, _DEFAULT, _SPECIFIED = range(3)
_SHOWN: Final = 100

log = logs.get(__name__)


async def describe(
    call: Call, request: DescribeClientQuotasRequest, context: AccessContext
) -> tuple[DescribeClientQuotasResponse, int]:
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
    entries = None
    if not code:
        answer = await context.access.describe_quotas(pb.DescribeQuotasRequest(correlation_id=call.correlation_id))
        entries = tuple([_entry(each) for each in answer.quotas if _matches(request, each)])
    response = DescribeClientQuotasResponse(throttle_time_ms=0, error_code=code, error_message=message, entries=entries)
    return response, code


def _matches(request: DescribeClientQuotasRequest, quota: pb.Quota) -> bool:
    entity = dict(components_of(quota.entity))
    if request.strict and len(entity) != len(request.components):
        return False
    return all(_has(entity, each) for each in request.components)


def _has(entity: Mapping[str, str | None], asked: ComponentData) -> bool:
    if asked.entity_type not in entity:
        return False
    return asked.match_type == _SPECIFIED or entity[asked.entity_type] == asked.match


def _entry(quota: pb.Quota) -> EntryData:
    return EntryData(
        entity=tuple([EntityData(entity_type=kind, entity_name=name) for kind, name in components_of(quota.entity)]),
        values=tuple([ValueData(key=key, value=value) for key, value in sorted(quota.values.items())]),
    )


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


async def alter(
    call: Call, request: AlterClientQuotasRequest, context: AccessContext
) -> tuple[AlterClientQuotasResponse, int]:
    alterations = [
        pb.QuotaAlteration(
            entity=[pb.QuotaComponent(type=part.entity_type, name=part.entity_name) for part in each.entity],
            ops=[pb.QuotaOp(key=op.key, value=op.value, remove=op.remove) for op in each.ops],
        )
        for each in request.entries
    ]
    answer = await context.access.alter_quotas(
        pb.AlterQuotasRequest(
            correlation_id=call.correlation_id, alterations=alterations, validate_only=request.validate_only
        )
    )
    for alteration, result in zip(alterations, answer.results, strict=True):
        if not result.error_code and not request.validate_only:
            log.info(
                "altered quotas",
                principal=call.subject.principal,
                host=call.client.host,
                entity=dict(components_of(alteration.entity)),
                values={op.key: None if op.remove else op.value for op in alteration.ops},
            )
    rows = tuple(
        [
            EntryResult(error_code=each.error_code, error_message=each.message or None, entity=asked.entity)
            for each, asked in zip(answer.results, request.entries, strict=True)
        ]
    )
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=rows), first_error(rows)


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
        context=AccessContext,
        resources=of_cluster(Operation.DESCRIBE_CONFIGS),
        refuse=refuse_description,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
    Handler(
        ApiKey.ALTER_CLIENT_QUOTAS,
        0,
        1,
        alter,
        context=AccessContext,
        resources=of_cluster(Operation.ALTER_CONFIGS),
        refuse=refuse_alterations,
        elements_max=ONE_STEP_ELEMENTS_MAX,
    ),
)
