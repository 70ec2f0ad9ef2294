"""LeaveGroup: one member leaves its group, from version 3 on several (an administrator may name static members).

Before version 3 the answer has no rows: the one member's error is the answer's.
"""

from __future__ import annotations

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler, of_group, with_error
from gateway_svc.requests.resources import Operation
from gateway_svc.requests.turns import in_turns

_MANY_MEMBERS_VERSION = 3


async def handle(call: Call, request: LeaveGroupRequest, context: GroupContext) -> tuple[LeaveGroupResponse, int]:
    many = call.version >= _MANY_MEMBERS_VERSION
    leavers = request.members if many else (MemberIdentity(member_id=request.member_id),)
    error, members = 0, []
    async for piece in in_turns(leavers or (None,)):
        answer = await context.groups.leave_group(
            groups_pb2.LeaveGroupRequest(
                correlation_id=call.correlation_id,
                group_id=request.group_id,
                members=[
                    groups_pb2.LeaveGroupRequest.Leaver(
                        member_id=each.member_id, group_instance_id=each.group_instance_id, reason=each.reason or ""
                    )
                    for each in piece
                    if each is not None
                ],
            )
        )
        error = error or answer.error_code
        members += [
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
            for each, code in zip(piece, answer.member_error_codes, strict=False)
            if each is not None
        ]
    first = error or first_error(members)
    if not many:
        return LeaveGroupResponse(error_code=first), first
    return LeaveGroupResponse(error_code=error, members=tuple(members)), first


def names_members(request: LeaveGroupRequest) -> bool:
    """Return whether all leavers have their member ids: a later member of the same name has another one."""
    return bool(request.member_id) or all(each.member_id for each in request.members)


HANDLER = Handler(
    ApiKey.LEAVE_GROUP,
    0,
    5,
    handle,
    context=GroupContext,
    resources=of_group(Operation.READ),
    refuse=with_error(LeaveGroupResponse, members=()),
    is_farewell=names_members,
)
