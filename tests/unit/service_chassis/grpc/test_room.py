"""Senders that were refused room are woken: tiny windows, full sockets, bytes that come in any pieces."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from service_chassis.grpc_server import Server, ServerCall, stream
from service_chassis.http2 import connection, frames
from service_chassis.http2.limits import Limits
from service_chassis.http2.reader import READ_BYTES

from tests.unit.service_chassis.grpc.memory_pipe import MemoryTransport, Pair, RawPeer, head, is_waiting, request

PATH = "/x/Chat"
SMALL = Limits(stream_window=2_000, connection_window=frames.FIRST_WINDOW)
STREAMS = 3

Steps = st.lists(
    st.one_of(
        st.tuples(st.just("client"), st.integers(0, STREAMS - 1), st.integers(0, 6_000)),
        st.tuples(st.just("server"), st.integers(0, STREAMS - 1), st.integers(0, 6_000)),
        st.tuples(st.just("move"), st.integers(0, 3_000), st.integers(0, 3_000)),
        st.tuples(st.just("pause"), st.integers(0, STREAMS - 1), st.booleans()),
        st.tuples(st.just("window"), st.integers(0, 5_000), st.just(0)),
    ),
    max_size=40,
)


class Sender:
    """A queue of messages for one stream, written as the services write: `send_from`, and again at `on_room`."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.queue: deque[bytes] = deque()
        self.received: list[bytes] = []
        call.on_room = self.write_on
        call.receive(lambda view: self.received.append(bytes(view)))

    def write_on(self) -> None:
        self.call.send_from(lambda: ((m := self.queue.popleft(),), len(m), b"") if self.queue else None)

    def put(self, message: bytes) -> None:
        self.queue.append(message)
        self.write_on()


async def _play(steps: list[tuple[Any, ...]], high: int) -> None:
    accepted: list[Sender] = []

    async def chat(call: ServerCall) -> None:
        call.begin()
        accepted.append(Sender(call))
        await call.last_message()

    server = Server(limits=SMALL)
    server.add("x", {"Chat": stream(chat)})
    pair = Pair(server, high=high, limits=SMALL)
    pair.move(1 << 20, 1 << 20)
    ours = [Sender(pair.call(PATH)) for _ in range(STREAMS)]
    while len(accepted) < STREAMS:
        pair.move(1 << 20, 1 << 20)
        await asyncio.sleep(0)
    sent: dict[str, list[list[bytes]]] = {side: [[] for _ in range(STREAMS)] for side in ("client", "server")}
    ends = {"client": ours, "server": accepted}
    for number, (kind, first, second) in enumerate(steps):
        if kind in ends:
            message = bytes([number % 251]) * second
            sent[kind][first].append(message)
            ends[kind][first].put(message)
        elif kind == "move":
            pair.move(first, second)
        elif kind == "pause":
            call = accepted[first].call
            call.pause() if second else call.resume()
        else:  # the client changes the window of all streams
            pair.client.write(frames.settings(initial_window_size=first))
        pair.check_invariants()
    pair.client.write(frames.settings(initial_window_size=2_000))
    for each in accepted:
        each.call.resume()
    for _ in range(100_000):
        if not pair.out.buffer and not pair.back.buffer:
            break
        pair.move(700, 700)
        pair.check_invariants()
    for side, other in (("client", accepted), ("server", ours)):
        assert [each.received for each in other] == sent[side]
        assert not any(is_waiting(each.call) or each.queue for each in ends[side])


@settings(max_examples=150, deadline=None)
@given(steps=Steps, high=st.sampled_from([0, 500, 3_000, 1 << 40]))
def test_every_message_arrives_and_every_sender_is_woken(steps: list[tuple[Any, ...]], high: int) -> None:
    asyncio.run(_play(steps, high))


async def accepted_call(peer: RawPeer, server: Server) -> ServerCall:
    calls: list[ServerCall] = []

    async def chat(call: ServerCall) -> None:
        call.begin()
        calls.append(call)
        await call.last_message()

    server.add("x", {"Chat": stream(chat)})
    peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, request(PATH)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return calls[0]


@pytest.fixture
async def server() -> Server:
    return Server()


def refused(call: ServerCall) -> list[str]:
    """Ask for room, which there must not be; return a list that gets an entry when the sender is woken."""
    woken: list[str] = []
    call.on_room = lambda: woken.append("woken")
    assert not call.has_room()
    return woken


async def test_a_sender_that_finds_the_socket_full_is_woken_when_it_has_drained(server: Server) -> None:
    peer = RawPeer(server, high=100).greet()
    call = await accepted_call(peer, server)
    call.send((bytes(200),), 200)
    woken = refused(call)
    peer.frames()
    assert woken == ["woken"]


@pytest.mark.parametrize(
    "more",
    [frames.window_update(1, 1), frames.settings(initial_window_size=frames.FIRST_WINDOW + 1)],
    ids=["stream", "settings"],
)
async def test_a_sender_without_a_window_is_woken_when_it_grows(server: Server, more: bytes) -> None:
    peer = RawPeer(server).greet()
    call = await accepted_call(peer, server)
    peer.send(frames.window_update(0, 1 << 20))
    call.send((bytes(frames.FIRST_WINDOW - 5),), frames.FIRST_WINDOW - 5)
    woken = refused(call)
    peer.send(frames.window_update(0, 1))
    assert woken == []
    peer.send(more)
    assert woken == ["woken"]


async def test_a_sender_is_woken_by_the_window_of_the_connection(server: Server) -> None:
    peer = RawPeer(server).greet()
    call = await accepted_call(peer, server)
    peer.send(frames.window_update(1, 1 << 20))
    call.send((bytes(frames.FIRST_WINDOW - 5),), frames.FIRST_WINDOW - 5)
    woken = refused(call)
    peer.send(frames.window_update(1, 1))
    assert woken == []
    peer.send(frames.window_update(0, 1))
    assert woken == ["woken"]


@pytest.mark.parametrize("end", ["reset", "lost"])
async def test_a_sender_is_woken_when_its_call_ends(server: Server, end: str) -> None:
    peer = RawPeer(server, high=100).greet()
    call = await accepted_call(peer, server)
    call.send((bytes(200),), 200)
    woken = refused(call)
    if end == "reset":
        peer.send(frames.rst_stream(1, frames.ErrorCode.CANCEL))
    else:
        peer.connection.connection_lost(None)
    assert (woken, call.has_room(), call.is_open) == (["woken"], False, False)


@pytest.mark.parametrize("event", ["drained", "lost"])
async def test_a_sender_that_fails_leaves_the_others_their_turn(server: Server, event: str) -> None:
    calls: list[ServerCall] = []
    errors: list[Exception] = []

    async def chat(call: ServerCall) -> None:
        call.begin()
        calls.append(call)
        try:
            await call.last_message()
        except ArithmeticError as error:
            errors.append(error)

    server.add("x", {"Chat": stream(chat)})
    peer = RawPeer(server).greet()
    for number in (1, 3):
        peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS, number, request(PATH)))
    while len(calls) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    peer.connection.pause_writing()
    first, second = calls
    first.on_room = lambda: 1 // 0  # type: ignore[assignment, return-value]
    assert not first.has_room()
    woken = refused(second)
    if event == "lost":
        peer.connection.connection_lost(None)
        assert (first.is_open, second.is_open) == (False, False)
    else:
        peer.connection.resume_writing()
        assert second.has_room()
    assert woken == ["woken"]
    if event == "drained":
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [type(error) for error in errors] == [ZeroDivisionError]


async def test_the_end_of_a_call_follows_the_messages_that_wait(server: Server) -> None:
    async def answer(call: ServerCall) -> None:
        call.begin()
        call.send((bytes(frames.FIRST_WINDOW),), frames.FIRST_WINDOW)

    server.add("y", {"Long": stream(answer)})
    peer = RawPeer(server).greet()
    peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, request("/y/Long")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert sum(len(payload) for kind, _, _, payload in peer.frames() if kind == frames.DATA) == frames.FIRST_WINDOW
    peer.send(frames.window_update(0, 100), frames.window_update(1, 100))
    data, trailers, reset = peer.frames()
    assert (data[0], len(data[3]), trailers[0], trailers[3][-1:], reset[0]) == (
        frames.DATA,
        5,
        frames.HEADERS,
        b"0",
        frames.RST_STREAM,
    )
    peer.connection.check_invariants()


async def test_streams_that_wait_for_one_socket_take_turns(server: Server) -> None:
    calls: list[ServerCall] = []

    async def chat(call: ServerCall) -> None:
        call.begin()
        calls.append(call)
        await call.last_message()

    server.add("x", {"Chat": stream(chat)})
    peer = RawPeer(server).greet()
    for number in (1, 3):
        peer.send(frames.frame(frames.HEADERS, frames.END_HEADERS, number, request(PATH)))
    while len(calls) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    peer.frames()
    peer.send(frames.window_update(0, 1 << 20), frames.window_update(1, 1 << 20), frames.window_update(3, 1 << 20))
    peer.connection.pause_writing()
    for call in calls:
        call.send((bytes(100_000),), 100_000)
    peer.connection.resume_writing()
    order = [number for kind, _, number, _ in peer.frames() if kind == frames.DATA]
    assert order == [1, 3] * 7


async def many_calls(peer: RawPeer, server: Server) -> list[ServerCall]:
    """Begin ten calls."""
    calls: list[ServerCall] = []

    async def chat(call: ServerCall) -> None:
        call.begin()
        calls.append(call)
        await call.last_message()

    server.add("x", {"Chat": stream(chat)})
    peer.send(*[head(number) for number in range(1, 21, 2)])
    while len(calls) < 10:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return calls


async def test_many_streams_that_wait_are_woken_in_several_turns(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame of the peer may make room for a hundred thousand."""
    monkeypatch.setattr(connection, "STREAMS_A_TURN", 4)
    peer = RawPeer(server).greet()
    calls = await many_calls(peer, server)
    peer.connection.pause_writing()
    woken = [refused(call) for call in calls]
    peer.connection.resume_writing()
    counts = [sum(map(len, woken))]
    while sum(map(len, woken)) < 10:
        peer.connection.check_invariants()
        peer.send(frames.window_update(0, 1))  # wakes no more in this turn
        await asyncio.sleep(0)
        counts.append(sum(map(len, woken)))
    assert counts == [4, 8, 10]


async def test_many_calls_end_with_their_connection_in_several_turns(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STREAMS_A_TURN", 4)
    peer = RawPeer(server).greet()
    calls = await many_calls(peer, server)
    peer.connection.pause_writing()
    woken = [refused(call) for call in calls]
    peer.connection.connection_lost(None)
    assert not any(call.is_open for call in calls)
    counts = [sum(map(len, woken))]
    while not peer.connection.lost.done():
        peer.connection.check_invariants()
        await asyncio.sleep(0)
        counts.append(sum(map(len, woken)))
    assert counts == [4, 8, 10]
    await asyncio.sleep(0)
    assert all(call._task is not None and call._task.done() for call in calls)


async def test_a_paused_stream_gets_no_window_and_the_peer_that_goes_on_loses_it() -> None:
    server = Server(limits=Limits(stream_window=1_000))
    peer = RawPeer(server).greet()
    call = await accepted_call(peer, server)
    call.receive(lambda _: None)
    call.pause()
    peer.frames()
    message = frames.frame(frames.DATA, 0, 1, b"\0" + (595).to_bytes(4, "big") + bytes(595))
    peer.send(message)
    assert peer.frames() == []
    call.resume()
    assert peer.frames() == [(frames.WINDOW_UPDATE, 0, 1, (600).to_bytes(4, "big"))]
    call.pause()
    peer.send(message, message)
    ((kind, _, _, payload),) = peer.frames()
    assert (kind, payload[-1], call.is_open) == (frames.RST_STREAM, frames.ErrorCode.FLOW_CONTROL_ERROR, False)


async def test_messages_that_nobody_reads_close_the_window() -> None:
    server = Server(limits=Limits(stream_window=1_000))
    peer = RawPeer(server).greet()
    call = await accepted_call(peer, server)
    peer.frames()
    peer.send(frames.frame(frames.DATA, 0, 1, b"\0" + (595).to_bytes(4, "big") + bytes(595)))
    assert peer.frames() == []
    assert await call.read() == bytes(595)
    assert peer.frames() == [(frames.WINDOW_UPDATE, 0, 1, (600).to_bytes(4, "big"))]


def test_a_full_transport_is_drained_before_it_is_asked_again() -> None:
    """The transport of these tests behaves as asyncio's does."""
    events: list[str] = []

    class Protocol:
        is_full = False

        def connection_made(self, _: object) -> None: ...

        def pause_writing(self) -> None:
            self.is_full = True
            events.append("full")

        def resume_writing(self) -> None:
            self.is_full = False
            events.append("drained")

    transport = MemoryTransport(high=8)
    transport.attach(Protocol())  # type: ignore[arg-type]
    transport.write(bytes(READ_BYTES))
    assert events == ["full"]
    transport.taken(READ_BYTES - 2)
    assert events == ["full", "drained"]
