"""Members that repeat their heartbeat over real connections still receive every change in between."""

from __future__ import annotations

import gc
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol_lib.messages.leave_group import LeaveGroupRequest
from protocol_lib.messages.metadata import MetadataRequest
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from storage_svc.coordinator.hosting.repeatable_heartbeats import ClassicRepeatableHeartbeat

from tests.wire.conftest import Running, StartBroker, Wire
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

E = ErrorCode
JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=30_000,
    rebalance_timeout_ms=60_000,
    member_id="",
    protocol_type="consumer",
    protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
)
METADATA = MetadataRequest(topics=())


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[RemoteStorage]:
    remote = RemoteStorage(tmp_path)
    remote.settings = remote.settings.replaced(group_initial_rebalance_delay_ms=0)
    await remote.start()
    yield remote
    await remote.stop()


@pytest.fixture(params=["combined", "separate"])
async def broker(
    request: pytest.FixtureRequest,
    start_broker: StartBroker,
    storage: RemoteStorage,
) -> AsyncIterator[Running]:
    if request.param == "combined":
        yield await start_broker()
        return
    async with gateway_of(storage, "one") as running:
        yield running


async def classic_member(wire: Wire) -> HeartbeatRequest:
    """Return the heartbeat of a group's only member."""
    joined = await wire.call(11, 3, JOIN)
    assert joined.error_code == E.NONE
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b""),),
    )
    assert (await wire.call(14, 1, sync)).error_code == E.NONE
    return HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)


def answers(running: Running, api: str) -> dict[Any, int]:
    return dict(running.gateway.metrics.apis[api].answers)


async def test_a_classic_member(broker: Running) -> None:
    wire = await broker.connect()
    heartbeat = await classic_member(wire)
    for _ in range(5):
        assert (await wire.call(12, 3, heartbeat)).error_code == E.NONE
    sent = [wire.send(12, 3, heartbeat) for _ in range(50)]  # all in one write
    assert [(await wire.receive())[0] for _ in sent] == sent
    assert answers(broker, "Heartbeat") == {(3, "NONE"): 55}

    other = await broker.connect()
    other.send(11, 3, JOIN)
    while (code := (await wire.call(12, 3, heartbeat)).error_code) == E.NONE:
        pass
    assert code == E.REBALANCE_IN_PROGRESS
    assert (await wire.call(13, 1, LeaveGroupRequest(group_id="g", member_id=heartbeat.member_id))).error_code == E.NONE
    assert (await wire.call(12, 3, heartbeat)).error_code == E.UNKNOWN_MEMBER_ID
    await wire.close()
    await other.close()


async def test_a_heartbeat_that_arrives_in_pieces_between_other_requests(broker: Running) -> None:
    wire = await broker.connect()
    heartbeat = await classic_member(wire)
    expected = []
    for _ in range(3):
        expected += [
            wire.send(12, 3, heartbeat),
            wire.send(12, 3, HeartbeatRequest(group_id="", generation_id=1, member_id="m")),
        ]
    codes = [(await wire.receive())[1].error_code for _ in expected]
    assert codes == [E.NONE, E.INVALID_GROUP_ID] * 3

    correlation_id = wire.send(12, 3, heartbeat)
    (await wire.receive())
    body = struct.pack(">h", 1) + b"g" + struct.pack(">i", heartbeat.generation_id)
    body += struct.pack(">h", len(heartbeat.member_id)) + heartbeat.member_id.encode() + struct.pack(">h", -1)
    head = struct.pack(">hhi", 12, 3, correlation_id + 1) + struct.pack(">h", len("wire-test")) + b"wire-test"
    frame = struct.pack(">i", len(head + body)) + head + body
    for position in range(len(frame)):
        wire.writer.write(frame[position : position + 1])
        await wire.writer.drain()
    answer = await wire.receive_frame()
    assert answer == struct.pack(">iih", correlation_id + 1, 0, 0)
    await wire.close()


async def test_a_consumer_member_hears_of_another(broker: Running) -> None:
    first, second = await broker.connect(), await broker.connect()

    def joining(member_id: str) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id="k",
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("orders",),
            topic_partitions=(),
        )

    joined = await first.call(68, 1, joining("m1"))
    assert joined.error_code == E.NONE
    same = ConsumerGroupHeartbeatRequest(group_id="k", member_id="m1", member_epoch=joined.member_epoch)
    for _ in range(5):
        answer = await first.call(68, 1, same)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (E.NONE, joined.member_epoch, None)
    await second.call(68, 1, joining("m2"))
    while (answer := await first.call(68, 1, same)).assignment is None:
        assert answer.error_code == E.NONE
    assert sum(len(each.partitions) for each in answer.assignment.topic_partitions) == 2
    await first.close()
    await second.close()


def kept_repeats() -> int:
    """Count the heartbeats that storage can answer by a repeat, in this whole process."""
    gc.collect()
    return sum(isinstance(each, ClassicRepeatableHeartbeat) for each in gc.get_objects())


async def test_storage_forgets_what_no_member_says_any_more(storage: RemoteStorage) -> None:
    others = kept_repeats()
    async with gateway_of(storage, "one") as broker:
        wire, last = await broker.connect(), await broker.connect()
        heartbeat = await classic_member(wire)
        for version in (3, 2, 3):  # other bytes each time
            assert (await wire.call(12, version, heartbeat)).error_code == E.NONE
        assert kept_repeats() == others + 1
        await wire.close()
        for _ in range(100):
            nobody = HeartbeatRequest(group_id="h", generation_id=1, member_id="m")
            assert (await last.call(12, 3, nobody)).error_code == E.UNKNOWN_MEMBER_ID
            if kept_repeats() == others:
                break
        assert kept_repeats() == others
        await last.close()


@pytest.mark.event_loops("asyncio", "uvloop")
async def test_a_member_may_send_anything_between_its_repetitions(broker: Running) -> None:
    wire = await broker.connect()
    heartbeat = await classic_member(wire)
    for _ in range(2):
        sent = [wire.send(12, 3, heartbeat), wire.send(3, 1, METADATA), wire.send(12, 3, heartbeat)]
        assert [(await wire.receive())[0] for _ in sent] == sent
        for _ in range(3):
            assert (await wire.call(12, 3, heartbeat)).error_code == E.NONE
    leave = LeaveGroupRequest(group_id="g", member_id=heartbeat.member_id)
    assert (await wire.call(13, 1, leave)).error_code == E.NONE
    assert (await wire.call(12, 3, heartbeat)).error_code == E.UNKNOWN_MEMBER_ID
    await wire.close()


async def test_one_that_ends_while_it_is_asked_keeps_its_place(broker: Running) -> None:
    """The member leaves over another connection while many of its heartbeats have arrived."""
    wire, other = await broker.connect(), await broker.connect()
    heartbeat = await classic_member(wire)
    assert (await wire.call(12, 3, heartbeat)).error_code == E.NONE
    sent = [wire.send(12, 3, heartbeat) for _ in range(10)]
    first, answer = await wire.receive()
    assert answer.error_code == E.NONE
    leave = LeaveGroupRequest(group_id="g", member_id=heartbeat.member_id)
    assert (await other.call(13, 1, leave)).error_code == E.NONE
    got = [await wire.receive() for _ in sent[1:]]
    assert [first, *(correlation_id for correlation_id, _ in got)] == sent
    assert (await wire.call(12, 3, heartbeat)).error_code == E.UNKNOWN_MEMBER_ID
    await wire.close()
    await other.close()
