"""SyncGroup: the group's leader hands in the assignment; every member's answer is its own part, once it is stored.

From version 5 on protocol type and name are mandatory: INCONSISTENT_GROUP_PROTOCOL without them, before any other error
(KIP-559).
"""

from __future__ import annotations

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupResponse

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler, of_group, with_error
from gateway_svc.requests.resources import Operation

_PROTOCOL_VERSION = 5


async def handle(call: Call, request: SyncGroupRequest, context: GroupContext) -> tuple[SyncGroupResponse, int]:
    if call.version >= _PROTOCOL_VERSION and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b""), int(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        )
    answer = await context.groups.sync_group(
        groups_pb2.SyncGroupRequest(
            correlation_id=call.correlation_id,
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=[
                groups_pb2.SyncGroupRequest.MemberAssignment(member_id=each.member_id, assignment=each.assignment)
                for each in request.assignments
            ],
        )
    )
    response = SyncGroupResponse(
        error_code=answer.error_code,
        protocol_type=answer.protocol_type if answer.HasField("protocol_type") else None,
        protocol_name=answer.protocol_name if answer.HasField("protocol_name") else None,
        assignment=answer.assignment,
    )
    return response, answer.error_code


HANDLER = Handler(
    ApiKey.SYNC_GROUP,
    0,
    5,
    handle,
    context=GroupContext,
    resources=of_group(Operation.READ),
    refuse=with_error(SyncGroupResponse, assignment=b""),
    may_park=True,
    elements_max=STEP_ELEMENTS_MAX,
)
