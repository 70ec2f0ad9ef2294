"""FindCoordinator: the broker a group's members should talk to.

Any gateway serves any group, so the answer only spreads groups over the live gateways, by rendezvous hashing. Version
4 asks for many keys at once. Transactions and share groups are not served: their keys are answered
UNSUPPORTED_VERSION with a message, which Java reports at once; librdkafka asks again until init_transactions' timeout
is over. An empty group id is answered INVALID_GROUP_ID, an unknown key type INVALID_REQUEST.
"""

from __future__ import annotations

from broker_contract.leadership import group_coordinator
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    KeyType,
)

from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.route import TaskHandler

_BATCH_VERSION = 4
_NOT_SERVED = {
    KeyType.TRANSACTION: "this broker does not serve transactions",
    KeyType.SHARE: "this broker does not serve share groups",
}


async def handle(
    call: Call, request: FindCoordinatorRequest, services: Services
) -> tuple[FindCoordinatorResponse, int]:
    keys = request.coordinator_keys if call.version >= _BATCH_VERSION else (request.key,)
    found = tuple([await _find(call, key, request.key_type, services) for key in keys])
    error = next((each.error_code for each in found if each.error_code), 0)
    if call.version >= _BATCH_VERSION:
        return FindCoordinatorResponse(coordinators=found), error
    (only,) = found
    response = FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
    return response, error


async def _find(call: Call, key: str, key_type: int, services: Services) -> Coordinator:
    if key_type in _NOT_SERVED:
        return _error(key, ErrorCode.UNSUPPORTED_VERSION, _NOT_SERVED[KeyType(key_type)])
    if key_type != KeyType.GROUP:
        return _error(key, ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")
    if not key:
        return _error(key, ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    brokers = {each.node_id: each for each in await services.cluster.brokers(call.client.listener)}
    broker = brokers[group_coordinator(brokers, key)]
    return Coordinator(
        key=key,
        node_id=broker.node_id,
        host=broker.host,
        port=broker.port,
        error_code=ErrorCode.NONE,
        error_message=None,
    )


def _error(key: str, error_code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error_code, error_message=message)


HANDLER = TaskHandler(ApiKey.FIND_COORDINATOR, 0, 6, handle)
