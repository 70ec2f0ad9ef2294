"""ListGroups: every group, since storage coordinates them all; by state from version 4 on, by type from 5 on."""

from __future__ import annotations

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.handler import NOTHING, Handler, with_error
from gateway_svc.requests.resources import CLUSTER_NAME, Operation, ResourceType
from gateway_svc.requests.turns import in_turns


async def handle(call: Call, request: ListGroupsRequest, context: GroupContext) -> tuple[ListGroupsResponse, int]:
    answer = await context.groups.list_groups(
        groups_pb2.ListGroupsRequest(
            correlation_id=call.correlation_id, states=request.states_filter, types=request.types_filter
        )
    )
    rights = call.rights
    lists_all = rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    groups: list[ListedGroup] = []
    async for piece in in_turns(answer.groups):
        groups += [
            ListedGroup(
                group_id=each.group_id, protocol_type=each.protocol_type, group_state=each.state, group_type=each.type
            )
            for each in piece
            if lists_all or rights.may(Operation.DESCRIBE, ResourceType.GROUP, each.group_id)
        ]
    return ListGroupsResponse(error_code=answer.error_code, groups=tuple(groups)), answer.error_code


#: Nothing is refused: groups that the client may not describe are left out of the answer.
HANDLER = Handler(
    ApiKey.LIST_GROUPS,
    0,
    5,
    handle,
    context=GroupContext,
    resources=NOTHING,
    refuse=with_error(ListGroupsResponse, groups=()),
)
