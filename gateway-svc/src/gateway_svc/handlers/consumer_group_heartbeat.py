"""ConsumerGroupHeartbeat: a member of a consumer group joins, reports and leaves (KIP-848).

Storage's group coordinator decides everything. In version 0 a new member may come without an id and receives one, from
version 1 on it makes its id itself (KIP-1082) and may subscribe by a pattern.

A pattern matches only topics that the member may describe. Storage knows no rights: for a member whose rights are not
total, its answer asks for the names (`resolve`), which this gateway reads and filters before it answers. Storage asks
when a pattern is new or the topics have changed. Kafka also matches every ten minutes, and so follows changed rights.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from service_chassis.steps import Steps

from gateway_svc.errors import StorageUnavailable
from gateway_svc.handlers.heartbeat_pattern import HeartbeatPattern
from gateway_svc.handlers.partitions import described
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.handler import STEP_ELEMENTS_MAX, Handler, WhenClientLeft, with_error
from gateway_svc.requests.resources import Operation, Resource, ResourceType, group, topics_called
from gateway_svc.requests.turns import in_turns
from gateway_svc.storage.protocols import RepeatableHeartbeat

_MEMBER_ID_NEEDED_VERSION = 1

_Request = groups_pb2.ConsumerGroupHeartbeatRequest

#: Others have a turn before longer requests are served: they may have hundreds of partitions.
_LONG_BYTES: Final = 16 * 1024


def serve(call: Call, request: ConsumerGroupHeartbeatRequest, context: GroupContext) -> RepeatableHeartbeat | None:
    if call.size <= _LONG_BYTES:
        return _serve(call, request, context)
    Steps.of_one(context.loop, partial(_serve, call, request, context), call.failed)
    return None


def _serve(call: Call, request: ConsumerGroupHeartbeatRequest, context: GroupContext) -> RepeatableHeartbeat | None:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return context.groups.consumer_group_heartbeat(
        _Request(
            correlation_id=call.correlation_id,
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            group_instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topic_names=None if names is None else _Request.TopicNames(names=names),
            subscribed_topic_regex=request.subscribed_topic_regex,
            server_assignor=request.server_assignor,
            owned=None if owned is None else _Request.Partitions(topics=[_row(each) for each in owned]),
            client_id=call.client_id or "",
            client_host=f"/{call.client.host}",
            needs_member_id=call.version >= _MEMBER_ID_NEEDED_VERSION,
            connection_id=call.client.connection_id,
            is_restricted=not call.rights.are_total,
        ),
        partial(_answer, call, context),
    )


def _answer(call: Call, context: GroupContext, answer: groups_pb2.ConsumerGroupHeartbeatResponse) -> None:
    if not answer.HasField("resolve"):
        _show(call, answer)
        return
    resolving = context.loop.create_task(_resolve(call, context, answer), name="patterns")

    def abandon() -> None:
        resolving.cancel()

    call.abandon = abandon


async def _resolve(call: Call, context: GroupContext, answer: groups_pb2.ConsumerGroupHeartbeatResponse) -> None:
    """Send storage the topics that the group's patterns may match: those that the member may describe. Then answer."""
    try:
        may = partial(call.rights.may, Operation.DESCRIBE, ResourceType.TOPIC)
        answer.resolve.correlation_id = call.correlation_id
        async for piece in in_turns(await described(call, context.topics, None)):
            answer.resolve.names.extend(topic.name for topic in piece if may(topic.name))
        await context.groups.resolve_patterns(answer.resolve)
        _show(call, answer)
    except StorageUnavailable as error:
        call.close_refused("storage_unavailable", str(error))
    except Exception as error:
        call.failed(error)


def _show(call: Call, answer: groups_pb2.ConsumerGroupHeartbeatResponse) -> None:
    assignment = None
    if answer.HasField("assignment"):
        assignment = Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=each.topic_id, partitions=tuple(each.partitions))
                for each in answer.assignment.topics
            )
        )
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=answer.error_code,
        error_message=answer.error_message if answer.HasField("error_message") else None,
        member_id=answer.member_id if answer.HasField("member_id") else None,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )
    call.answer(response, answer.error_code)


def _row(row: TopicPartitions) -> groups_pb2.TopicIdPartitions:
    return groups_pb2.TopicIdPartitions(topic_id=bytes(row.topic_id), partitions=row.partitions)


def resources(_call: Call, request: ConsumerGroupHeartbeatRequest, _context: object) -> Iterable[Resource]:
    """Return the group and the topics subscribed to by name. Those that match a pattern are left out, not refused."""
    return [
        group(Operation.READ, request.group_id),
        *topics_called(Operation.DESCRIBE, request.subscribed_topic_names or ()),
    ]


refuse = with_error(ConsumerGroupHeartbeatResponse, throttle_time_ms=0, member_epoch=0, heartbeat_interval_ms=0)

HANDLER = Handler(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    0,
    1,
    serve,
    elements_max=STEP_ELEMENTS_MAX,
    context=GroupContext,
    resources=resources,
    refuse=refuse,
    pattern=partial(HeartbeatPattern, serve, _answer),
    when_client_left=WhenClientLeft.SERVE_IF_FRESH,
    is_farewell=lambda request: request.member_epoch < 0,
)
