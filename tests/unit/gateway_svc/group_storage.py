"""A real gRPC server in the part of storage, which answers when the test says so, and members that call it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from broker_contract import groups_pb2 as pb
from gateway_svc.storage.group_stream import GroupStream
from service_chassis import rpc
from service_chassis.grpc_server import ServerCall, stream


class GroupStorage:
    """A server that keeps the messages as lists of calls; `answer` answers them, `stop` breaks them off."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.messages: asyncio.Queue[list[pb.GroupCall]] = asyncio.Queue()
        #: Call ids of calls that storage may forget.
        self.forgotten: asyncio.Queue[list[int]] = asyncio.Queue()
        #: Repeated calls: call id, id of the call that it is like, offsets.
        self.again: asyncio.Queue[list[tuple[int, int, list[int]]]] = asyncio.Queue()

        #: Number of messages that show that the gateway is alive: all of them.
        self.pulses = 0

    async def start(self) -> None:
        self._server = rpc.server()
        exchange = stream(self._exchange, pb.GroupCalls.FromString, pb.GroupAnswers.SerializeToString)
        self._server.add("millrace.v1.Groups", {"Exchange": exchange})
        self._server.listen(self.address)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _exchange(self, context: ServerCall) -> None:
        self._context = context
        while (message := await context.read()) is not None:
            self.pulses += message.pulses
            if message.calls:
                self.messages.put_nowait(list(message.calls))
            if message.again:
                offsets = iter(message.again_offsets)
                rows = zip(message.again, message.again_like, message.again_counts, strict=True)
                self.again.put_nowait(
                    [(call_id, like, list(itertools.islice(offsets, count))) for call_id, like, count in rows]
                )
            if message.forgotten:
                self.forgotten.put_nowait(list(message.forgotten))

    async def message(self) -> list[pb.GroupCall]:
        return await asyncio.wait_for(self.messages.get(), 60)

    async def next_forgotten(self) -> list[int]:
        return await asyncio.wait_for(self.forgotten.get(), 60)

    async def said_again(self) -> list[tuple[int, int, list[int]]]:
        return await asyncio.wait_for(self.again.get(), 60)

    async def say(self, **message: Any) -> None:
        await self._context.write(pb.GroupAnswers(**message))

    async def answer(self, *answers: pb.GroupAnswer) -> None:
        await self._context.write(pb.GroupAnswers(answers=answers))


class Members:
    """Members that call the stream; their answers are kept."""

    def __init__(self, stream: GroupStream) -> None:
        self._stream = stream
        self.answers: dict[str, Any] = {}
        #: Whether the clients that commit have kept their connections.
        self.are_there = True
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
        self._stream.commit_offsets(request, lambda answer: self._answered(member_id, answer), lambda: self.are_there)

    def consumer_heartbeat(self, member_id: str) -> None:
        request = pb.ConsumerGroupHeartbeatRequest(member_id=member_id)
        self._stream.consumer_group_heartbeat(request, lambda answer: self._answered(member_id, answer))

    async def all_answered(self, *member_ids: str) -> None:
        async with asyncio.timeout(60):
            while not self.answers.keys() >= set(member_ids):
                self._came.clear()
                await self._came.wait()


class Clock:
    """A group stream's time, which passes when a test says so: the part of an event loop that the stream asks."""

    def __init__(self, stream: GroupStream) -> None:
        #: The time: so late that no call waits for others.
        self._now = asyncio.get_running_loop().time() + 1
        self._timers: list[Timer] = []
        self.call_soon = asyncio.get_running_loop().call_soon
        stream._loop = self  # type: ignore[assignment]

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        self._timers.append(Timer(when, callback))
        return self._timers[-1]

    def go_on(self, seconds: float) -> None:
        until = self._now + seconds
        while due := [timer for timer in self._timers if timer.when <= until]:
            timer = min(due, key=lambda timer: timer.when)
            self._timers.remove(timer)
            self._now = max(self._now, timer.when)
            if not timer.is_cancelled:
                timer.callback()
        self._now = until


class Timer:
    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


async def at_rest(stream: GroupStream) -> None:
    """Wait until all calls have left."""
    async with asyncio.timeout(60):
        while stream._unsent or (stream._stream_call is not None and stream._stream_call.is_due):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def who(message: list[pb.GroupCall]) -> list[str]:
    return [getattr(call, call.WhichOneof("call")).member_id for call in message]
