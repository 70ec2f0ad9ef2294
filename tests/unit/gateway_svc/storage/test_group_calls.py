"""Repeated calls: heartbeats with the same bytes as the last, and commits with other offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from broker_contract import groups_pb2 as pb
from gateway_svc.storage.group_calls import RemoteRepeatableCommit, RemoteRepeatableHeartbeat
from gateway_svc.storage.group_stream import GATHER_S, PULSE_S, GroupStream

from tests.unit.gateway_svc.group_storage import Clock, GroupStorage, Members, at_rest

pytestmark = pytest.mark.event_loops("uvloop")

KINDS = ["heartbeat", "consumer_group_heartbeat"]
#: Kafka's REBALANCE_IN_PROGRESS.
REBALANCE = 27


class Beating:
    """Members whose heartbeats may be repeated."""

    def __init__(self, stream: GroupStream, storage: GroupStorage, clock: Clock) -> None:
        self._stream, self._storage, self._clock = stream, storage, clock
        #: The answers to repeated heartbeats, in their order.
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    async def begin(self, kind: str = "heartbeat", *, may_repeat: bool = True) -> tuple[RemoteRepeatableHeartbeat, int]:
        """Send a heartbeat, have it answered, and return it with its call id."""
        answered = asyncio.Event()
        self._clock.go_on(GATHER_S)  # it leaves at once
        request = pb.HeartbeatRequest if kind == "heartbeat" else pb.ConsumerGroupHeartbeatRequest
        like = getattr(self._stream, kind)(request(member_id="m"), lambda _: answered.set())
        (call,) = await self._storage.message()
        assert not self.repeat(like)  # before it is answered
        await self._storage.answer(answer_to(call.call_id, kind, may_repeat=may_repeat))
        await asyncio.wait_for(answered.wait(), 60)
        return like, call.call_id

    def repeat(self, like: RemoteRepeatableHeartbeat) -> bool:
        self._clock.go_on(GATHER_S)
        return like(self.answers.put_nowait)

    async def next_answer(self) -> Any:
        return await asyncio.wait_for(self.answers.get(), 60)


def answer_to(call_id: int, kind: str, error_code: int = 0, *, may_repeat: bool = False) -> pb.GroupAnswer:
    response = pb.HeartbeatResponse if kind == "heartbeat" else pb.ConsumerGroupHeartbeatResponse
    return pb.GroupAnswer(call_id=call_id, may_repeat=may_repeat, **{kind: response(error_code=error_code)})


@pytest.fixture
def beating(members: Members, group_stream: GroupStream, group_storage: GroupStorage, clock: Clock) -> Beating:
    del members  # for the stream that is up
    return Beating(group_stream, group_storage, clock)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_heartbeat_is_repeated_by_an_id_and_answered_by_one(
    beating: Beating, group_storage: GroupStorage, kind: str
) -> None:
    like, first = await beating.begin(kind)
    assert beating.repeat(like)
    ((second, *rest),) = await group_storage.said_again()
    assert rest == [first, []]
    await group_storage.say(done=[second, 12345])
    assert await beating.next_answer() is None
    assert beating.repeat(like)
    ((third, *rest),) = await group_storage.said_again()
    assert rest == [first, []]
    await group_storage.say(answers=[pb.GroupAnswer(call_id=third)])  # it failed by a fault of storage's
    assert (await beating.next_answer()).error_code == 15


async def test_repeated_heartbeats_are_gathered(beating: Beating, group_storage: GroupStorage, clock: Clock) -> None:
    (one, first), (other, second) = await beating.begin(), await beating.begin()
    assert beating.repeat(one)
    assert [like for _, like, _ in await group_storage.said_again()] == [first]  # it leaves at once
    for like in (one, other):
        assert like(beating.answers.put_nowait)
        await asyncio.sleep(0.01)
    assert group_storage.again.empty()
    clock.go_on(GATHER_S)
    assert [like for _, like, _ in await group_storage.said_again()] == [first, second]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_heartbeat_that_storage_does_not_repeat_is_sent_whole(
    beating: Beating, group_storage: GroupStorage, kind: str
) -> None:
    not_kept, _ = await beating.begin(kind, may_repeat=False)
    assert not beating.repeat(not_kept)
    like, _ = await beating.begin(kind)
    assert beating.repeat(like)
    ((call_id, _, _),) = await group_storage.said_again()
    await group_storage.say(refused=[call_id, 12345])
    (call,) = await group_storage.message()
    assert (call.call_id, call.WhichOneof("call"), getattr(call, kind).member_id) == (call_id, kind, "m")
    assert not beating.repeat(like)
    await group_storage.answer(answer_to(call_id, kind, REBALANCE, may_repeat=True))
    assert (await beating.next_answer()).error_code == REBALANCE
    await beating.begin(kind)
    assert await group_storage.next_forgotten() == [call_id]  # the answer went to a call that nothing repeats


@pytest.mark.parametrize("kind", KINDS)
async def test_a_repeated_heartbeat_outlives_the_stream_as_a_whole_one_does(
    beating: Beating, group_storage: GroupStorage, kind: str
) -> None:
    like, _ = await beating.begin(kind)
    assert beating.repeat(like)
    ((call_id, _, _),) = await group_storage.said_again()
    await group_storage.stop()
    if kind == "consumer_group_heartbeat":
        assert (await beating.next_answer()).error_code == 15
    await group_storage.start()
    sent = await group_storage.message()
    assert [call.call_id for call in sent[1:]] == ([call_id] if kind == "heartbeat" else [])
    assert not beating.repeat(like)
    like.forget()  # of which this storage knows nothing
    await beating.begin(kind)
    assert group_storage.forgotten.empty()


async def test_storage_is_told_which_heartbeats_are_not_repeated(
    beating: Beating, group_stream: GroupStream, group_storage: GroupStorage, clock: Clock
) -> None:
    like, call_id = await beating.begin()
    like.forget()
    like.forget()
    assert not beating.repeat(like)
    clock.go_on(GATHER_S)
    early = group_stream.heartbeat(pb.HeartbeatRequest(member_id="m"), beating.answers.put_nowait)
    assert early is not None
    early.forget()  # before its answer
    assert await group_storage.next_forgotten() == [call_id]
    (call,) = await group_storage.message()
    await group_storage.answer(answer_to(call.call_id, "heartbeat", may_repeat=True))
    await beating.next_answer()
    await beating.begin()
    assert await group_storage.next_forgotten() == [call.call_id]
    assert not beating.repeat(early)


class Committing:
    """Clients whose commits were accepted and may be repeated."""

    def __init__(self, stream: GroupStream, storage: GroupStorage) -> None:
        self._stream, self._storage = stream, storage
        #: The error codes of each answer by the commit's first offset, for whole commits as well.
        self.answers: dict[int, list[int]] = {}
        self._came = asyncio.Event()

    def _answered(self, name: int, codes: Sequence[int]) -> None:
        assert name not in self.answers, "answered twice"
        self.answers[name] = list(codes)
        self._came.set()

    def ask(self, *offsets: int) -> RemoteRepeatableCommit | None:
        rows = [pb.CommitOffsetsRequest.Offset(offset=offset) for offset in offsets]
        request = pb.CommitOffsetsRequest(member_id="m", offsets=rows, will_repeat=True)
        return self._stream.commit_offsets(
            request, lambda answer: self._answered(offsets[0], answer.error_codes), lambda: True
        )

    async def begin(self, *offsets: int, may_repeat: bool = True) -> tuple[RemoteRepeatableCommit, int]:
        like = self.ask(*offsets)
        assert like is not None
        assert not self.say(like, *offsets)  # before it is answered
        (call,) = await self._storage.message()
        await self._storage.answer(
            pb.GroupAnswer(
                call_id=call.call_id,
                commit_offsets=pb.CommitOffsetsResponse(error_codes=[0] * len(offsets)),
                may_repeat=may_repeat,
            )
        )
        await self.answered(offsets[0])
        return like, call.call_id

    def say(self, like: RemoteRepeatableCommit, *offsets: int) -> bool:
        return like(offsets, lambda codes: self._answered(offsets[0], codes))

    async def answered(self, *names: int) -> None:
        async with asyncio.timeout(60):
            while not self.answers.keys() >= set(names):
                self._came.clear()
                await self._came.wait()


@pytest.fixture
def committing(members: Members, group_stream: GroupStream, group_storage: GroupStorage) -> Committing:
    del members  # for the stream that is up
    return Committing(group_stream, group_storage)


async def test_commits_said_again_are_told_by_their_offsets_and_answered_by_their_ids(
    committing: Committing, group_storage: GroupStorage
) -> None:
    (one, first), (both, second) = await committing.begin(1), await committing.begin(2, 20)
    assert [committing.say(one, 3), committing.say(both, 4, 40), committing.say(one, 5)] == [True] * 3
    said = await group_storage.said_again()
    assert [each[1:] for each in said] == [(first, [3]), (second, [4, 40]), (first, [5])]
    failed = pb.CommitOffsetsResponse(error_codes=[16, 16])
    await group_storage.say(
        done=[said[2][0], 12345], answers=[pb.GroupAnswer(call_id=said[1][0], commit_offsets=failed)]
    )
    await group_storage.say(answers=[pb.GroupAnswer(call_id=said[0][0])])  # it failed by a fault of storage's
    await committing.answered(3, 4, 5)
    assert committing.answers == {1: [0], 2: [0, 0], 3: [15], 4: [16, 16], 5: []}


async def test_what_storage_does_not_let_say_again_comes_whole(
    committing: Committing, group_storage: GroupStorage
) -> None:
    not_let, _ = await committing.begin(1, may_repeat=False)
    assert not committing.say(not_let, 2)
    like, _ = await committing.begin(3, 30)
    assert committing.say(like, 4, 40)
    ((call_id, _, _),) = await group_storage.said_again()
    await group_storage.say(refused=[call_id, 12345])
    (call,) = await group_storage.message()
    assert call.call_id == call_id
    assert [each.offset for each in call.commit_offsets.offsets] == [4, 40]
    assert (call.commit_offsets.member_id, call.commit_offsets.will_repeat) == ("m", False)
    assert not committing.say(like, 5, 50)
    outcome = pb.CommitOffsetsResponse(error_codes=[0, 3])
    await group_storage.answer(pb.GroupAnswer(call_id=call_id, commit_offsets=outcome))
    await committing.answered(4)
    assert committing.answers[4] == [0, 3]


async def test_a_commit_that_was_sent_in_short_form_is_not_sent_again(
    committing: Committing, group_storage: GroupStorage
) -> None:
    """Storage may have stored it, and another gateway's commit may have followed."""
    like, _ = await committing.begin(1, 10)
    assert committing.say(like, 2, 20)
    await group_storage.said_again()
    await group_storage.stop()
    await committing.answered(2)
    assert committing.answers[2] == [15, 15]


async def test_the_next_stream_is_told_whole_what_the_last_was_told_in_short(
    committing: Committing, group_storage: GroupStorage
) -> None:
    like, _ = await committing.begin(1, 10)
    assert committing.say(like, 2, 20)
    committing._stream._lost()  # before it has left
    _, call = await group_storage.message()
    assert [each.offset for each in call.commit_offsets.offsets] == [2, 20]
    assert not committing.say(like, 3, 30)
    like.forget()  # of which this storage knows nothing
    again, call_id = await committing.begin(4)
    await group_storage.answer(
        pb.GroupAnswer(call_id=call.call_id, commit_offsets=pb.CommitOffsetsResponse(error_codes=[0, 0]))
    )
    await committing.answered(2)
    assert group_storage.forgotten.empty()
    assert committing.say(again, 5)
    assert [each[1:] for each in await group_storage.said_again()] == [(call_id, [5])]


async def test_storage_is_told_which_commits_are_not_said_again(
    committing: Committing, members: Members, group_storage: GroupStorage
) -> None:
    kept, call_id = await committing.begin(1)
    kept.forget()
    assert not committing.say(kept, 2)
    early = committing.ask(3)
    assert early is not None
    early.forget()
    assert await group_storage.next_forgotten() == [call_id]
    (call,) = await group_storage.message()
    await group_storage.answer(
        pb.GroupAnswer(call_id=call.call_id, commit_offsets=pb.CommitOffsetsResponse(error_codes=[0]), may_repeat=True)
    )
    await committing.answered(3)
    members.commit("next", 1)
    assert await group_storage.next_forgotten() == [call.call_id]


async def test_a_gateway_whose_members_repeat_heartbeats_shows_that_it_is_alive(
    beating: Beating, group_stream: GroupStream, group_storage: GroupStorage, clock: Clock
) -> None:
    like, call_id = await beating.begin()
    before = group_storage.pulses
    for count in range(1, 6):
        clock.go_on(PULSE_S)
        await seen(lambda count=count: group_storage.pulses == before + count)  # type: ignore[misc]
        await at_rest(group_stream)
    like.forget()
    clock.go_on(PULSE_S)
    assert await group_storage.next_forgotten() == [call_id]
    await at_rest(group_stream)
    for _ in range(10):
        clock.go_on(PULSE_S)
        await asyncio.sleep(0.01)
    assert group_storage.pulses <= before + 7, "without such members it is silent"


async def seen(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
