"""FindCoordinator: the broker that the members of a group, or the producers of a transactional id, should talk to.

Any gateway serves any of them, so the answer only spreads them over the live gateways, by rendezvous hashing. Version
4 asks for many keys at once; each is answered once. Share groups are not served: their keys are answered
UNSUPPORTED_VERSION with a message, which Java reports at once. An unknown key type is answered INVALID_REQUEST. An
empty group id has a coordinator, as in Kafka: clients of Kafka 0.9 to 1.x commit offsets under it.

The first request makes `__consumer_offsets` or `__transaction_state`, as in Apache Kafka, so that tools find the topic.
Apache Kafka answers that request COORDINATOR_NOT_AVAILABLE; here only a topic that cannot be made leads to that error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_contract.leadership import group_coordinator
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    KeyType,
)

from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import ClusterContext
from gateway_svc.requests.error_codes import first_error
from gateway_svc.requests.handler import Handler
from gateway_svc.requests.resources import Operation, Resource, ResourceType
from gateway_svc.requests.turns import in_turns, keep_duplicates

_BATCH_VERSION = 4
#: The topic that holds the keys of a type.
_TOPICS = {KeyType.GROUP: "__consumer_offsets", KeyType.TRANSACTION: "__transaction_state"}


async def handle(
    call: Call, request: FindCoordinatorRequest, context: ClusterContext
) -> tuple[FindCoordinatorResponse, int]:
    found = []
    async for keys in in_turns(_keys(call, request)):
        found += [await _find(call, key, request.key_type, context) for key in keys]
    return _response(call, tuple(found)), first_error(found)


def _response(call: Call, found: tuple[Coordinator, ...]) -> FindCoordinatorResponse:
    if call.version >= _BATCH_VERSION:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find(call: Call, key: str, key_type: int, context: ClusterContext) -> Coordinator:
    if key_type in _RESOURCE_TYPES and not call.rights.allow(_resource(key_type, key)):
        return _denied(key, _resource(key_type, key).denied)
    if key_type == KeyType.SHARE:
        return _error(key, ErrorCode.UNSUPPORTED_VERSION, "this broker does not serve share groups")
    if key_type not in _TOPICS:
        return _error(key, ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")
    topic = _TOPICS[KeyType(key_type)]
    if await context.names.make_internal(topic, call.correlation_id):
        return _error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {topic} cannot be made")
    brokers = {each.node_id: each for each in await context.membership.brokers(call.client.listener)}
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


#: The type of the resource that a coordinator is for.
_RESOURCE_TYPES = {
    KeyType.GROUP: ResourceType.GROUP,
    KeyType.TRANSACTION: ResourceType.TRANSACTIONAL_ID,
    KeyType.SHARE: ResourceType.GROUP,
}


def _keys(call: Call, request: FindCoordinatorRequest) -> Sequence[str]:
    return keep_duplicates(request.coordinator_keys) if call.version >= _BATCH_VERSION else (request.key,)


def resources(call: Call, request: FindCoordinatorRequest, _context: object) -> Iterable[Resource]:
    if request.key_type not in _RESOURCE_TYPES:
        return ()
    return [_resource(request.key_type, key) for key in _keys(call, request)]


def _resource(key_type: int, key: str) -> Resource:
    return Resource(_RESOURCE_TYPES[KeyType(key_type)], key, Operation.DESCRIBE)


def _denied(key: str, error: int) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=None)


def refuse(call: Call, request: FindCoordinatorRequest, error: int, _context: object) -> FindCoordinatorResponse:
    return _response(call, tuple(_denied(key, error) for key in _keys(call, request)))


HANDLER = Handler(
    ApiKey.FIND_COORDINATOR,
    0,
    6,
    handle,
    context=ClusterContext,
    resources=resources,
    refuse=refuse,
    one_by_one=frozenset(_RESOURCE_TYPES.values()),
)
