"""DescribeGroups: state, protocol and members of groups.

Each group is answered as often as it is named, up to a thousand names. A group that is not there is Dead; from version
6 on it is GROUP_ID_NOT_FOUND, with a message (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol_lib.messages.metadata import NO_AUTHORIZED_OPERATIONS

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import ALL_GROUP_OPERATIONS, Operation, Resource, ResourceType, group, group_of
from gateway_svc.requests.rights import Rights, Rows
from gateway_svc.requests.turns import AnswerMemory, in_turns, keep_duplicates

_GROUP_ID_NOT_FOUND_VERSION = 6
#: Groups that storage describes at a time: each may have thousands of members.
GROUPS_PIECE: Final = 20


async def handle(
    call: Call, request: DescribeGroupsRequest, context: GroupContext
) -> tuple[DescribeGroupsResponse, int]:
    groups = []
    memory = AnswerMemory(call.size)
    async for group_ids in in_turns(keep_duplicates(request.groups), GROUPS_PIECE):  # mutant: groups-named-twice
        answer = await context.groups.describe_groups(
            groups_pb2.DescribeGroupsRequest(correlation_id=call.correlation_id, group_ids=group_ids)
        )
        memory.take(answer.ByteSize())
        wants_operations, rights = request.include_authorized_operations, call.rights
        groups += [_group(each, call.version, wants_operations, rights) for each in answer.groups]
    return DescribeGroupsResponse(groups=tuple(groups)), first_error(groups)


def _group(
    group: groups_pb2.DescribeGroupsResponse.Group, version: int, wants_operations: bool, rights: Rights
) -> DescribedGroup:
    error, message = group.error_code, None
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        if version < _GROUP_ID_NOT_FOUND_VERSION:
            error = 0
        else:
            message = f"Group {group.group_id} not found."
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=tuple(
            DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id if each.HasField("group_instance_id") else None,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata,
                member_assignment=each.assignment,
            )
            for each in group.members
        ),
        authorized_operations=rights.operations(ALL_GROUP_OPERATIONS, ResourceType.GROUP, group.group_id)
        if wants_operations and not error
        else NO_AUTHORIZED_OPERATIONS,
    )


def resources(_call: Call, request: DescribeGroupsRequest, _context: object) -> Iterable[Resource]:
    return [group(Operation.DESCRIBE, each) for each in request.groups]


def refuse(_call: Call, request: DescribeGroupsRequest, error: int, _context: object) -> DescribeGroupsResponse:
    groups = tuple(
        DescribedGroup(
            error_code=error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=()
        )
        for group_id in keep_duplicates(request.groups)
    )
    return DescribeGroupsResponse(groups=groups)


HANDLER = Handler(
    ApiKey.DESCRIBE_GROUPS,
    0,
    6,
    handle,
    context=GroupContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset({ResourceType.GROUP}),
    rows=Rows("groups", "groups", group_of(Operation.DESCRIBE)),
)
