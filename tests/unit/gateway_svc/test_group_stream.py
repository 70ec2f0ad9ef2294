"""Heartbeats and commits on their way to storage, played by a real gRPC server that answers as it is told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker_contract import groups_pb2 as pb
from gateway_svc.group_calls import LikeCommit, Promise
from gateway_svc.group_stream import TOUCH_S, TRUST_S, GroupStream
from gateway_svc.metrics import GatewayMetrics
from service_chassis import rpc

pytestmark = pytest.mark.event_loops("uvloop")


class Storage:
    """Keeps the messages that come, as lists of calls; they are answered by `answer`, or broken off by `stop`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.messages: asyncio.Queue[list[pb.GroupCall]] = asyncio.Queue()
        #: What messages say besides: ids of repeats, and of what may be forgotten.
        self.repeats: asyncio.Queue[tuple[list[int], list[int]]] = asyncio.Queue()
        #: Commits that are said in short: call id, whom it is like, offsets.
        self.again: asyncio.Queue[list[tuple[int, int, list[int]]]] = asyncio.Queue()

    async def start(self) -> None:
        self._server = rpc.server()
        handler = grpc.stream_stream_rpc_method_handler(
            self._exchange, pb.GroupCalls.FromString, pb.GroupAnswers.SerializeToString
        )
        service = grpc.method_handlers_generic_handler("millrace.v1.Groups", {"Exchange": handler})
        self._server.add_generic_rpc_handlers((service,))
        rpc.listen(self._server, self.address)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _exchange(self, _requests: Any, context: Any) -> None:
        self._context = context
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.calls:
                self.messages.put_nowait(list(message.calls))
            if message.again:
                offsets = iter(message.again_offsets)
                rows = zip(message.again, message.again_like, message.again_counts, strict=True)
                self.again.put_nowait(
                    [(call_id, like, list(itertools.islice(offsets, count))) for call_id, like, count in rows]
                )
            if message.repeats or message.forgotten:
                self.repeats.put_nowait((list(message.repeats), list(message.forgotten)))

    async def message(self) -> list[pb.GroupCall]:
        return await asyncio.wait_for(self.messages.get(), 10)

    async def repeated(self) -> tuple[list[int], list[int]]:
        return await asyncio.wait_for(self.repeats.get(), 10)

    async def said_again(self) -> list[tuple[int, int, list[int]]]:
        return await asyncio.wait_for(self.again.get(), 10)

    async def say(self, **message: Any) -> None:
        await self._context.write(pb.GroupAnswers(**message))

    async def answer(self, *answers: pb.GroupAnswer) -> None:
        await self._context.write(pb.GroupAnswers(answers=answers))


class Members:
    """Calls them all, and keeps what each is answered."""

    def __init__(self, stream: GroupStream) -> None:
        self._stream = stream
        self.answers: dict[str, Any] = {}
        self._came = asyncio.Event()

    def _answered(self, member_id: str, answer: Any) -> None:
        assert member_id not in self.answers, "answered twice"
        self.answers[member_id] = answer
        self._came.set()

    def heartbeat(self, member_id: str) -> None:
        request = pb.HeartbeatRequest(member_id=member_id)
        self._stream.heartbeat(request, lambda answer: self._answered(member_id, answer))

    def commit(self, member_id: str, *offsets: int) -> None:
        wanted = [pb.CommitOffsetsRequest.Offset(offset=offset) for offset in offsets]
        request = pb.CommitOffsetsRequest(member_id=member_id, offsets=wanted)
        self._stream.commit_offsets(request, lambda answer: self._answered(member_id, answer))

    def consumer_heartbeat(self, member_id: str) -> None:
        request = pb.ConsumerGroupHeartbeatRequest(member_id=member_id)
        self._stream.consumer_group_heartbeat(request, lambda answer: self._answered(member_id, answer))

    async def all_answered(self, *member_ids: str) -> None:
        async with asyncio.timeout(10):
            while not self.answers.keys() >= set(member_ids):
                self._came.clear()
                await self._came.wait()


def who(message: list[pb.GroupCall]) -> list[str]:
    return [getattr(call, call.WhichOneof("call")).member_id for call in message]


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    made = Storage(f"unix:{tmp_path}/storage.sock")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def stream(storage: Storage) -> AsyncIterator[GroupStream]:
    channel = rpc.channel(storage.address)
    made = GroupStream(channel, GatewayMetrics())
    yield made
    await made.close()
    await channel.close()


@pytest.fixture
async def members(stream: GroupStream, storage: Storage) -> Members:
    """With a stream that is up, over which something has just left."""
    made = Members(stream)
    made.heartbeat("first")
    assert who(await storage.message()) == ["first"]
    return made


async def test_what_waits_leaves_in_one_message_in_order(members: Members, storage: Storage) -> None:
    names = [f"m{number}" for number in range(300)]
    for name in names[:-1]:
        members.heartbeat(name)
    members.commit(names[-1], 7)
    assert who(await storage.message()) == names


async def test_heartbeats_that_follow_each_other_gather(members: Members, storage: Storage) -> None:
    for number in range(20):
        members.heartbeat(f"m{number}")
        await asyncio.sleep(0)
    told = [who(await storage.message())]
    while sum(map(len, told)) < 20:  # on a machine that stands still meanwhile
        told.append(who(await storage.message()))
    assert [each for message in told for each in message] == [f"m{number}" for number in range(20)]
    assert len(told) < 5


async def test_answers_come_in_any_order_and_one_failure_is_one_calls_only(members: Members, storage: Storage) -> None:
    members.consumer_heartbeat("c")
    members.commit("a", 1, 2)
    members.heartbeat("b")
    joined, committed, beat = await storage.message()
    await storage.answer(
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
    stream: GroupStream, members: Members, storage: Storage
) -> None:
    def fails(_: pb.HeartbeatResponse) -> None:
        raise ValueError("the client is gone")

    stream.heartbeat(pb.HeartbeatRequest(member_id="x"), fails)
    members.commit("a", 1)
    first, second = await storage.message()
    await storage.answer(
        pb.GroupAnswer(call_id=first.call_id, heartbeat=pb.HeartbeatResponse()),
        pb.GroupAnswer(call_id=second.call_id, commit_offsets=pb.CommitOffsetsResponse(error_codes=[0])),
    )
    await members.all_answered("a")
    assert members.answers == {"a": pb.CommitOffsetsResponse(error_codes=[0])}


async def test_what_may_be_said_twice_is_said_again_in_order(members: Members, storage: Storage) -> None:
    members.commit("sent", 1)
    members.consumer_heartbeat("unknown")
    members.commit("sent too", 2)
    sent = [*await storage.message()]
    while len(sent) < 3:
        sent += await storage.message()
    assert who(sent) == ["sent", "unknown", "sent too"]
    await storage.stop()
    await members.all_answered("unknown")
    assert members.answers == {"unknown": pb.ConsumerGroupHeartbeatResponse(error_code=15)}
    members.heartbeat("not sent yet")
    await storage.start()
    again = await storage.message()
    assert who(again) == ["first", "sent", "sent too", "not sent yet"]
    await storage.answer(pb.GroupAnswer(call_id=again[1].call_id, commit_offsets=pb.CommitOffsetsResponse()))
    await members.all_answered("sent")
    assert members.answers.keys() == {"unknown", "sent"}


async def test_heartbeats_of_the_consumer_protocol_do_not_wait_for_storage(members: Members, storage: Storage) -> None:
    members.consumer_heartbeat("sent")
    assert who(await storage.message()) == ["sent"]
    await storage.stop()
    await members.all_answered("sent")
    members.consumer_heartbeat("while it is away")  # what it would change its client may not wait to hear
    assert members.answers == dict.fromkeys(
        ("sent", "while it is away"), pb.ConsumerGroupHeartbeatResponse(error_code=15)
    )
    await storage.start()
    assert who(await storage.message()) == ["first"]


async def test_what_has_no_answer_when_the_gateway_stops_is_answered(
    stream: GroupStream, members: Members, storage: Storage
) -> None:
    members.commit("sent", 1)
    await storage.message()
    members.heartbeat("not sent")
    await stream.close()
    members.heartbeat("too late")
    assert members.answers == {
        "first": pb.HeartbeatResponse(error_code=15),
        "sent": pb.CommitOffsetsResponse(error_codes=[15]),
        "not sent": pb.HeartbeatResponse(error_code=15),
        "too late": pb.HeartbeatResponse(error_code=15),
    }


class Beating:
    """Members whose heartbeats were answered with a promise."""

    def __init__(self, stream: GroupStream, storage: Storage) -> None:
        self._stream, self._storage = stream, storage

    async def ask(self, group_id: str = "g") -> tuple[Promise, int, asyncio.Event]:
        """A heartbeat that is not answered yet: its promise, its call id, and what is set by its answer."""
        answered = asyncio.Event()
        request = pb.HeartbeatRequest(group_id=group_id, member_id="m")
        promise = self._stream.heartbeat(request, lambda _: answered.set())
        assert promise is not None
        (call,) = await self._storage.message()
        return promise, call.call_id, answered

    async def begin(self, group_id: str = "g", *, may_repeat: bool = True) -> tuple[Promise, int]:
        promise, call_id, answered = await self.ask(group_id)
        assert not promise()  # before it is answered
        await self._storage.answer(
            pb.GroupAnswer(call_id=call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=may_repeat)
        )
        await asyncio.wait_for(answered.wait(), 10)
        return promise, call_id


@pytest.fixture
def beating(members: Members, stream: GroupStream, storage: Storage) -> Beating:
    del members  # for the stream that is up
    return Beating(stream, storage)


async def ended(promise: Promise) -> None:
    """Waits until it is."""
    async with asyncio.timeout(10):
        while promise.holds:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_promise_is_kept_here_and_storage_told_who_was_heard(beating: Beating, storage: Storage) -> None:
    (one, first), (other, second) = await beating.begin(), await beating.begin("h")
    assert [one(), other(), one()] == [True, True, True]
    repeats, forgotten = await storage.repeated()
    assert (sorted(repeats), forgotten) == ([first, second], [])
    await storage.say(ended=[first, 12345])
    await ended(one)
    assert [one(), other()] == [False, True]
    assert await storage.repeated() == ([second], [first])


async def test_what_ended_a_promise_is_told_to_nobody_before(
    beating: Beating, stream: GroupStream, storage: Storage
) -> None:
    promise, call_id = await beating.begin()
    seen: list[bool] = []
    stream.consumer_group_heartbeat(pb.ConsumerGroupHeartbeatRequest(), lambda _: seen.append(promise()))
    (call,) = await storage.message()
    answer = pb.GroupAnswer(call_id=call.call_id, consumer_group_heartbeat=pb.ConsumerGroupHeartbeatResponse())
    assert promise()
    await storage.say(answers=[answer], ended=[call_id])
    await ended(promise)
    assert seen == [False]


async def test_without_a_promise_it_comes_whole(beating: Beating) -> None:
    promise, _ = await beating.begin(may_repeat=False)
    assert not promise()


async def test_promises_of_a_storage_that_is_not_heard_are_not_used(beating: Beating, storage: Storage) -> None:
    """Until it is heard again."""
    promise, call_id = await beating.begin()
    assert promise()
    assert await storage.repeated() == ([call_id], [])
    async with asyncio.timeout(10):
        while promise():  # noqa: ASYNC110
            await asyncio.sleep(TRUST_S / 10)
    assert promise.holds
    await beating.begin()
    assert promise()


async def test_storage_that_has_heard_who_was_heard_lives(beating: Beating, storage: Storage) -> None:
    promise, call_id = await beating.begin()
    for _ in range(round(1.5 * TRUST_S / TOUCH_S)):
        assert promise()
        assert await storage.repeated() == ([call_id], [])
        await storage.say(heard=1)
        await asyncio.sleep(0.01)


async def test_promises_end_with_the_stream(beating: Beating, storage: Storage) -> None:
    forgotten, _ = await beating.begin()
    promise, _ = await beating.begin()
    assert promise()
    forgotten.forget()
    await storage.stop()
    await ended(promise)
    promise.forget()
    await storage.start()
    assert who(await storage.message()) == ["first"]
    assert storage.repeats.empty()  # of what the stream before knew


async def test_storage_is_told_what_it_may_forget_behind_what_was_heard(
    members: Members, beating: Beating, storage: Storage
) -> None:
    promise, call_id = await beating.begin()
    assert promise()
    promise.forget()
    promise.forget()
    assert not promise()
    members.commit("a", 1)
    assert await storage.repeated() == ([call_id], [call_id])


async def test_one_forgotten_before_its_answer_is_forgotten_then(
    members: Members, stream: GroupStream, storage: Storage
) -> None:
    promise = stream.heartbeat(pb.HeartbeatRequest(member_id="m"), lambda _: members.commit("a", 1))
    assert promise is not None
    promise.forget()
    (call,) = await storage.message()
    await storage.answer(pb.GroupAnswer(call_id=call.call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=True))
    assert await storage.repeated() == ([], [call.call_id])
    assert not promise()


@pytest.mark.parametrize("groups", [["g", "h"], None])
async def test_doubted_promises_are_not_used(beating: Beating, stream: GroupStream, groups: list[str] | None) -> None:
    (doubted, _), (other, _) = await beating.begin("g"), await beating.begin("i")
    stream.doubt(groups)
    assert [doubted(), other()] == [False, groups is not None]
    again, _ = await beating.begin("g")
    assert again()


async def test_what_was_asked_before_the_doubt_is_not_promised(
    beating: Beating, stream: GroupStream, storage: Storage
) -> None:
    promise, call_id, answered = await beating.ask()
    stream.doubt(["g"])
    await storage.answer(pb.GroupAnswer(call_id=call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=True))
    await asyncio.wait_for(answered.wait(), 10)
    assert not promise()
    await beating.begin()
    assert await storage.repeated() == ([], [call_id])


async def test_what_storage_does_not_answer_fails_in_time_and_may_be_answered_too_late(storage: Storage) -> None:
    channel = rpc.channel(storage.address)
    stream = GroupStream(channel, GatewayMetrics(), wait_s=0.3)
    members = Members(stream)
    members.heartbeat("early")
    (early,) = await storage.message()
    await asyncio.sleep(0.2)
    members.commit("late", 1, 2)
    (late,) = await storage.message()
    await members.all_answered("early")
    assert members.answers == {"early": pb.HeartbeatResponse(error_code=15)}
    await members.all_answered("early", "late")
    assert members.answers["late"] == pb.CommitOffsetsResponse(error_codes=[15, 15])
    await storage.answer(
        pb.GroupAnswer(call_id=early.call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=True),
        pb.GroupAnswer(call_id=late.call_id, commit_offsets=pb.CommitOffsetsResponse()),
    )
    members.heartbeat("next")
    assert who(await storage.message()) == ["next"]
    await members.all_answered("next")
    members.heartbeat("last")
    assert await storage.repeated() == ([], [early.call_id])
    await stream.close()
    await channel.close()


class Committing:
    """Clients whose commits were accepted and may be said again."""

    def __init__(self, stream: GroupStream, storage: Storage) -> None:
        self._stream, self._storage = stream, storage
        #: What each is answered, by its first offset; a whole commit's too.
        self.answers: dict[int, list[int]] = {}
        self._came = asyncio.Event()

    def _answered(self, name: int, codes: Sequence[int]) -> None:
        assert name not in self.answers, "answered twice"
        self.answers[name] = list(codes)
        self._came.set()

    def ask(self, *offsets: int) -> LikeCommit | None:
        rows = [pb.CommitOffsetsRequest.Offset(offset=offset) for offset in offsets]
        request = pb.CommitOffsetsRequest(member_id="m", offsets=rows, will_repeat=True)
        return self._stream.commit_offsets(request, lambda answer: self._answered(offsets[0], answer.error_codes))

    async def begin(self, *offsets: int, may_repeat: bool = True) -> tuple[LikeCommit, int]:
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

    def say(self, like: LikeCommit, *offsets: int) -> bool:
        return like(offsets, lambda codes: self._answered(offsets[0], codes))

    async def answered(self, *names: int) -> None:
        async with asyncio.timeout(10):
            while not self.answers.keys() >= set(names):
                self._came.clear()
                await self._came.wait()


@pytest.fixture
def committing(members: Members, stream: GroupStream, storage: Storage) -> Committing:
    del members  # for the stream that is up
    return Committing(stream, storage)


async def test_commits_said_again_are_told_by_their_offsets_and_answered_by_their_ids(
    committing: Committing, storage: Storage
) -> None:
    (one, first), (both, second) = await committing.begin(1), await committing.begin(2, 20)
    assert [committing.say(one, 3), committing.say(both, 4, 40), committing.say(one, 5)] == [True] * 3
    said = await storage.said_again()
    assert [each[1:] for each in said] == [(first, [3]), (second, [4, 40]), (first, [5])]
    failed = pb.CommitOffsetsResponse(error_codes=[16, 16])
    await storage.say(
        committed=[said[2][0], 12345], answers=[pb.GroupAnswer(call_id=said[1][0], commit_offsets=failed)]
    )
    await storage.say(answers=[pb.GroupAnswer(call_id=said[0][0])])  # it failed by a fault of storage's
    await committing.answered(3, 4, 5)
    assert committing.answers == {1: [0], 2: [0, 0], 3: [15], 4: [16, 16], 5: []}


async def test_what_storage_does_not_let_say_again_comes_whole(committing: Committing, storage: Storage) -> None:
    not_let, _ = await committing.begin(1, may_repeat=False)
    assert not committing.say(not_let, 2)
    like, _ = await committing.begin(3, 30)
    assert committing.say(like, 4, 40)
    ((call_id, _, _),) = await storage.said_again()
    await storage.say(refused=[call_id, 12345])
    (call,) = await storage.message()
    assert call.call_id == call_id
    assert [each.offset for each in call.commit_offsets.offsets] == [4, 40]
    assert (call.commit_offsets.member_id, call.commit_offsets.will_repeat) == ("m", False)
    assert not committing.say(like, 5, 50)
    outcome = pb.CommitOffsetsResponse(error_codes=[0, 3])
    await storage.answer(pb.GroupAnswer(call_id=call_id, commit_offsets=outcome))
    await committing.answered(4)
    assert committing.answers[4] == [0, 3]


async def test_the_next_stream_is_told_whole_what_the_last_was_told_in_short(
    committing: Committing, storage: Storage
) -> None:
    like, _ = await committing.begin(1, 10)
    assert committing.say(like, 2, 20)
    await storage.said_again()
    await storage.stop()
    await storage.start()
    _, call = await storage.message()
    assert [each.offset for each in call.commit_offsets.offsets] == [2, 20]
    assert not committing.say(like, 3, 30)
    like.forget()  # of which this storage knows nothing
    again, call_id = await committing.begin(4)
    await storage.answer(
        pb.GroupAnswer(call_id=call.call_id, commit_offsets=pb.CommitOffsetsResponse(error_codes=[0, 0]))
    )
    await committing.answered(2)
    assert storage.repeats.empty()
    assert committing.say(again, 5)
    assert [each[1:] for each in await storage.said_again()] == [(call_id, [5])]


async def test_storage_is_told_which_commits_are_not_said_again(
    committing: Committing, members: Members, storage: Storage
) -> None:
    kept, call_id = await committing.begin(1)
    kept.forget()
    assert not committing.say(kept, 2)
    early = committing.ask(3)
    assert early is not None
    early.forget()
    assert await storage.repeated() == ([], [call_id])
    (call,) = await storage.message()
    await storage.answer(
        pb.GroupAnswer(call_id=call.call_id, commit_offsets=pb.CommitOffsetsResponse(error_codes=[0]), may_repeat=True)
    )
    await committing.answered(3)
    members.commit("next", 1)
    assert await storage.repeated() == ([], [call.call_id])
