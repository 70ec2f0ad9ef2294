"""Heartbeat: a member says that it is alive, and is told when its group rebalances."""

from __future__ import annotations

from broker_contract import groups_pb2
from protocol_lib.api import ApiKey
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

from gateway_svc.context import Call, Services
from gateway_svc.handler import TaskHandler


async def handle(call: Call, request: HeartbeatRequest, services: Services) -> tuple[HeartbeatResponse, int]:
    answer = await services.storage.groups.heartbeat(
        groups_pb2.HeartbeatRequest(
            correlation_id=call.correlation_id,
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        )
    )
    return HeartbeatResponse(error_code=answer.error_code), answer.error_code


HANDLER = TaskHandler(ApiKey.HEARTBEAT, 0, 4, handle)
