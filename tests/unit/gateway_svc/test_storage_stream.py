"""The record stream against a storage that takes frames when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker_contract.data import AppendedPartition, AppendResponse, AppendRun, FrameTaken, Item
from broker_contract.frames import frame_from_wire, frame_to_wire, put_item, read_items
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage_stream import FRAMES_AHEAD, RecordStream
from protocol_lib.errors import ErrorCode
from service_chassis import rpc

pytestmark = pytest.mark.event_loops("uvloop")

LARGE = 1_000_000


class ScriptedStorage:
    """Keeps what each frame held; answers what the test says."""

    def __init__(self, folder: Path) -> None:
        self.frames: asyncio.Queue[list[tuple[int, Item]]] = asyncio.Queue()
        self._contexts: list[Any] = []
        self._server = rpc.server()
        handler = grpc.stream_stream_rpc_method_handler(
            self._exchange, request_deserializer=frame_from_wire, response_serializer=frame_to_wire
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("millrace.v1.Data", {"Exchange": handler}),)
        )
        self.address = f"unix:{folder}/storage.sock"
        rpc.listen(self._server, self.address)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _exchange(self, _requests: Any, context: Any) -> None:
        self._contexts.append(context)
        while (frame := await context.read()) is not grpc.aio.EOF:
            self.frames.put_nowait(list(read_items(frame)))

    async def next_frame(self) -> list[tuple[int, Item]]:
        return await asyncio.wait_for(self.frames.get(), 10)

    async def nothing_more(self) -> bool:
        await asyncio.sleep(0.1)
        return self.frames.empty()

    async def send(self, *items: tuple[int, Item]) -> None:
        parts: list[bytes | memoryview] = []
        for call_id, item in items:
            put_item(parts, call_id, item)
        await self._contexts[-1].write(parts)

    async def take(self, frame: list[tuple[int, Item]]) -> None:
        await self.send(*(call for call in frame if type(call[1]) is FrameTaken))


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[ScriptedStorage]:
    scripted = ScriptedStorage(tmp_path)
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def stream(storage: ScriptedStorage) -> AsyncIterator[RecordStream]:
    channel = rpc.channel(storage.address)
    records = RecordStream(channel, "gateway", GatewayMetrics())
    await asyncio.wait_for(records.connected.wait(), 10)
    yield records
    await records.close()
    await channel.close()


def run(size: int) -> AppendRun:
    return AppendRun(1, "client", 9, 1, 5000, "t", bytes(16), 0, [bytes(size)])


def kinds(frame: list[tuple[int, Item]]) -> list[type]:
    return [type(item) for _, item in frame]


async def test_large_frames_wait_until_those_before_them_are_taken(
    storage: ScriptedStorage, stream: RecordStream
) -> None:
    answers: list[AppendResponse] = []
    for _ in range(FRAMES_AHEAD + 2):
        stream.append(run(LARGE), answers.append)
    ahead = [await storage.next_frame() for _ in range(FRAMES_AHEAD)]
    assert [kinds(frame) for frame in ahead] == [[AppendRun, FrameTaken]] * FRAMES_AHEAD
    assert await storage.nothing_more()
    # An answer to its appends says nothing: those with acks=all are answered much later than they are taken.
    await storage.send((ahead[0][0][0], AppendResponse([AppendedPartition(0, 5)])))
    assert await storage.nothing_more()
    assert [answer.partitions[0].base_offset for answer in answers] == [5]
    await storage.take(ahead[0])
    assert kinds(await storage.next_frame()) == [AppendRun, FrameTaken]
    assert await storage.nothing_more()


async def test_who_waits_for_room_is_called_when_there_is_some(storage: ScriptedStorage, stream: RecordStream) -> None:
    called: list[str] = []
    second = asyncio.Event()

    def first() -> None:
        called.append("first")
        stream.append(run(LARGE), lambda _: None)

    stream.append(run(LARGE), lambda _: None)
    assert (stream.window.admits(LARGE), stream.window.admits(1000)) == (False, True)
    stream.window.wait("first", first)
    stream.window.wait("second", second.set)
    frame = await storage.next_frame()
    assert called == []
    await storage.take(frame)
    frame = await storage.next_frame()
    assert (called, second.is_set(), stream.window.full) == (["first"], False, True)
    await storage.take(frame)
    await asyncio.wait_for(second.wait(), 10)
    assert (stream.window.used, stream.window.admits(LARGE)) == (0, True)


async def test_small_frames_are_not_asked_about(storage: ScriptedStorage, stream: RecordStream) -> None:
    for number in range(FRAMES_AHEAD + 2):
        stream.append(run(1000), lambda _: None)
        assert (kinds(await storage.next_frame()), number) == ([AppendRun], number)
    assert await storage.nothing_more()
    assert stream.window.used == 0


async def test_what_is_on_its_way_is_given_up_with_the_stream(storage: ScriptedStorage, stream: RecordStream) -> None:
    answers: list[AppendResponse] = []
    called: list[str] = []
    all_answered = asyncio.Event()

    def answered(answer: AppendResponse) -> None:
        answers.append(answer)
        if len(answers) == FRAMES_AHEAD + 1:
            all_answered.set()

    for _ in range(FRAMES_AHEAD + 1):
        stream.append(run(LARGE), answered)
    stream.window.wait("waiting", lambda: called.append("waiting"))
    for _ in range(FRAMES_AHEAD):
        await storage.next_frame()
    await storage.stop()
    await asyncio.wait_for(all_answered.wait(), 10)
    codes = [answer.partitions[0].error_code for answer in answers]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * FRAMES_AHEAD + [ErrorCode.LEADER_NOT_AVAILABLE]
    assert stream.window.used == 0
    assert called == ["waiting"]
