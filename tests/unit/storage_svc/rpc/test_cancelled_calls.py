"""A call that its gateway has cancelled before storage came to it is not begun."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import grpc
from broker_contract import groups_pb2
from service_chassis import rpc
from storage_svc.rpc import server

LEFT, LIVING = groups_pb2.JoinGroupRequest(group_id="left"), groups_pb2.JoinGroupRequest(group_id="living")


class Groups:
    def __init__(self) -> None:
        self.begun: list[str] = []

    def __getattr__(self, _: str) -> Any:
        return None

    async def join_group(self, request: groups_pb2.JoinGroupRequest) -> groups_pb2.JoinGroupResponse:
        self.begun.append(request.group_id)
        return groups_pb2.JoinGroupResponse()


async def test_a_join_that_was_cancelled_while_storage_stood_still_is_not_begun(tmp_path: Path) -> None:
    groups, served = Groups(), rpc.server()
    served.add(server.full_name("Groups"), server.methods("Groups", groups))
    address = f"unix:{tmp_path}/storage.sock"
    served.listen(address)
    await served.start()
    stands, gave_up = threading.Event(), threading.Event()

    def gateway() -> groups_pb2.JoinGroupResponse:
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(20)
            join = channel.unary_unary(
                "/millrace.v1.Groups/JoinGroup",
                groups_pb2.JoinGroupRequest.SerializeToString,
                groups_pb2.JoinGroupResponse.FromString,
            )
            stands.wait()
            lost = join.future(LEFT)
            time.sleep(0.3)
            lost.cancel()
            time.sleep(0.3)
            gave_up.set()
            return join(LIVING, timeout=20)

    for _ in range(5):
        groups.begun.clear()
        stands.clear()
        gave_up.clear()
        asked = asyncio.create_task(asyncio.to_thread(gateway))
        await asyncio.sleep(0.5)
        stands.set()
        gave_up.wait()  # the event loop stands still
        await asked
        if groups.begun == ["living"]:
            break
        # gRPC's threads stood still too, and have not received the cancellation in time: that shows nothing.
    assert groups.begun == ["living"]
    await served.stop(0)
