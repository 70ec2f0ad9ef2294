"""Lanes: answers that go from a server's file to another socket. Servers are ours, stock ones, and broken ones."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker_contract import data_pb2
from broker_contract.frames import frame_prefix
from service_chassis.grpc_channel import Channel
from service_chassis.grpc_server import Server, ServerCall, answers
from service_chassis.grpc_status import RpcError, Status
from service_chassis.http2 import frames, headers, keepalive
from service_chassis.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, frame
from service_chassis.http2.lane import GREETING, Lane, State
from service_chassis.http2.limits import TransportCounts
from service_chassis.http2.pipes import MemoryPipe, SystemPipe
from service_chassis.socket_room import TO_READ, SocketRoom

from tests.support.waiting import until_async

pytestmark = pytest.mark.event_loops("asyncio", "uvloop")

CONTENT = os.urandom(6 << 20)
PATH = "/pkg.Files/Read"
#: Sizes of the messages of one answer.
ANSWERS = [[1], [70_000, 1, 130], [3 << 20, 4_000_000], [127, 128, 16_383, 16_384]]


class Owner:
    """The owner of a lane, and whoever moves its bytes to a socket, which a test reads."""

    def __init__(self, connected: socket.socket, pipe: Any = None) -> None:
        connected.setblocking(False)
        self.room = SocketRoom(asyncio.get_running_loop(), TO_READ)
        self.counts = TransportCounts()
        self.free: list[Lane] = []
        self.closed: list[str] = []
        self.refused: list[tuple[Status | None, str]] = []
        self.failures: list[str] = []
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.left = 0
        self.reads = True
        self.now = 0.0
        self.lane = Lane(connected, pipe or SystemPipe(), self.room, self.counts, self, frame_prefix)

    def clock(self) -> float:
        return self.now

    def on_free(self, lane: Lane) -> None:
        self.free.append(lane)

    def on_closed(self, lane: Lane) -> None:
        self.closed.append(lane.end_reason)

    def ask(self, message: bytes, size: int) -> None:
        self.left = size
        block = Channel("localhost:1").block(PATH)
        self.lane.ask(block, message, size, self.has_records, lambda *refusal: self.refused.append(refusal))
        self.lane.check_invariants()

    def has_records(self) -> None:
        """Move what there is."""
        if not self.reads:
            return
        try:
            while self.left:
                moved = self.lane.move(self.ours.fileno(), self.left)
                self.left -= moved
                if self.left and self.lane.is_dry:
                    self.lane.wait(self)
                    return
                if not moved:
                    asyncio.get_running_loop().call_later(0.001, self.has_records)
                    return
        except OSError as error:
            self.failures.append(str(error))
            return
        self.lane.release()

    def fail(self, error: Exception) -> None:
        self.failures.append(repr(error))

    async def received(self, size: int) -> bytes:
        loop, data = asyncio.get_running_loop(), bytearray()
        async with asyncio.timeout(30):
            while len(data) < size:
                data += await loop.sock_recv(self.theirs, 1 << 20)
        return bytes(data)

    def close(self) -> None:
        self.lane.close("the test is over")
        self.lane.check_invariants()
        self.room.close()
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(CONTENT)
    return tmp_path / "file"


def sizes_of(message: bytes) -> list[int]:
    return [int(size) for size in message.split()]


def our_server(file: Path) -> Server:
    """Return a server that answers with the first bytes of the file, a message for each size in the request."""

    async def read(message: bytes, call: ServerCall) -> None:
        if message == b"no":
            raise RpcError(Status.NOT_FOUND, "no such file")
        descriptor = os.open(file, os.O_RDONLY)
        try:
            for size in sizes_of(message):
                await call.write_file(frame_prefix(size), descriptor, 0, size)
        finally:
            os.close(descriptor)

    server = Server()
    server.add("pkg.Files", {"Read": answers(read)})
    return server


def stock_server() -> grpc.aio.Server:
    async def read(message: bytes, context: Any) -> Any:
        if message == b"no":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such file")
        for size in sizes_of(message):
            yield data_pb2.Chunk(records=CONTENT[:size]).SerializeToString()

    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    handler = grpc.unary_stream_rpc_method_handler(read)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pkg.Files", {"Read": handler}),))
    return server


Start = Callable[[str], Awaitable[str]]


@pytest.fixture
async def start(file: Path, tmp_path: Path) -> AsyncIterator[Start]:
    """A function that starts a server of a kind, and returns its address."""
    ours, stock = our_server(file), stock_server()
    address = f"unix:{tmp_path / 'socket'}"

    async def start(kind: str) -> str:
        if kind == "stock":
            port = stock.add_insecure_port("127.0.0.1:0")
            await stock.start()
            return f"127.0.0.1:{port}"
        port = ours.listen("127.0.0.1:0" if kind == "tcp" else address)
        await ours.start()
        return f"127.0.0.1:{port}" if kind == "tcp" else address

    yield start
    await ours.stop(0)
    await stock.stop(None)


def connected_to(address: str) -> socket.socket:
    path = address.removeprefix("unix:")
    if path == address:
        host, _, port = address.rpartition(":")
        return socket.create_connection((host, int(port)))
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(path)
    return connected


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("pipe", [SystemPipe, MemoryPipe])
@pytest.mark.parametrize("kind", ["tcp", "unix", "stock"])
async def test_answers_come_whole_one_after_the_other(start: Start, kind: str, pipe: Any) -> None:
    owner = Owner(connected_to(await start(kind)), pipe())
    for sizes in ANSWERS:
        owner.ask(b" ".join(str(size).encode() for size in sizes), sum(sizes))
        assert await owner.received(sum(sizes)) == b"".join(CONTENT[:size] for size in sizes)
        await until_async(lambda: len(owner.free) == 1)
        owner.free.clear()
    assert (owner.failures, owner.closed) == ([], [])
    owner.close()


@pytest.mark.parametrize("kind", ["tcp", "stock"])
async def test_a_call_that_is_refused_leaves_a_lane_for_the_next(start: Start, kind: str) -> None:
    owner = Owner(connected_to(await start(kind)))
    owner.ask(b"no", 1)
    await until_async(lambda: bool(owner.refused))
    assert (owner.refused, owner.lane.state) == ([(Status.NOT_FOUND, "no such file")], State.IDLE)
    owner.ask(b"5", 5)
    assert await owner.received(5) == CONTENT[:5]
    owner.close()


@pytest.mark.parametrize("sizes", ANSWERS)
async def test_a_stock_client_reads_files_as_messages(start: Start, sizes: list[int]) -> None:
    address = await start("tcp")
    async with grpc.aio.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        call = channel.unary_stream(PATH, response_deserializer=data_pb2.Chunk.FromString)
        chunks = [chunk.records async for chunk in call(b" ".join(str(size).encode() for size in sizes))]
    assert chunks == [CONTENT[:size] for size in sizes]


async def test_frames_of_the_server_wait_for_the_end_of_a_range(start: Start) -> None:
    """The acknowledgement of a PING does not get into the middle of a file that a client does not read yet."""
    connected = connected_to(await start("unix"))
    block = Channel("localhost:1").block(PATH)
    request = b"\0" + frames.U32.pack(7) + b"4000000"
    connected.sendall(GREETING + frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, request))
    await asyncio.sleep(0.05)  # the socket is full
    connected.sendall(frame(frames.PING, 0, 0, b"whatever"))
    await asyncio.sleep(0.05)
    stream = await asyncio.to_thread(_read_frames, connected)
    kinds = [(kind, flags) for kind, flags, _ in stream]
    data = b"".join(payload for kind, _, payload in stream if kind == DATA)
    assert data == b"\0" + frames.U32.pack(4_000_005) + frame_prefix(4_000_000) + CONTENT[:4_000_000]
    assert kinds.index((frames.PING, frames.ACK)) > kinds.index((DATA, 0))
    connected.close()


def _read_frames(connected: socket.socket) -> list[tuple[int, int, bytes]]:
    """Return the frames up to the trailers."""
    found: list[tuple[int, int, bytes]] = []
    with connected.makefile("rb") as stream:
        while not found or found[-1][:2] != (HEADERS, END_HEADERS | END_STREAM):
            word, flags, _ = frames.HEAD.unpack(stream.read(9))
            found.append((word & 255, flags, stream.read(word >> 8)))
    return found


async def test_a_client_that_reads_a_file_slowly_needs_no_ping(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not answer: the PING would come after the file."""
    monkeypatch.setattr(keepalive, "CHECK_S", 0.01)
    owner = Owner(connected_to(await start("unix")))
    owner.reads = False
    owner.ask(b"3000000", 3_000_000)
    await until_async(lambda: owner.lane.state is State.SENDING)
    await asyncio.sleep(0.1)
    owner.reads = True
    owner.has_records()
    assert await owner.received(3_000_000) == CONTENT[:3_000_000]
    await asyncio.sleep(0.1)  # an idle lane answers
    assert (owner.failures, owner.closed) == ([], [])
    owner.close()


async def test_streams_that_wait_for_a_range_go_on_after_it(start: Start) -> None:
    async with Channel(await start("unix")) as channel, asyncio.timeout(20):
        calls = [await channel.stream(PATH, parse=lambda wire: data_pb2.Chunk.FromString(wire).records) for _ in "123"]
        calls[0].connection.transport.pause_reading()
        for call in calls:
            await call.write(b"4000000")
            call.done_writing()
        await asyncio.sleep(0.05)
        calls[0].connection.transport.resume_reading()
        for call in calls[::-1]:
            assert await call.read() == CONTENT[:4_000_000]
            assert await call.read() is None


async def test_a_client_that_goes_away_in_the_middle_costs_no_descriptor(start: Start, file: Path) -> None:
    address = await start("unix")
    before = descriptors()
    owners = [Owner(connected_to(address)) for _ in range(3)]
    for owner in owners:
        owner.ask(b"6000000", 6_000_000)
    await until_async(lambda: all(owner.lane.state is State.SENDING for owner in owners))
    for owner in owners:
        owner.close()
        assert owner.closed == ["the test is over"]
    await until_async(lambda: descriptors() == before)


# -- a server by hand -----------------------------------------------------------------------------------------------

RESPONSE = b"\x88" + headers.block([("content-type", "application/grpc")])
OK = headers.block([("grpc-status", "0")])
BEGIN = frame(HEADERS, END_HEADERS, 1, RESPONSE)
END = frame(HEADERS, END_HEADERS | END_STREAM, 1, OK)


def message(data: bytes) -> bytes:
    chunk = frame_prefix(len(data)) + data if data else b""
    return b"\0" + frames.U32.pack(len(chunk)) + chunk


class ByHand:
    """The other end of a lane's socket."""

    def __init__(self) -> None:
        theirs, self.end = socket.socketpair()
        self.owner = Owner(theirs)
        self.owner.ask(b"", 10)

    async def sends(self, *parts: bytes) -> None:
        for part in parts:
            self.end.sendall(part)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def close(self) -> None:
        self.owner.close()
        self.end.close()


@pytest.fixture
async def by_hand() -> AsyncIterator[ByHand]:
    server = ByHand()
    yield server
    server.close()


class FullPipe(MemoryPipe):
    """A pipe to a client that has no room."""

    is_full = True

    def drain(self, to: int, count: int, *, more: bool) -> int:
        if self.is_full:
            raise BlockingIOError
        return super().drain(to, count, more=more)


WHOLE = message(b"01234") + message(b"") + message(b"56789")
GOOD = {
    "one frame": BEGIN + frame(DATA, 0, 1, WHOLE) + END,
    "many frames": BEGIN + b"".join(frame(DATA, 0, 1, WHOLE[n : n + 1]) for n in range(len(WHOLE))) + END,
    "frames in between": BEGIN
    + frame(DATA, 0, 1, WHOLE[:9])
    + frame(frames.PING, 0, 0, bytes(8))
    + frame(frames.SETTINGS, 0, 0, b"")
    + frame(99, 0, 0, b"unknown")
    + frames.window_update(0, 5)
    + frame(DATA, 0, 1, WHOLE[9:])
    + frame(DATA, 0, 1, b"")
    + END,
    "an empty one last": BEGIN + frame(DATA, 0, 1, message(b"0123456789")) + frame(DATA, 0, 1, message(b"")) + END,
}  # fmt: skip


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("name", GOOD)
async def test_bytes_in_any_frames_and_pieces(by_hand: ByHand, name: str, step: int) -> None:
    whole = GOOD[name]
    await by_hand.sends(*(whole[at : at + step] for at in range(0, len(whole), step)))
    assert await by_hand.owner.received(10) == b"0123456789"
    await until_async(lambda: bool(by_hand.owner.free))
    assert (by_hand.owner.failures, by_hand.owner.lane.state) == ([], State.IDLE)
    by_hand.owner.lane.check_invariants()


BROKEN = {
    "more bytes than asked for": (BEGIN + frame(DATA, 0, 1, message(bytes(11))), "1 bytes too many"),
    "fewer bytes than asked for": (BEGIN + frame(DATA, 0, 1, message(bytes(9))) + END, "ended too early"),
    "a message cut off by the end": (BEGIN + frame(DATA, 0, 1, message(bytes(10))[:12]) + END, "ended too early"),
    "an error in the middle": (
        BEGIN + frame(HEADERS, END_HEADERS | END_STREAM, 1, headers.block([("grpc-status", "15")])),
        "ended too early: DATA_LOSS",
    ),
    "a compressed message": (BEGIN + frame(DATA, 0, 1, b"\1" + message(bytes(10))[1:]), "compressed"),
    "another field": (BEGIN + frame(DATA, 0, 1, message(bytes(10)).replace(b"\x0a\x0a", b"\x12\x0a")), "other fields"),
    "a length that no message has": (BEGIN + frame(DATA, 0, 1, b"\0\0\0\0\1\x0a"), "a message of 1 bytes"),
    "padding": (BEGIN + frame(DATA, frames.PADDED, 1, b"\0" + message(bytes(10))), "with flags"),
    "data of another call": (BEGIN + frame(DATA, 0, 3, message(bytes(10))), "DATA where none can be"),
    "headers twice": (BEGIN + BEGIN, "HEADERS between messages"),
    "headers in pieces": (BEGIN + frame(HEADERS, END_STREAM, 1, OK), "in several frames"),
    "a continuation": (BEGIN + frame(frames.CONTINUATION, END_HEADERS, 1, OK), "a frame of type 9"),
    "fields in no code": (BEGIN + frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\xff\xff"), "header fields"),
    "a reset": (BEGIN + frames.rst_stream(1, frames.ErrorCode.CANCEL), "reset"),
    "a long frame": (BEGIN + frame(frames.PING, 0, 0, bytes(16_385)), "too long"),
    "a flood": (BEGIN + frame(frames.PING, frames.ACK, 0, bytes(8)) * 1_001, "too many of them"),
    "a flood of nothing": (BEGIN + frame(DATA, 0, 1, b"") * 1_001, "too many of them"),
    "settings of a wrong length": (BEGIN + frame(frames.SETTINGS, 0, 0, b"1"), "SETTINGS"),
    "the end": (BEGIN, "closed the connection"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_answer_wakes_its_reader(by_hand: ByHand, name: str) -> None:
    """No byte more than asked for gets out, and the reader is told."""
    sent, reason = BROKEN[name]
    await by_hand.sends(sent)
    if name == "the end":
        by_hand.end.shutdown(socket.SHUT_WR)
    owner = by_hand.owner
    await until_async(lambda: bool(owner.closed))
    assert reason in owner.closed[0]
    # One that has all of its bytes is told by nothing: its answer has left.
    assert len(owner.failures) == 1
    assert (owner.free, owner.lane.state) == ([], State.CLOSED)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (frame(DATA, 0, 1, message(bytes(10))), "DATA where none can be"),
        (frame(HEADERS, END_HEADERS, 1, headers.block([(":status", "502")])), "HTTP 502"),
        (frame(HEADERS, END_HEADERS, 3, RESPONSE), "another call"),
        (END, "ended too early: OK"),
        (PREFACE, "too long"),
        (b"", "closed the connection"),
    ],
)
async def test_a_call_without_an_answer_is_refused_once(by_hand: ByHand, sent: bytes, reason: str) -> None:
    await by_hand.sends(sent)
    by_hand.end.shutdown(socket.SHUT_WR)
    owner = by_hand.owner
    await until_async(lambda: bool(owner.closed))
    assert [(status, reason in text) for status, text in owner.refused] == [(None, True)]
    owner.lane.close("again")
    assert len(owner.refused) == len(owner.closed) == 1


async def test_the_end_of_an_answer_waits_for_its_reader(by_hand: ByHand) -> None:
    """All of the answer has come at once, and is in the pipe while its client has no room."""
    owner, pipe = by_hand.owner, FullPipe()
    owner.lane._pipe.close()
    owner.lane._pipe = pipe
    await by_hand.sends(BEGIN + frame(DATA, 0, 1, message(b"0123456789")) + END)
    await asyncio.sleep(0.02)
    assert (pipe.held, owner.closed, owner.lane.state) == (10, [], State.SENDING)
    pipe.is_full = False
    assert await owner.received(10) == b"0123456789"
    await until_async(lambda: owner.lane.state is State.IDLE)


async def test_a_lane_that_is_closed_tells_its_reader(by_hand: ByHand) -> None:
    await by_hand.sends(BEGIN)
    await until_async(lambda: by_hand.owner.lane.is_waiting and by_hand.owner.lane.state is State.SENDING)
    by_hand.owner.lane.close("the server is silent")
    assert by_hand.owner.failures == ["the server is silent"]


async def test_a_server_that_leaves_ends_its_call_first(by_hand: ByHand) -> None:
    leave = frames.goaway(1, frames.ErrorCode.NO_ERROR)
    await by_hand.sends(BEGIN, leave, frame(DATA, 0, 1, message(b"0123456789")), END)
    owner = by_hand.owner
    assert await owner.received(10) == b"0123456789"
    await until_async(lambda: bool(owner.closed))
    assert (owner.closed, owner.failures, owner.free) == (["the server is leaving"], [], [])


async def test_an_idle_lane_answers_pings_and_notices_the_end(by_hand: ByHand) -> None:
    await by_hand.sends(BEGIN, frame(DATA, 0, 1, message(b"0123456789")), END)
    await until_async(lambda: bool(by_hand.owner.free))
    by_hand.end.recv(1 << 16)
    await by_hand.sends(frame(frames.PING, 0, 0, b"12345678"))
    await asyncio.sleep(0.01)
    assert by_hand.end.recv(100) == frame(frames.PING, frames.ACK, 0, b"12345678")
    by_hand.end.close()
    await until_async(lambda: by_hand.owner.closed == ["the server closed the connection"])


async def test_a_request_that_the_server_has_no_room_for_is_not_sent(by_hand: ByHand) -> None:
    small = frames.settings(initial_window_size=100)
    await by_hand.sends(small, BEGIN, frame(DATA, 0, 1, message(b"0123456789")), END)
    await until_async(lambda: bool(by_hand.owner.free))
    with pytest.raises(ConnectionError, match="no room for a request"):
        by_hand.owner.ask(bytes(96), 10)
    assert by_hand.owner.refused == []
