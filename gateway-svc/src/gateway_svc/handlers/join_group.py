"""JoinGroup: become a member of a group, or stay one through a rebalance; the answer comes when the rebalance ends.

Storage's group coordinator decides everything; here versions become its flags. From 4 on a new dynamic member first
receives its id (MEMBER_ID_REQUIRED, KIP-394). From 9 on a returning static leader may be asked to skip the
assignment (KIP-814). Version 0 has no rebalance timeout: the session timeout stands for it. Before version 7 the
protocol name cannot be null: it is empty.
"""

from __future__ import annotations

from typing import Final

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.handler import Handler, of_group
from gateway_svc.requests.resources import Operation

_MEMBER_ID_REQUIRED_VERSION = 4
_NULLABLE_NAME_VERSION = 7
_SKIP_ASSIGNMENT_VERSION = 9

#: Protocols of one member; clients have a handful.
_PROTOCOLS_MAX: Final = 1000


async def handle(call: Call, request: JoinGroupRequest, context: GroupContext) -> tuple[JoinGroupResponse, int]:
    answer = await context.groups.join_group(
        groups_pb2.JoinGroupRequest(
            correlation_id=call.correlation_id,
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=call.client_id or "",
            client_host=f"/{call.client.host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.session_timeout_ms
            if request.rebalance_timeout_ms < 0
            else request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=[groups_pb2.GroupProtocol(name=each.name, metadata=each.metadata) for each in request.protocols],
            require_known_member_id=call.version >= _MEMBER_ID_REQUIRED_VERSION,
            supports_skipping_assignment=call.version >= _SKIP_ASSIGNMENT_VERSION,
            reason=request.reason or "",
        )
    )
    name = answer.protocol_name if answer.HasField("protocol_name") else None
    response = JoinGroupResponse(
        error_code=answer.error_code,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type if answer.HasField("protocol_type") else None,
        protocol_name=name if call.version >= _NULLABLE_NAME_VERSION else name or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id if member.HasField("group_instance_id") else None,
                metadata=member.metadata,
            )
            for member in answer.members
        ),
    )
    return response, answer.error_code


def refuse(call: Call, request: JoinGroupRequest, error: int, _context: object) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error,
        generation_id=-1,
        protocol_name=None if call.version >= _NULLABLE_NAME_VERSION else "",
        leader="",
        member_id=request.member_id,
        members=(),
    )


HANDLER = Handler(
    ApiKey.JOIN_GROUP,
    0,
    9,
    handle,
    context=GroupContext,
    resources=of_group(Operation.READ),
    refuse=refuse,
    may_park=True,
    elements_max=_PROTOCOLS_MAX,
)
