"""Repeatable calls: heartbeats that storage has promised to answer, and commits like the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from broker_contract import groups_pb2 as pb
from gateway_svc.storage.group_calls import RemoteRepeatableCommit, RemoteRepeatableHeartbeat
from gateway_svc.storage.group_stream import ANSWER_AGE_MAX_S, GATHER_S, KEEPALIVE_S, REPORT_S, GroupStream

from tests.unit.gateway_svc.group_storage import Clock, GroupStorage, Members, at_rest, who

pytestmark = pytest.mark.event_loops("uvloop")


class Beating:
    """Members whose heartbeats were answered with a promise."""

    def __init__(self, stream: GroupStream, storage: GroupStorage, clock: Clock) -> None:
        self._stream, self._storage, self._clock = stream, storage, clock

    async def ask(self, group_id: str = "g") -> tuple[RemoteRepeatableHeartbeat, int, asyncio.Event]:
        """Send a heartbeat; return its promise, its call id, and the event that its answer sets."""
        answered = asyncio.Event()
        self._clock.go_on(GATHER_S)  # it leaves at once
        request = pb.HeartbeatRequest(group_id=group_id, member_id="m")
        promise = self._stream.heartbeat(request, lambda _: answered.set())
        assert promise is not None
        (call,) = await self._storage.message()
        return promise, call.call_id, answered

    async def begin(self, group_id: str = "g", *, may_repeat: bool = True) -> tuple[RemoteRepeatableHeartbeat, int]:
        promise, call_id, answered = await self.ask(group_id)
        assert not promise()  # before it is answered
        await self._storage.answer(
            pb.GroupAnswer(call_id=call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=may_repeat)
        )
        await asyncio.wait_for(answered.wait(), 60)
        return promise, call_id


@pytest.fixture
def beating(group_stream: GroupStream, group_storage: GroupStorage, clock: Clock) -> Beating:
    return Beating(group_stream, group_storage, clock)


async def ended(promise: RemoteRepeatableHeartbeat) -> None:
    """Wait until the promise has ended."""
    async with asyncio.timeout(60):
        while promise.holds:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_promise_is_kept_here_and_storage_told_who_was_heard(
    beating: Beating, group_storage: GroupStorage, clock: Clock
) -> None:
    (one, first), (other, second) = await beating.begin(), await beating.begin("h")
    assert [one(), other(), one()] == [True, True, True]
    clock.go_on(REPORT_S)
    repeats, forgotten = await group_storage.repeated()
    assert (sorted(repeats), forgotten) == ([first, second], [])
    await group_storage.say(ended=[first, 12345])
    await ended(one)
    assert [one(), other()] == [False, True]
    clock.go_on(REPORT_S)
    assert await group_storage.repeated() == ([second], [first])


async def test_what_ended_a_promise_is_told_to_nobody_before(
    beating: Beating, group_stream: GroupStream, group_storage: GroupStorage, clock: Clock
) -> None:
    promise, call_id = await beating.begin()
    seen: list[bool] = []
    clock.go_on(GATHER_S)
    group_stream.consumer_group_heartbeat(pb.ConsumerGroupHeartbeatRequest(), lambda _: seen.append(promise()))
    (call,) = await group_storage.message()
    answer = pb.GroupAnswer(call_id=call.call_id, consumer_group_heartbeat=pb.ConsumerGroupHeartbeatResponse())
    assert promise()
    await group_storage.say(answers=[answer], ended=[call_id])
    await ended(promise)
    assert seen == [False]


async def test_without_a_promise_it_comes_whole(beating: Beating) -> None:
    promise, _ = await beating.begin(may_repeat=False)
    assert not promise()


async def test_promises_of_a_storage_that_is_not_heard_are_not_used(
    beating: Beating, group_storage: GroupStorage, clock: Clock
) -> None:
    """They are used again once storage has answered."""
    promise, call_id = await beating.begin()
    assert promise()
    clock.go_on(REPORT_S)
    assert await group_storage.repeated() == ([call_id], [])
    clock.go_on(ANSWER_AGE_MAX_S - REPORT_S - 0.001)
    assert promise()
    clock.go_on(0.002)
    assert not promise()
    assert promise.holds
    await beating.begin()
    assert promise()


async def test_storage_that_has_heard_who_was_heard_lives(
    beating: Beating, members: Members, group_storage: GroupStorage, clock: Clock
) -> None:
    promise, call_id = await beating.begin()
    rounds = round(1.5 * ANSWER_AGE_MAX_S / REPORT_S)
    for number in range(rounds):
        members.commit(f"c{number}", 1)
    commits = await group_storage.message()
    assert len(commits) == rounds
    for commit in commits:
        assert promise()
        clock.go_on(REPORT_S)
        assert await group_storage.repeated() == ([call_id], [])
        # What was asked long ago says little of storage's life; its answer tells that the rest of the message has come.
        answer = pb.GroupAnswer(call_id=commit.call_id, commit_offsets=pb.CommitOffsetsResponse(error_codes=[0]))
        await group_storage.say(heard=1, answers=[answer])
        await members.all_answered(commit.commit_offsets.member_id)


async def test_promises_end_with_the_stream(beating: Beating, group_storage: GroupStorage) -> None:
    forgotten, _ = await beating.begin()
    promise, _ = await beating.begin()
    assert promise()
    forgotten.forget()
    await group_storage.stop()
    await ended(promise)
    promise.forget()
    await group_storage.start()
    assert who(await group_storage.message()) == ["first"]
    assert group_storage.repeats.empty()  # of what the stream before knew


async def test_storage_is_told_what_it_may_forget_behind_what_was_heard(
    members: Members, beating: Beating, group_storage: GroupStorage
) -> None:
    promise, call_id = await beating.begin()
    assert promise()
    promise.forget()
    promise.forget()
    assert not promise()
    members.commit("a", 1)
    assert await group_storage.repeated() == ([call_id], [call_id])


async def test_one_forgotten_before_its_answer_is_forgotten_then(
    members: Members, group_stream: GroupStream, group_storage: GroupStorage, clock: Clock
) -> None:
    promise = group_stream.heartbeat(pb.HeartbeatRequest(member_id="m"), lambda _: members.commit("a", 1))
    assert promise is not None
    promise.forget()
    (call,) = await group_storage.message()
    await group_storage.answer(pb.GroupAnswer(call_id=call.call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=True))
    assert await group_storage.repeated() == ([], [call.call_id])
    assert not promise()


@pytest.mark.parametrize("groups", [["g", "h"], None])
async def test_doubted_promises_are_not_used(
    beating: Beating, group_stream: GroupStream, groups: list[str] | None
) -> None:
    (doubted, _), (other, _) = await beating.begin("g"), await beating.begin("i")
    group_stream.end_promises(groups)
    assert [doubted(), other()] == [False, groups is not None]
    again, _ = await beating.begin("g")
    assert again()


async def test_what_was_asked_before_the_doubt_is_not_promised(
    beating: Beating, group_stream: GroupStream, group_storage: GroupStorage
) -> None:
    promise, call_id, answered = await beating.ask()
    group_stream.end_promises(["g"])
    await group_storage.answer(pb.GroupAnswer(call_id=call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=True))
    await asyncio.wait_for(answered.wait(), 60)
    assert not promise()
    await beating.begin()
    assert await group_storage.repeated() == ([], [call_id])


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
        committed=[said[2][0], 12345], answers=[pb.GroupAnswer(call_id=said[1][0], commit_offsets=failed)]
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
    assert group_storage.repeats.empty()
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
    assert await group_storage.repeated() == ([], [call_id])
    (call,) = await group_storage.message()
    await group_storage.answer(
        pb.GroupAnswer(call_id=call.call_id, commit_offsets=pb.CommitOffsetsResponse(error_codes=[0]), may_repeat=True)
    )
    await committing.answered(3)
    members.commit("next", 1)
    assert await group_storage.repeated() == ([], [call.call_id])


async def test_a_gateway_with_promises_shows_that_it_is_alive(
    beating: Beating, group_stream: GroupStream, group_storage: GroupStorage, clock: Clock
) -> None:
    promise, call_id = await beating.begin()
    before = group_storage.pulses
    for count in range(1, 6):
        clock.go_on(KEEPALIVE_S)
        await seen(lambda count=count: group_storage.pulses == before + count)  # type: ignore[misc]
        await at_rest(group_stream)
    promise.forget()
    clock.go_on(KEEPALIVE_S)
    assert (await group_storage.repeated())[1] == [call_id]
    await at_rest(group_stream)
    for _ in range(10):
        clock.go_on(KEEPALIVE_S)
        await asyncio.sleep(0.01)
    assert group_storage.pulses <= before + 7, "without promises it is silent"


async def seen(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
