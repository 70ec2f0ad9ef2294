"""DeleteGroups: groups without members, and the offsets they committed."""

from __future__ import annotations

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.route import TaskHandler

_MESSAGES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "Group {} not found.",
    ErrorCode.NON_EMPTY_GROUP: "Group {} has members.",
}


async def handle(call: Call, request: DeleteGroupsRequest, services: Services) -> tuple[DeleteGroupsResponse, int]:
    names = tuple(dict.fromkeys(request.groups_names))
    answer = await services.storage.groups.delete_groups(
        groups_pb2.DeleteGroupsRequest(correlation_id=call.correlation_id, group_ids=names)
    )
    results = tuple(
        DeletableGroupResult(group_id=name, error_code=code, error_message=_message(name, code))
        for name, code in zip(names, answer.error_codes, strict=True)
    )
    first = next((code for code in answer.error_codes if code), 0)
    return DeleteGroupsResponse(throttle_time_ms=0, results=results), first


def _message(group_id: str, code: int) -> str | None:
    message = _MESSAGES.get(ErrorCode.of(code))
    return None if message is None else message.format(group_id)


HANDLER = TaskHandler(ApiKey.DELETE_GROUPS, 0, 3, handle)
