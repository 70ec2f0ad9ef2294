"""Calls that are answered by `done`, and the stream that carries them between gateway and storage, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker_contract import groups_pb2
from service_chassis.grpc_call import ClientCall
from service_chassis.grpc_channel import Channel


async def answered(call: Callable[..., None], *arguments: Any, **named: Any) -> Any:
    """Make a call, and return the value that its `done` gets. `done` comes after the positional arguments."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    call(*arguments, answer.set_result, **named)
    return await answer


class GroupExchange:
    """A gateway's end of the stream. Messages are sent in the order of the calls; answers are gathered by call id."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stream: ClientCall | None = None
        self.messages = 0
        #: Repeated calls that are done, and those that have to come whole.
        self.done: list[int] = []
        self.refused: list[int] = []

    async def _opened(self) -> ClientCall:
        if self._stream is None:
            self._stream = await self._channel.stream(
                "/millrace.v1.Groups/Exchange",
                serialize=groups_pb2.GroupCalls.SerializeToString,
                parse=groups_pb2.GroupAnswers.FromString,
            )
        return self._stream

    async def _write(self, message: groups_pb2.GroupCalls) -> None:
        await (await self._opened()).write(message)

    async def send(self, *calls: groups_pb2.GroupCall) -> None:
        await self._write(groups_pb2.GroupCalls(calls=calls))

    async def receive(self, count: int) -> dict[int, groups_pb2.GroupAnswer]:
        answers: dict[int, groups_pb2.GroupAnswer] = {}
        while len(answers) < count:
            answers |= await self.receive_one()
        return answers

    async def receive_one(self) -> dict[int, groups_pb2.GroupAnswer]:
        """Return the answers of the next message."""
        message = await asyncio.wait_for((await self._opened()).read(), 60)
        assert isinstance(message, groups_pb2.GroupAnswers)
        self.messages += 1
        self.done += message.done
        self.refused += message.refused
        return {answer.call_id: answer for answer in message.answers}

    async def forget(self, *call_ids: int) -> None:
        await self._write(groups_pb2.GroupCalls(forgotten=call_ids))

    async def pulse(self) -> None:
        """Show that the gateway is alive, and wait until storage knows."""
        await self._write(groups_pb2.GroupCalls(pulses=True))
        await self.ask(heartbeat=groups_pb2.HeartbeatRequest(group_id="nobody's"))

    async def repeat(self, *calls: tuple[int, int, tuple[int, ...]]) -> dict[int, groups_pb2.GroupAnswer]:
        """Repeat calls, each a call id, the id of its original, and its offsets; none for a heartbeat.

        Returns the answers that are not in `done` and `refused`, once all calls are answered.
        """
        ids, likes, offsets = zip(*calls, strict=True)
        flat = [offset for each in offsets for offset in each]
        await self._write(
            groups_pb2.GroupCalls(
                again=ids, again_like=likes, again_counts=[len(each) for each in offsets], again_offsets=flat
            )
        )
        answers: dict[int, groups_pb2.GroupAnswer] = {}
        while not answers.keys() | set(self.done) | set(self.refused) >= set(ids):
            answers |= await self.receive_one()
        return answers

    async def beat(self, call_id: int, like: int) -> bool:
        """Repeat a heartbeat; return whether its answer is the same. Otherwise it has to come whole."""
        assert not await self.repeat((call_id, like, ()))
        return call_id in self.done

    async def ask(self, **call: Any) -> Any:
        """Make one call, `heartbeat=HeartbeatRequest(...)` for example, and return its answer."""
        (kind,) = call
        await self.send(groups_pb2.GroupCall(call_id=1, **call))
        return getattr((await self.receive(1))[1], kind)

    async def end(self) -> None:
        stream = await self._opened()
        stream.done_writing()
        assert await stream.read() is None

    def cut(self) -> None:
        """Break the stream, as the death of the gateway does."""
        assert self._stream is not None
        self._stream.cancel()
