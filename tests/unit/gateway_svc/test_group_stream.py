"""Heartbeats and commits on their way to storage, played by a real gRPC server that answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker_contract import groups_pb2 as pb
from gateway_svc.group_stream import GroupStream, StreamRepeat
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
            if message.repeats or message.forgotten:
                self.repeats.put_nowait((list(message.repeats), list(message.forgotten)))

    async def message(self) -> list[pb.GroupCall]:
        return await asyncio.wait_for(self.messages.get(), 10)

    async def repeated(self) -> tuple[list[int], list[int]]:
        return await asyncio.wait_for(self.repeats.get(), 10)

    async def say(self, **repeats: list[int]) -> None:
        await self._context.write(pb.GroupAnswers(**repeats))  # type: ignore[arg-type]

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
    assert who(await storage.message()) == [f"m{number}" for number in range(20)]


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
    """A member whose heartbeat was answered, and may be said again as the id it had."""

    def __init__(self, stream: GroupStream, storage: Storage) -> None:
        self._stream, self._storage = stream, storage
        #: What its repetitions were told.
        self.told: list[bool] = []
        self.came = asyncio.Event()

    async def begin(self, *, may_repeat: bool = True) -> StreamRepeat:
        answered = asyncio.Event()
        repeat = self._stream.heartbeat(pb.HeartbeatRequest(member_id="m"), lambda _: answered.set())
        assert repeat is not None
        assert not repeat.may_be_asked
        (call,) = await self._storage.message()
        await self._storage.answer(
            pb.GroupAnswer(call_id=call.call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=may_repeat)
        )
        await asyncio.wait_for(answered.wait(), 10)
        self.call_id = call.call_id
        return repeat

    def again(self, repeat: StreamRepeat) -> None:
        repeat.ask(self._was_told)

    def _was_told(self, holds: bool) -> None:
        self.told.append(holds)
        self.came.set()

    async def hears(self) -> bool:
        await asyncio.wait_for(self.came.wait(), 10)
        self.came.clear()
        return self.told[-1]


@pytest.fixture
def beating(members: Members, stream: GroupStream, storage: Storage) -> Beating:
    del members  # for the stream that is up
    return Beating(stream, storage)


async def test_a_heartbeat_said_again_goes_as_its_id(beating: Beating, storage: Storage) -> None:
    repeat = await beating.begin()
    for _ in range(2):
        beating.again(repeat)
        assert not repeat.may_be_asked  # before that is answered
        assert await storage.repeated() == ([beating.call_id], [])
        await storage.say(held=[beating.call_id, 12345])
        assert await beating.hears()
    beating.again(repeat)
    await storage.repeated()
    await storage.say(ended=[beating.call_id])
    assert not await beating.hears()
    assert not repeat.may_be_asked
    beating.again(repeat)
    assert beating.told == [True, True, False, False]


async def test_one_that_storage_does_not_allow_is_not_said_again(beating: Beating) -> None:
    repeat = await beating.begin(may_repeat=False)
    assert not repeat.may_be_asked
    beating.again(repeat)
    assert beating.told == [False]


async def test_what_is_said_again_when_the_stream_breaks_has_to_come_whole(beating: Beating, storage: Storage) -> None:
    forgotten = await beating.begin()
    repeat = await beating.begin()
    beating.again(repeat)
    await storage.repeated()
    forgotten.forget()
    await storage.stop()
    assert not await beating.hears()
    assert not repeat.may_be_asked
    repeat.forget()
    await storage.start()
    assert who(await storage.message()) == ["first"]
    assert storage.repeats.empty()  # of what the stream before knew


async def test_storage_is_told_what_it_may_forget(members: Members, beating: Beating, storage: Storage) -> None:
    repeat = await beating.begin()
    repeat.forget()
    repeat.forget()
    assert not repeat.may_be_asked
    members.commit("a", 1)
    assert await storage.repeated() == ([], [beating.call_id])


async def test_one_forgotten_before_its_answer_is_forgotten_then(
    members: Members, stream: GroupStream, storage: Storage
) -> None:
    repeat = stream.heartbeat(pb.HeartbeatRequest(member_id="m"), lambda _: members.commit("a", 1))
    assert repeat is not None
    repeat.forget()
    (call,) = await storage.message()
    await storage.answer(pb.GroupAnswer(call_id=call.call_id, heartbeat=pb.HeartbeatResponse(), may_repeat=True))
    assert await storage.repeated() == ([], [call.call_id])
