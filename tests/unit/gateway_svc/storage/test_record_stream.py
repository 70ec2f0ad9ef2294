"""The record stream against a storage that a test controls."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_contract.append_area import SLOT_BYTES, SLOTS, see_area
from broker_contract.data import (
    APPEND_AREA_METADATA,
    APPEND_AREA_SEEN,
    Append,
    AppendedPartition,
    AppendResponse,
    Cancel,
    FrameReceipt,
    Item,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    TopicIdPartition,
)
from broker_contract.frames import frame_from_wire, frame_to_wire, put_item, read_items
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage import call_deadlines
from gateway_svc.storage.record_stream import FRAMES_AHEAD, LAID_BYTES_MIN, RecordStream
from protocol_lib.errors import ErrorCode
from service_chassis import grpc_server, rpc

from tests.support.waiting import until_async

pytestmark = pytest.mark.event_loops("uvloop")

LARGE = 1_000_000


class ScriptedStorage:
    """A storage that keeps the items of each frame, and sends the answers of the test.

    `sees`: whether it sees the gateways' memory.
    """

    def __init__(self, folder: Path, *, sees: bool = False) -> None:
        self._sees = sees
        self.frames: asyncio.Queue[list[tuple[int, Item]]] = asyncio.Queue()
        self._contexts: list[Any] = []
        #: The name of each stream's memory.
        self.areas: asyncio.Queue[str] = asyncio.Queue()
        self._server = rpc.server()
        self._server.add(
            "millrace.v1.Data", {"Exchange": grpc_server.stream(self._exchange, frame_from_wire, frame_to_wire)}
        )
        self.address = f"unix:{folder}/storage.sock"
        self._server.listen(self.address)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    async def _exchange(self, context: grpc_server.ServerCall) -> None:
        self._contexts.append(context)
        name = dict(context.metadata)[APPEND_AREA_METADATA]
        area = see_area(name) if self._sees else None
        self.areas.put_nowait(name)
        context.begin(() if area is None else ((APPEND_AREA_METADATA, APPEND_AREA_SEEN),))
        while (frame := await context.read()) is not None:
            self.frames.put_nowait(list(read_items(frame, area)))

    async def break_stream(self) -> None:
        await self._contexts[-1].write([b"no item"])

    async def next_area(self) -> str:
        return await asyncio.wait_for(self.areas.get(), 60)

    async def next_frame(self) -> list[tuple[int, Item]]:
        return await asyncio.wait_for(self.frames.get(), 60)

    async def nothing_more(self) -> bool:
        await asyncio.sleep(0.1)
        return self.frames.empty()

    async def send(self, *items: tuple[int, Item]) -> None:
        parts: list[bytes | memoryview] = []
        for call_id, item in items:
            put_item(parts, call_id, item)
        await self._contexts[-1].write(parts)

    async def take(self, frame: list[tuple[int, Item]]) -> None:
        await self.send(*(call for call in frame if type(call[1]) is FrameReceipt))


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[ScriptedStorage]:
    scripted = ScriptedStorage(tmp_path)
    await scripted.start()
    yield scripted
    await scripted.stop()


@asynccontextmanager
async def connected(storage: ScriptedStorage) -> AsyncIterator[RecordStream]:
    channel = rpc.channel(storage.address)
    records = RecordStream(channel, "gateway", GatewayMetrics())
    await asyncio.wait_for(records.connected.wait(), 60)
    yield records
    await records.close()
    await channel.close()


@pytest.fixture
async def stream(storage: ScriptedStorage) -> AsyncIterator[RecordStream]:
    async with connected(storage) as records:
        yield records


@pytest.fixture
async def seeing(tmp_path: Path) -> AsyncIterator[ScriptedStorage]:
    scripted = ScriptedStorage(tmp_path, sees=True)
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
async def laying(seeing: ScriptedStorage) -> AsyncIterator[RecordStream]:
    """A stream whose storage sees this process's memory."""
    async with connected(seeing) as records:
        await answered(seeing, records)
        yield records


async def answered(storage: ScriptedStorage, records: RecordStream) -> None:
    """Wait for an answer of storage: before it, storage has stated whether it sees the memory."""
    answer = asyncio.get_running_loop().create_future()
    records.append(run(1), answer.set_result)
    ((call_id, _),) = await storage.next_frame()
    await storage.send((call_id, AppendResponse([AppendedPartition(0)])))
    await asyncio.wait_for(answer, 60)


def run(size: int) -> Append:
    return Append(1, "client", 9, 1, 5000, [TopicIdPartition("t", 0)], [bytes(size)])


def kinds(frame: list[tuple[int, Item]]) -> list[type]:
    return [type(item) for _, item in frame]


async def test_large_frames_wait_for_the_receipts_of_those_before_them(
    storage: ScriptedStorage, stream: RecordStream
) -> None:
    answers: asyncio.Queue[AppendResponse] = asyncio.Queue()
    for _ in range(FRAMES_AHEAD + 2):
        stream.append(run(LARGE), answers.put_nowait)
    ahead = [await storage.next_frame() for _ in range(FRAMES_AHEAD)]
    assert [kinds(frame) for frame in ahead] == [[Append, FrameReceipt]] * FRAMES_AHEAD
    assert await storage.nothing_more()
    # An answer to its appends says nothing: those with acks=all are answered much later than their receipt comes.
    await storage.send((ahead[0][0][0], AppendResponse([AppendedPartition(0, 5)])))
    answer = await asyncio.wait_for(answers.get(), 60)
    assert await storage.nothing_more()
    assert (answer.outcomes[0].base_offset, answers.empty()) == (5, True)
    await storage.take(ahead[0])
    assert kinds(await storage.next_frame()) == [Append, FrameReceipt]
    assert await storage.nothing_more()


async def test_a_connection_that_waits_for_room_is_called_when_there_is_some(
    storage: ScriptedStorage, stream: RecordStream
) -> None:
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
    await asyncio.wait_for(second.wait(), 60)
    assert (stream.window.used, stream.window.admits(LARGE)) == (0, True)


async def test_small_frames_ask_for_no_receipt(storage: ScriptedStorage, stream: RecordStream) -> None:
    for number in range(FRAMES_AHEAD + 2):
        stream.append(run(1000), lambda _: None)
        assert (kinds(await storage.next_frame()), number) == ([Append], number)
    assert await storage.nothing_more()
    # The last one has left, which its sender learns later than storage.
    await until_async(lambda: stream.window.used == 0)


async def test_calls_in_flight_are_given_up_with_the_stream(storage: ScriptedStorage, stream: RecordStream) -> None:
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
    await asyncio.wait_for(all_answered.wait(), 60)
    codes = [answer.outcomes[0].error_code for answer in answers]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * FRAMES_AHEAD + [ErrorCode.LEADER_NOT_AVAILABLE]
    assert stream.window.used == 0
    assert called == ["waiting"]


async def test_a_caller_that_fails_does_not_keep_the_others_from_their_answers(
    storage: ScriptedStorage, stream: RecordStream
) -> None:
    answers: list[int] = []

    def fails(_: AppendResponse) -> None:
        raise ValueError("the client is gone")

    async def appended() -> list[tuple[int, Item]]:
        stream.append(run(10), fails)
        stream.append(run(10), lambda answer: answers.append(answer.outcomes[0].error_code))
        return await storage.next_frame()

    await storage.send(*[(call_id, AppendResponse([AppendedPartition(0)])) for call_id, _ in await appended()])
    await until_async(lambda: answers == [0])
    await appended()
    await storage.break_stream()
    await until_async(lambda: answers == [0, ErrorCode.REQUEST_TIMED_OUT])
    await until_async(stream.connected.is_set)  # again
    await appended()


# -- batches that lie in memory which storage sees -----------------------------------------------------------------


def filled(*values: int, size: int = LAID_BYTES_MIN) -> Append:
    batches = [bytes([value]) * size for value in values]
    return Append(1, "client", 9, 1, 5000, (TopicIdPartition("t", 0),), batches)


def batches(frame: list[tuple[int, Item]]) -> list[memoryview]:
    return [view for _, item in frame if type(item) is Append for view in item.batches]


def laid(view: memoryview) -> bool:
    return isinstance(view.obj, mmap.mmap)


async def test_long_batches_are_laid_and_short_ones_travel(seeing: ScriptedStorage, laying: RecordStream) -> None:
    laying.append(filled(1, 2), lambda _: None)
    laying.append(filled(3, size=LAID_BYTES_MIN - 1), lambda _: None)
    request = filled(4, 5, size=LAID_BYTES_MIN // 2)
    request.partitions = (TopicIdPartition("t", 4), TopicIdPartition("t", 5))
    laying.append(request, lambda _: None)
    (_, long), (_, short), (_, several), (_, taken) = await seeing.next_frame()
    assert (long, short, several) == (filled(1, 2), filled(3, size=LAID_BYTES_MIN - 1), request)
    assert list(map(laid, [*long.batches, *short.batches, *several.batches])) == [True, True, False, True, True]
    assert type(taken) is FrameReceipt


async def test_memory_is_reused_only_after_the_receipt_of_its_frame(
    seeing: ScriptedStorage, laying: RecordStream
) -> None:
    """An answer says nothing: storage may have given up a batch that it still looks at."""
    answers: asyncio.Queue[AppendResponse] = asyncio.Queue()

    async def answer(frame: list[tuple[int, Item]]) -> None:
        """Answer a frame, and wait until the answer has come; everything sent before it has come as well."""
        await seeing.send((frame[0][0], AppendResponse([AppendedPartition(7)])))
        await asyncio.wait_for(answers.get(), 60)

    laying.append(filled(1), answers.put_nowait)
    first = await seeing.next_frame()
    (view,) = batches(first)
    await answer(first)
    assert await seeing.nothing_more()
    laying.append(filled(2), answers.put_nowait)
    second = await seeing.next_frame()
    assert bytes(view[:1]) == b"\1"
    await seeing.take(first)
    await answer(second)
    laying.append(filled(3), lambda _: None)
    assert [bytes(each[:1]) for each in (*batches(await seeing.next_frame()), view, *batches(second))] == [
        b"\3",
        b"\3",
        b"\2",
    ]


async def test_batches_without_room_in_the_area_travel(seeing: ScriptedStorage, laying: RecordStream) -> None:
    laying.append(filled(1, size=SLOT_BYTES + 1), lambda _: None)
    (view,) = batches(await seeing.next_frame())
    assert (laid(view), len(view), view[-1]) == (False, SLOT_BYTES + 1, 1)


async def test_a_slot_is_filled_to_its_end_and_when_none_is_left_batches_travel(
    seeing: ScriptedStorage, laying: RecordStream
) -> None:
    for value in range(SLOTS + 1):
        laying.append(filled(value, size=SLOT_BYTES), lambda _: None)
    found: list[memoryview] = []
    frames: list[list[tuple[int, Item]]] = []
    while len(found) < SLOTS + 1:
        frames.append(await seeing.next_frame())
        found += batches(frames[-1])
        if len(frames) > 1:
            await seeing.take(frames[-2])
    assert list(map(laid, found)) == [True] * SLOTS + [False]
    assert [(view[0], view[-1]) for view in found] == [(value, value) for value in range(SLOTS + 1)]


async def test_a_stream_that_is_opened_again_has_other_memory(seeing: ScriptedStorage, laying: RecordStream) -> None:
    """Storage may still read the memory of the broken one."""
    laying.append(filled(1), lambda _: None)
    (before,) = batches(await seeing.next_frame())
    first = await seeing.next_area()
    await seeing.break_stream()
    second = await seeing.next_area()
    await asyncio.wait_for(laying.connected.wait(), 60)
    await answered(seeing, laying)
    laying.append(filled(2), lambda _: None)
    (after,) = batches(await seeing.next_frame())
    assert (laid(after), bytes(after[:1]), bytes(before[:1])) == (True, b"\2", b"\1")
    assert see_area(first) is None
    assert see_area(second) is not None


async def test_storage_that_does_not_see_the_memory_gets_bytes(storage: ScriptedStorage, stream: RecordStream) -> None:
    stream.append(filled(1, size=LARGE), lambda _: None)
    (view,) = batches(await storage.next_frame())
    await answered(storage, stream)
    assert (laid(view), see_area(await storage.next_area())) == (False, None)


async def test_a_name_too_long_to_be_sent_takes_no_memory(seeing: ScriptedStorage, laying: RecordStream) -> None:
    answers: list[AppendResponse] = []
    long = filled(1)
    long.partitions = [TopicIdPartition("t" * 70_000, 0)]
    laying.append(long, answers.append)
    laying.append(filled(2), lambda _: None)
    frame = await seeing.next_frame()
    assert kinds(frame) == [Append, FrameReceipt]
    assert [answer.outcomes[0].error_code for answer in answers] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert [bytes(view) for view in batches(frame)] == [b"\2" * LAID_BYTES_MIN]


# -- a storage that hangs -------------------------------------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls end with their own time."""
    monkeypatch.setattr(call_deadlines, "GRACE_S", 0.0)
    monkeypatch.setattr(call_deadlines, "_DISK_S", 0.0)
    monkeypatch.setattr(call_deadlines, "CHECK_S", 0.02)


def hasty(size: int) -> Append:
    return replace(run(size), timeout_ms=1)


def read(max_wait_ms: int) -> ReadRequest:
    partitions = [ReadPartition(TopicIdPartition("t", partition), 0, 1000) for partition in (0, 1)]
    return ReadRequest(1, "client", max_wait_ms, 1, 1000, 0, False, partitions)


async def test_calls_that_storage_does_not_answer_are_answered_in_time(
    hurried: None, storage: ScriptedStorage, stream: RecordStream
) -> None:
    """Storage receives everything and answers nothing, as a stopped process does."""
    answers: asyncio.Queue[Any] = asyncio.Queue()
    stream.append(run(10), lambda _: pytest.fail("its time is not over"))
    stream.read(read(60_000), lambda _: pytest.fail("its time is not over"))
    stream.append(hasty(10), answers.put_nowait)
    late = await asyncio.wait_for(answers.get(), 60)
    stream.read(read(1), answers.put_nowait)
    late_read = await asyncio.wait_for(answers.get(), 60)
    assert late == AppendResponse([AppendedPartition(ErrorCode.REQUEST_TIMED_OUT)])
    assert late_read == ReadResponse([ReadResult(ErrorCode.NONE, high_watermark=-1)] * 2)
    sent = await storage.next_frame() + await storage.next_frame()
    assert [type(item) for _, item in sent] == [Append, ReadRequest, Append, ReadRequest]
    assert kinds(await storage.next_frame()) == [Cancel]
    # What storage answers when it goes on finds no call.
    await storage.send((sent[2][0], AppendResponse([AppendedPartition(0, 5)])), (sent[3][0], ReadResponse([])))
    await answered(storage, stream)
    assert answers.empty()
    stream._waiting.clear()  # the patient ones


async def test_calls_that_were_not_sent_in_time_are_never_sent(
    hurried: None, storage: ScriptedStorage, stream: RecordStream
) -> None:
    """The bytes belong to the clients again, and the clients send them again."""
    answers: asyncio.Queue[AppendResponse] = asyncio.Queue()
    for _ in range(FRAMES_AHEAD):
        stream.append(run(LARGE), lambda _: None)
    ahead = [await storage.next_frame() for _ in range(FRAMES_AHEAD)]
    used = stream.window.used
    bytes_of_client = bytearray(b"a" * LARGE)
    request = hasty(1)
    request.batches = [memoryview(bytes_of_client)]
    stream.append(request, answers.put_nowait)
    stream.append(run(10), lambda _: None)
    assert stream.window.used > used + LARGE
    late = await asyncio.wait_for(answers.get(), 60)
    assert late.outcomes[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert used < stream.window.used < used + LARGE
    bytes_of_client[:] = b"b" * LARGE
    for frame in ahead:
        await storage.take(frame)
    following = await storage.next_frame()
    assert [len(view) for view in batches(following)] == [10]
    assert await storage.nothing_more()


async def test_nothing_is_given_up_while_storage_sends(
    hurried: None, storage: ScriptedStorage, stream: RecordStream
) -> None:
    """A storage that answers keeps the times itself; after a standstill, its answers wait in the socket."""
    calls = {1: (hasty(10), lambda _: None)}
    given_up: list[int] = []
    clock = _Clock()
    watch = call_deadlines.CallDeadlines(clock, lambda: calls, given_up.extend)  # type: ignore[arg-type]
    watch.start_timer()
    for received in (True, True, False):
        watch.has_received = received
        clock.go_on(call_deadlines.CHECK_S)
    assert given_up == [1]
    given_up.clear()
    clock.go_on(10.0)  # this process stood still
    assert given_up == []
    clock.go_on(call_deadlines.CHECK_S)
    assert given_up == [1]


async def test_nobody_looks_while_there_are_no_calls(
    hurried: None, storage: ScriptedStorage, stream: RecordStream
) -> None:
    calls: call_deadlines.Calls = {}
    looks: list[int] = []
    clock = _Clock()

    def looked_at() -> call_deadlines.Calls:
        looks.append(len(calls))
        return calls

    watch = call_deadlines.CallDeadlines(clock, looked_at, lambda _: None)  # type: ignore[arg-type]
    clock.go_on(10.0)
    assert (looks, watch.is_stopped) == ([], True)
    calls[1] = (hasty(10), lambda _: None)
    watch.start_timer()
    clock.go_on(call_deadlines.CHECK_S)
    calls.clear()
    for _ in range(3):
        clock.go_on(call_deadlines.CHECK_S)
    assert (looks, watch.is_stopped) == ([1, 0], True)


class _Clock:
    """The part of an event loop that `CallDeadlines` uses, with one timer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.call: Callable[[], None] = lambda: None

    def time(self) -> float:
        return self.now

    def call_at(self, _when: float, call: Callable[[], None]) -> None:
        self.call = call

    call_later = call_at

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        call, self.call = self.call, lambda: None
        call()
