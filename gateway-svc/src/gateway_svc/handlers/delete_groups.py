"""DeleteGroups: groups without members, and the offsets they committed."""

from __future__ import annotations

from collections.abc import Iterable

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType, group, group_of
from gateway_svc.requests.rights import Rows
from gateway_svc.requests.turns import in_turns

_MESSAGES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "Group {} not found.",
    ErrorCode.NON_EMPTY_GROUP: "Group {} has members.",
}


async def handle(call: Call, request: DeleteGroupsRequest, context: GroupContext) -> tuple[DeleteGroupsResponse, int]:
    names = tuple(dict.fromkeys(request.groups_names))
    results = []
    async for piece in in_turns(names):
        answer = await context.groups.delete_groups(
            groups_pb2.DeleteGroupsRequest(correlation_id=call.correlation_id, group_ids=piece)
        )
        results += [
            DeletableGroupResult(group_id=name, error_code=code, error_message=_message(name, code))
            for name, code in zip(piece, answer.error_codes, strict=True)
        ]
    return DeleteGroupsResponse(throttle_time_ms=0, results=tuple(results)), first_error(results)


def _message(group_id: str, code: int) -> str | None:
    message = _MESSAGES.get(ErrorCode.of(code))
    return None if message is None else message.format(group_id)


def resources(_call: Call, request: DeleteGroupsRequest, _context: object) -> Iterable[Resource]:
    return [group(Operation.DELETE, each) for each in request.groups_names]


def refuse(_call: Call, request: DeleteGroupsRequest, error: int, _context: object) -> DeleteGroupsResponse:
    results = tuple(
        DeletableGroupResult(group_id=name, error_code=error, error_message=None)
        for name in dict.fromkeys(request.groups_names)
    )
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


HANDLER = Handler(
    ApiKey.DELETE_GROUPS,
    0,
    3,
    handle,
    context=GroupContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.GROUP}),
    rows=Rows("groups_names", "results", group_of(Operation.DELETE)),
)
