"""Heartbeats and commits on their way to storage: which leave together, and their answers when storage fails."""

from __future__ import annotations

import asyncio

import pytest
from broker_contract import groups_pb2 as pb
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.group_stream import GATHER_S, WAITED_S, GroupStream
from service_chassis import rpc

from tests.unit.gateway_svc.group_storage import Clock, GroupStorage, Members, at_rest, who

pytestmark = pytest.mark.event_loops("uvloop")


async def test_what_waits_leaves_in_one_message_in_order(members: Members, group_storage: GroupStorage) -> None:
    names = [f"m{number}" for number in range(300)]
    for name in names[:-1]:
        members.heartbeat(name)
    members.commit(names[-1], 7)
    assert who(await group_storage.message()) == names


async def test_a_heartbeat_that_comes_alone_leaves_at_once_and_those_that_follow_it_gather(
    group_stream: GroupStream, members: Members, group_storage: GroupStorage, clock: Clock
) -> None:
    members.heartbeat("alone")
    assert who(await group_storage.message()) == ["alone"]
    await at_rest(group_stream)
    names = [f"m{number}" for number in range(20)]
    for name in names:
        members.heartbeat(name)
        await asyncio.sleep(0)
    clock.go_on(GATHER_S - 0.001)
    await asyncio.sleep(0.05)
    assert group_storage.messages.empty()
    clock.go_on(0.002)
    assert who(await group_storage.message()) == names


async def test_answers_come_in_any_order_and_one_failure_is_one_calls_only(
    members: Members, group_storage: GroupStorage
) -> None:
    members.consumer_heartbeat("c")
    members.commit("a", 1, 2)
    members.heartbeat("b")
    joined, committed, beat = await group_storage.message()
    await group_storage.answer(
        pb.GroupAnswer(call_id=beat.call_id, heartbeat=pb.HeartbeatResponse(error_code=27)),
        pb.GroupAnswer(call_id=committed.call_id),
        pb.GroupAnswer(call_id=12345, heartbeat=pb.HeartbeatResponse()),
        pb.GroupAnswer(
            call_id=joined.call_id, consumer_group_heartbeat=pb.ConsumerGroupHeartbeatResponse(member_epoch=3)
        ),
    )
    await members.all_answered("a", "b", "c")
    assert members.answers == {
        "a": pb.CommitOffsetsResponse(error_codes=[15, 15]),
        "b": pb.HeartbeatResponse(error_code=27),
        "c": pb.ConsumerGroupHeartbeatResponse(member_epoch=3),
    }


async def test_a_caller_that_fails_does_not_keep_the_others_from_their_answers(
    group_stream: GroupStream, members: Members, group_storage: GroupStorage
) -> None:
    def fails(_: pb.HeartbeatResponse) -> None:
        raise ValueError("the client is gone")

    group_stream.heartbeat(pb.HeartbeatRequest(member_id="x"), fails)
    members.commit("a", 1)
    first, second = await group_storage.message()
    await group_storage.answer(
        pb.GroupAnswer(call_id=first.call_id, heartbeat=pb.HeartbeatResponse()),
        pb.GroupAnswer(call_id=second.call_id, commit_offsets=pb.CommitOffsetsResponse(error_codes=[0])),
    )
    await members.all_answered("a")
    assert members.answers == {"a": pb.CommitOffsetsResponse(error_codes=[0])}
    group_stream.consumer_group_heartbeat(pb.ConsumerGroupHeartbeatRequest(member_id="x"), fails)
    members.commit("b", 1)
    await group_storage.message()
    await group_storage.stop()
    await members.all_answered("b")
    members.heartbeat("c")
    await group_storage.start()
    assert who(await group_storage.message()) == ["first", "c"]


async def test_heartbeats_are_sent_again_in_order_and_commits_fail(
    members: Members, group_storage: GroupStorage
) -> None:
    members.commit("sent", 1)
    members.consumer_heartbeat("unknown")
    members.commit("sent too", 2)
    sent = [*await group_storage.message()]
    while len(sent) < 3:
        sent += await group_storage.message()
    assert who(sent) == ["sent", "unknown", "sent too"]
    await group_storage.stop()
    await members.all_answered("unknown", "sent", "sent too")
    assert members.answers == {
        "sent": pb.CommitOffsetsResponse(error_codes=[15]),
        "unknown": pb.ConsumerGroupHeartbeatResponse(error_code=15),
        "sent too": pb.CommitOffsetsResponse(error_codes=[15]),
    }
    members.heartbeat("not sent yet")
    members.commit("not sent yet, too", 1)
    await group_storage.start()
    again = await group_storage.message()
    assert who(again) == ["first", "not sent yet", "not sent yet, too"]


async def test_heartbeats_of_the_consumer_protocol_do_not_wait_for_storage(
    members: Members, group_storage: GroupStorage
) -> None:
    members.consumer_heartbeat("sent")
    assert who(await group_storage.message()) == ["sent"]
    await group_storage.stop()
    await members.all_answered("sent")
    members.consumer_heartbeat("while it is away")  # what it would change its client may not wait to hear
    assert members.answers == dict.fromkeys(
        ("sent", "while it is away"), pb.ConsumerGroupHeartbeatResponse(error_code=15)
    )
    await group_storage.start()
    assert who(await group_storage.message()) == ["first"]


async def test_what_has_no_answer_when_the_gateway_stops_is_answered(
    group_stream: GroupStream, members: Members, group_storage: GroupStorage
) -> None:
    members.commit("sent", 1)
    await group_storage.message()
    members.heartbeat("not sent")
    await group_stream.close()
    members.heartbeat("too late")
    assert members.answers == {
        "first": pb.HeartbeatResponse(error_code=15),
        "sent": pb.CommitOffsetsResponse(error_codes=[15]),
        "not sent": pb.HeartbeatResponse(error_code=15),
        "too late": pb.HeartbeatResponse(error_code=15),
    }


async def test_what_storage_does_not_answer_fails_in_time_and_may_be_answered_too_late(
    group_storage: GroupStorage,
) -> None:
    channel = rpc.channel(group_storage.address)
    stream = GroupStream(channel, GatewayMetrics(), wait_s=3.0)
    clock, members = Clock(stream), Members(stream)
    members.heartbeat("early")
    (early,) = await group_storage.message()
    clock.go_on(2.0)
    members.commit("late", 1, 2)
    (late,) = await group_storage.message()
    clock.go_on(0.9)
    assert members.answers == {}
    clock.go_on(0.2)
    assert members.answers == {"early": pb.HeartbeatResponse(error_code=15)}
    clock.go_on(1.8)
    assert members.answers.keys() == {"early"}
    clock.go_on(0.2)
    assert members.answers["late"] == pb.CommitOffsetsResponse(error_codes=[15, 15])
    members.commit("next", 3)
    (following,) = await group_storage.message()
    await group_storage.answer(
        pb.GroupAnswer(call_id=early.call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=True),
        pb.GroupAnswer(call_id=late.call_id, commit_offsets=pb.CommitOffsetsResponse()),
        pb.GroupAnswer(call_id=following.call_id, commit_offsets=pb.CommitOffsetsResponse(error_codes=[0])),
    )
    await members.all_answered("next")
    assert members.answers["next"] == pb.CommitOffsetsResponse(error_codes=[0])
    members.commit("last", 4)
    assert await group_storage.next_forgotten() == [early.call_id]
    await stream.close()
    await channel.close()


async def test_heartbeats_that_gathered_when_the_stream_was_lost_hold_up_no_later_ones(
    group_storage: GroupStorage,
) -> None:
    channel = rpc.channel(group_storage.address)
    stream = GroupStream(channel, GatewayMetrics())
    clock, members = Clock(stream), Members(stream)
    await asyncio.wait_for(stream.connected.wait(), 60)
    members.consumer_heartbeat("alone")
    assert who(await group_storage.message()) == ["alone"]
    await at_rest(stream)
    members.consumer_heartbeat("gathered")
    await group_storage.stop()
    await members.all_answered("alone", "gathered")
    clock.go_on(GATHER_S)
    await group_storage.start()
    await asyncio.wait_for(stream.connected.wait(), 60)
    members.consumer_heartbeat("later")
    assert who(await group_storage.message()) == ["later"]
    await stream.close()
    await channel.close()


@pytest.mark.parametrize("are_there", [True, False])
async def test_a_commit_that_waited_for_storage_is_sent_only_for_a_client_that_is_still_there(
    group_stream: GroupStream, members: Members, group_storage: GroupStorage, are_there: bool
) -> None:
    await group_storage.stop()
    async with asyncio.timeout(60):
        while group_stream.connected.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    members.commit("c", 7)
    members.heartbeat("h")
    await asyncio.sleep(2 * WAITED_S)
    members.are_there = are_there
    await group_storage.start()
    assert who(await group_storage.message()) == ["first", *(["c"] if are_there else []), "h"]
    if not are_there:
        assert members.answers == {"c": pb.CommitOffsetsResponse(error_codes=[15])}


async def test_the_client_of_a_commit_that_leaves_at_once_is_not_looked_at(
    members: Members, group_storage: GroupStorage
) -> None:
    members.are_there = False
    members.commit("c", 7)
    assert who(await group_storage.message()) == ["c"]
