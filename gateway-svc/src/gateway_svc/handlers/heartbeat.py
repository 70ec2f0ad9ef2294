"""Heartbeat: a member shows that it is alive, and learns from the answer when its group rebalances."""

from __future__ import annotations

from functools import partial

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from gateway_svc.handlers.heartbeat_pattern import HeartbeatPattern
from gateway_svc.requests.call import Call
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.handler import Handler, WhenClientLeft, of_group, with_error
from gateway_svc.requests.resources import Operation
from gateway_svc.storage.protocols import RepeatableHeartbeat


def serve(call: Call, request: HeartbeatRequest, context: GroupContext) -> RepeatableHeartbeat | None:
    return context.groups.heartbeat(
        groups_pb2.HeartbeatRequest(
            correlation_id=call.correlation_id,
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        ),
        partial(_answer, call, context),
    )


def _answer(call: Call, _context: object, answer: groups_pb2.HeartbeatResponse) -> None:
    error = answer.error_code
    call.answer(HeartbeatResponse(error_code=error), error)


refuse = with_error(HeartbeatResponse)

HANDLER = Handler(
    ApiKey.HEARTBEAT,
    0,
    4,
    serve,
    context=GroupContext,
    resources=of_group(Operation.READ),
    refuse=refuse,
    pattern=partial(HeartbeatPattern, serve, _answer),
    when_client_left=WhenClientLeft.SERVE_IF_FRESH,
)
