"""Heartbeats and commits over a real stream to a real group coordinator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from broker_contract import groups_pb2 as pb
from protocol_lib.errors import ErrorCode as E
from service_chassis import rpc
from storage_svc.coordinator.hosting.repeatable_heartbeats import ClassicRepeatableHeartbeat
from storage_svc.rpc import group_stream as group_stream_module
from storage_svc.rpc.group_stream import (
    GRACE_S,
    STANDSTILL_CHECK_S,
    STILL_MAX_S,
    STILL_S,
    group_stream,
)
from support.group_calls import GroupExchange

from tests.unit.storage_svc.conftest import PlayedTime
from tests.unit.storage_svc.rpc import control_peer

SESSION_MS = 10_000
#: A pause that a session just outlasts.
PAUSE_S = SESSION_MS / 1000 - 0.2
Who = dict[str, Any]


class Peer(control_peer.Peer):
    async def join(self, group_id: str) -> pb.JoinGroupResponse:
        times = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 60_000}
        protocols = [pb.GroupProtocol(name="range", metadata=b"r")]
        join = pb.JoinGroupRequest(group_id=group_id, protocol_type="consumer", protocols=protocols, **times)
        return await self.groups.JoinGroup(join)

    async def member(self, group_id: str) -> Who:
        """Make a group of one, stable, and return the fields of its calls that name the member."""
        joined = await self.join(group_id)
        who = {"group_id": group_id, "member_id": joined.member_id, "generation_id": joined.generation_id}
        synced = await self.groups.SyncGroup(pb.SyncGroupRequest(**who))
        assert (joined.error_code, synced.error_code) == (0, 0)
        return who

    async def leave(self, who: Who) -> None:
        leaver = pb.LeaveGroupRequest.Leaver(member_id=who["member_id"])
        await self.groups.LeaveGroup(pb.LeaveGroupRequest(group_id=who["group_id"], members=[leaver]))

    async def beating(self) -> tuple[GroupExchange, Who]:
        """Make a member of group `g` whose heartbeat, call 7 of the stream, may be repeated."""
        who, exchange = await self.member("g"), GroupExchange(self.channel)
        await exchange.send(beat(7, who))
        assert (await exchange.receive(1))[7].may_repeat
        return exchange, who

    async def state(self) -> str:
        described = await self.groups.DescribeGroups(pb.DescribeGroupsRequest(group_ids=["g"]))
        return described.groups[0].state

    @property
    def members(self) -> int:
        return len(self.storage.coordinator.groups["g"].entity.members)

    async def committed(self, group_id: str) -> dict[int, int]:
        wanted = pb.FetchOffsetsRequest(groups=[pb.FetchOffsetsRequest.Group(group_id=group_id, all=True)])
        (group,) = (await self.storage.groups.fetch_offsets(wanted)).groups
        return {each.partition: each.offset for each in group.offsets}


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    settings = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 2}
    async with control_peer.served(Peer, tmp_path, topics="orders:3", **settings) as peer:
        yield peer


def beat(call_id: int, who: Who) -> pb.GroupCall:
    return pb.GroupCall(call_id=call_id, heartbeat=pb.HeartbeatRequest(**who))


def commit(call_id: int, partition: int, offset: int, topic: str = "orders", **who: object) -> pb.GroupCall:
    wanted = pb.CommitOffsetsRequest.Offset(topic=topic, partition=partition, offset=offset, leader_epoch=-1)
    given = {"group_id": "g", "generation_id": -1, "retention_time_ms": -1, "offsets": [wanted]} | who
    return pb.GroupCall(call_id=call_id, commit_offsets=pb.CommitOffsetsRequest(**given))  # type: ignore[arg-type]


async def test_many_calls_of_one_message_are_answered_in_few(peer: Peer) -> None:
    who = await peer.member("g")
    exchange = GroupExchange(peer.channel)
    await exchange.send(*(beat(number, who) for number in range(1, 501)))
    answers = await exchange.receive(500)
    assert {answer.WhichOneof("answer") for answer in answers.values()} == {"heartbeat"}
    assert {answer.heartbeat.error_code for answer in answers.values()} == {E.NONE}
    assert exchange.messages <= 2
    await exchange.end()


async def test_commits_of_one_message_are_in_the_log_in_its_order_and_in_one_batch(peer: Peer) -> None:
    exchange = GroupExchange(peer.channel)
    await exchange.send(*(commit(number, number % 2, number) for number in range(1, 101)))
    answers = await exchange.receive(100)
    assert {tuple(answer.commit_offsets.error_codes) for answer in answers.values()} == {(E.NONE,)}
    assert await peer.committed("g") == {0: 100, 1: 99}
    batches = [log.appended_batches for log in peer.storage.logs.logs.values() if log.topic == "__consumer_offsets"]
    assert sorted(batches) == [0, 1]


async def kept(exchange: GroupExchange, *commits: pb.GroupCall) -> None:
    """Commit, and return when the commits are accepted and may be repeated by their offsets."""
    await exchange.send(commit(1, 0, 0))  # makes the topic of offsets: a change of the topics
    await exchange.receive(1)
    for call in commits:
        call.commit_offsets.will_repeat = True
    await exchange.send(*commits)
    answers = await exchange.receive(len(commits))
    assert all(answer.may_repeat and not any(answer.commit_offsets.error_codes) for answer in answers.values())


BOTH = [pb.CommitOffsetsRequest.Offset(topic="orders", partition=partition) for partition in (1, 2)]


async def test_commits_are_repeated_by_their_offsets_alone(peer: Peer) -> None:
    exchange = GroupExchange(peer.channel)
    await kept(exchange, commit(2, 0, 5), commit(3, 0, 0, group_id="h", offsets=BOTH))
    await exchange.send(commit(4, 1, 7))
    assert not (await exchange.receive(1))[4].may_repeat
    await exchange.repeat((5, 2, (8,)), (6, 3, (9, 10)), (7, 2, (11,)), (8, 4, (12,)))
    assert (sorted(exchange.done), exchange.refused) == ([5, 6, 7], [8])
    assert await peer.committed("g") == {0: 11, 1: 7}
    assert await peer.committed("h") == {1: 9, 2: 10}
    await exchange.forget(3)
    await exchange.repeat((9, 3, (1, 2)), (10, 2, (13,)))
    assert (exchange.done[3:], exchange.refused[1:]) == ([10], [9])
    await exchange.end()


async def test_a_commit_that_is_not_accepted_as_it_was_has_to_come_whole(peer: Peer) -> None:
    exchange = GroupExchange(peer.channel)
    await kept(exchange, commit(2, 0, 5))
    await exchange.repeat((3, 2, (6,)))
    await peer.member("g")
    await exchange.repeat((4, 2, (7,)), (5, 2, (8,)))
    assert (exchange.done, exchange.refused) == ([3], [4, 5])
    assert await peer.committed("g") == {0: 6}
    await exchange.end()


async def test_a_commit_repeated_with_too_few_offsets_fails_alone(peer: Peer) -> None:
    exchange = GroupExchange(peer.channel)
    await kept(exchange, commit(2, 0, 0, offsets=BOTH), commit(3, 0, 5))
    await exchange.repeat((4, 2, (7,)), (5, 3, (8,)))
    assert (exchange.done, exchange.refused) == ([5], [])
    assert await peer.committed("g") == {0: 8, 1: 0, 2: 0}
    await exchange.end()


async def test_one_call_that_fails_does_not_fail_its_neighbours(peer: Peer) -> None:
    who = await peer.member("m")
    exchange = GroupExchange(peer.channel)
    too_long = pb.CommitOffsetsRequest.Offset(topic="orders", partition=0, offset=1, metadata="x" * 5000)
    unknown_id = pb.CommitOffsetsRequest.Offset(topic_id=b"?" * 16, partition=0, offset=2)
    known = pb.CommitOffsetsRequest.Offset(topic="orders", partition=2, offset=9)
    mixed = [unknown_id, known, too_long]
    await exchange.send(
        commit(1, 0, 5),
        commit(2, 7, 5),
        commit(3, 0, 5, topic="nothing"),
        pb.GroupCall(call_id=4, heartbeat=pb.HeartbeatRequest(group_id="m", member_id="nobody")),
        pb.GroupCall(call_id=5),
        commit(6, 0, 0, group_id="g", offsets=mixed),
        commit(7, 1, 6, group_id="h", generation_id=3, member_id="nobody"),
        beat(8, who),
        pb.GroupCall(call_id=9, consumer_group_heartbeat=pb.ConsumerGroupHeartbeatRequest(group_id="k")),
        commit(10, 1, 6),
    )
    answers = await exchange.receive(10)
    codes = {
        call_id: list(answer.commit_offsets.error_codes)
        for call_id, answer in answers.items()
        if answer.HasField("commit_offsets")
    }
    assert codes == {
        1: [E.NONE],
        2: [E.UNKNOWN_TOPIC_OR_PARTITION],
        3: [E.UNKNOWN_TOPIC_OR_PARTITION],
        6: [E.UNKNOWN_TOPIC_ID, E.NONE, E.OFFSET_METADATA_TOO_LARGE],
        7: [E.ILLEGAL_GENERATION],
        10: [E.NONE],
    }
    assert answers[4].heartbeat.error_code == E.UNKNOWN_MEMBER_ID
    assert answers[5].WhichOneof("answer") is None
    assert answers[8].heartbeat.error_code == E.NONE
    assert answers[9].consumer_group_heartbeat.error_code == E.INVALID_REQUEST
    assert await peer.committed("g") == {0: 5, 1: 6, 2: 9}


async def test_topics_are_named_by_id(peer: Peer) -> None:
    registered = peer.storage.topic_registry.get("orders")
    assert registered is not None
    by_id = pb.CommitOffsetsRequest.Offset(topic_id=registered.id, partition=1, offset=4)
    exchange = GroupExchange(peer.channel)
    await exchange.send(commit(1, 0, 0, offsets=[by_id]))
    assert list((await exchange.receive(1))[1].commit_offsets.error_codes) == [E.NONE]
    assert await peer.committed("g") == {1: 4}


async def test_a_gateway_that_dies_takes_no_member_with_it(peer: Peer) -> None:
    who = await peer.member("g")
    heartbeat = pb.HeartbeatRequest(**who)
    first = GroupExchange(peer.channel)
    assert (await first.ask(heartbeat=heartbeat)).error_code == E.NONE
    await first.send(*(commit(number, 0, number, group_id="simple") for number in range(1, 50)))
    first.cut()
    second = GroupExchange(peer.channel)
    assert (await second.ask(heartbeat=heartbeat)).error_code == E.NONE
    assert (await second.ask(commit_offsets=commit(1, 0, 3, **who).commit_offsets)).error_codes == [E.NONE]
    listed = await peer.groups.ListGroups(pb.ListGroupsRequest(states=["Stable"]))
    assert [each.group_id for each in listed.groups] == ["g"]


async def test_a_heartbeat_is_repeated_until_its_group_changes(peer: Peer) -> None:
    who, other = await peer.member("g"), await peer.member("h")
    exchange = GroupExchange(peer.channel)
    await exchange.send(
        beat(7, who),
        beat(8, other),
        pb.GroupCall(call_id=9, heartbeat=pb.HeartbeatRequest(group_id="g", member_id="nobody")),
        commit(10, 0, 5),
    )
    answers = await exchange.receive(4)
    assert {call_id for call_id, answer in answers.items() if answer.may_repeat} == {7, 8}
    assert await exchange.repeat((11, 7, ()), (12, 8, ()), (13, 9, ()), (14, 99, ()), (15, 7, ())) == {}
    assert (exchange.done, exchange.refused) == ([11, 12, 15], [13, 14])

    await peer.leave(who)
    assert not await exchange.beat(16, 7)
    assert await exchange.beat(17, 8)
    assert (await exchange.ask(heartbeat=pb.HeartbeatRequest(**who))).error_code == E.UNKNOWN_MEMBER_ID
    await exchange.end()


async def test_a_heartbeat_that_is_forgotten_or_of_another_stream_has_to_come_whole(peer: Peer) -> None:
    who = await peer.member("g")
    first, second = GroupExchange(peer.channel), GroupExchange(peer.channel)
    await first.send(beat(1, who), beat(2, who))
    assert (await first.receive(2))[1].may_repeat
    await first.forget(1)
    assert [await first.beat(3, 1), await first.beat(4, 2), await second.beat(5, 2)] == [False, True, False]


async def test_a_repeated_heartbeat_that_fails_fails_alone(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = GroupExchange(peer.channel)
    await kept(exchange, commit(2, 0, 5, group_id="h"))
    await exchange.send(beat(7, await peer.member("g")))
    assert (await exchange.receive(1))[7].may_repeat
    monkeypatch.setattr(ClassicRepeatableHeartbeat, "holds", Mock(side_effect=ValueError("a fault of ours")))
    answers = await exchange.repeat((20, 7, ()), (21, 2, (8,)))
    assert answers == {20: pb.GroupAnswer(call_id=20)}
    assert exchange.done == [21]


@contextlib.asynccontextmanager
async def two_are_kept(peer: Peer, tmp_path: Path) -> AsyncIterator[GroupExchange]:
    """Open a stream on which no more commits may be repeated."""
    server = rpc.server()
    handler = group_stream(peer.storage.groups, repeats_max=2)
    server.add("millrace.v1.Groups", {"Exchange": handler})
    server.listen(f"unix:{tmp_path}/small.sock")
    await server.start()
    channel = rpc.channel(f"unix:{tmp_path}/small.sock")
    yield GroupExchange(channel)
    await channel.close()
    await server.stop(0)


async def test_of_more_heartbeats_than_are_kept_the_oldest_has_to_come_whole(peer: Peer, tmp_path: Path) -> None:
    who = await peer.member("g")
    async with two_are_kept(peer, tmp_path) as exchange:
        await exchange.send(*(beat(number, who) for number in (1, 2, 3)))
        await exchange.receive(3)
        await exchange.repeat((4, 1, ()), (5, 2, ()), (6, 3, ()))
        assert (exchange.done, exchange.refused) == ([5, 6], [4])


async def test_of_more_commits_than_are_kept_the_oldest_has_to_come_whole(peer: Peer, tmp_path: Path) -> None:
    async with two_are_kept(peer, tmp_path) as exchange:
        await kept(exchange, commit(2, 0, 5), commit(3, 1, 5))
        await kept(exchange, commit(4, 2, 5))
        await exchange.repeat((5, 2, (6,)), (6, 3, (7,)), (7, 4, (8,)))
        assert (sorted(exchange.done), exchange.refused) == ([6, 7], [5])


def joining(member_id: str) -> pb.ConsumerGroupHeartbeatRequest:
    return pb.ConsumerGroupHeartbeatRequest(
        group_id="k",
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=pb.ConsumerGroupHeartbeatRequest.TopicNames(names=["orders"]),
        owned=pb.ConsumerGroupHeartbeatRequest.Partitions(),
        client_host="/127.0.0.1",
        connection_id=5,
    )


async def beating_consumer(exchange: GroupExchange) -> pb.ConsumerGroupHeartbeatRequest:
    """Send the heartbeat of a member without news, whose call id is 2."""
    joined = await exchange.ask(consumer_group_heartbeat=joining("m1"))
    assert joined.error_code == E.NONE
    same = pb.ConsumerGroupHeartbeatRequest(
        group_id="k", member_id="m1", member_epoch=joined.member_epoch, rebalance_timeout_ms=-1, connection_id=5
    )
    async with asyncio.timeout(60):
        while True:
            await exchange.send(pb.GroupCall(call_id=2, consumer_group_heartbeat=same))
            answer = (await exchange.receive(1))[2]
            assert answer.consumer_group_heartbeat.error_code == E.NONE
            if answer.may_repeat:
                return same


async def test_a_consumer_heartbeat_is_repeated_until_there_is_something_to_tell(peer: Peer) -> None:
    exchange = GroupExchange(peer.channel)
    await beating_consumer(exchange)
    assert await exchange.beat(3, 2)
    await exchange.send(pb.GroupCall(call_id=4, consumer_group_heartbeat=joining("m2")))
    await exchange.receive(1)
    assert not await exchange.beat(5, 2)


async def test_a_consumer_heartbeat_is_repeated_until_a_topic_comes(peer: Peer) -> None:
    exchange = GroupExchange(peer.channel)
    await beating_consumer(exchange)
    await peer.storage.topic_registry.create("payments", 1, {})
    assert not await exchange.beat(3, 2)


async def test_repeated_heartbeats_keep_a_session_and_silence_ends_it(peer: Peer, played: PlayedTime) -> None:
    exchange, _ = await peer.beating()
    for number in range(3):
        await played.go_on(PAUSE_S)
        assert await exchange.beat(10 + number, 7)
    await played.go_on(PAUSE_S)
    assert await peer.state() == "Stable"
    await played.go_on(0.3)
    assert await peer.state() == "Empty"
    assert not await exchange.beat(20, 7)


async def test_no_session_ends_while_its_gateway_stands_still(peer: Peer, played: PlayedTime) -> None:
    exchange, who = await peer.beating()
    await exchange.pulse()
    await played.go_on(STILL_MAX_S - GRACE_S)
    assert peer.members == 1
    await exchange.pulse()
    await played.go_on(GRACE_S - 0.2)
    answer = await exchange.ask(heartbeat=pb.HeartbeatRequest(**who))
    assert answer.error_code == E.NONE


@pytest.mark.parametrize("why", ["the gateway is dead", "the gateway goes on", "its member is silent"])
async def test_a_session_ends_all_the_same_when(peer: Peer, played: PlayedTime, why: str) -> None:
    exchange, _ = await peer.beating()
    await exchange.pulse()
    if why == "the gateway is dead":
        await played.go_on(STILL_MAX_S + STANDSTILL_CHECK_S + GRACE_S + 0.5)
    elif why == "the gateway goes on":
        await played.go_on(20)
        await exchange.pulse()
        for _ in range(4):
            await played.go_on((GRACE_S + 0.5) / 4)
            await exchange.pulse()
    else:
        for _ in range(int(PAUSE_S + 1)):
            await played.go_on(1)
            await exchange.pulse()
    assert peer.members == 0


async def test_a_gateway_without_pulses_is_never_waited_for(peer: Peer, played: PlayedTime) -> None:
    await peer.beating()
    await played.go_on(PAUSE_S + 0.5)
    assert peer.members == 0


async def test_a_gateway_without_repeated_heartbeats_does_not_stand_still(
    peer: Peer, played: PlayedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Mock()
    monkeypatch.setattr(group_stream_module, "_log", log)
    exchange, who = await peer.beating()
    await exchange.pulse()
    await exchange.forget(7)
    await played.go_on(STILL_S + 2 * STANDSTILL_CHECK_S)
    log.warning.assert_not_called()
    await exchange.send(beat(8, who))
    await exchange.receive(1)
    await played.go_on(STILL_S + 2 * STANDSTILL_CHECK_S)
    log.warning.assert_called_once_with("a gateway stands still", heartbeats=1)


async def test_a_stream_without_repeated_heartbeats_needs_no_timer() -> None:
    loop = asyncio.get_running_loop()
    looks: list[float] = []

    class Loop:
        def __getattr__(self, name: str) -> object:
            return getattr(loop, name)

        def call_at(self, when: float, *_: object) -> asyncio.Handle:
            looks.append(when)
            return loop.call_at(when, lambda: None)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio, "get_running_loop", Loop)
        service = Mock()
        exchange = group_stream_module._Exchange(cast("Any", Mock()), service, 10)
    assert looks == []
    service.heartbeat.return_value = Mock(spec=ClassicRepeatableHeartbeat)
    exchange._take(beat(1, {}))
    exchange._take(beat(2, {}))
    assert len(looks) == 1
    exchange._heartbeats.clear()
    exchange._check_for_standstill()
    assert len(looks) == 1
    exchange._take(beat(3, {}))
    assert len(looks) == 2
