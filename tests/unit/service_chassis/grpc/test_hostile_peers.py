"""Peers that mean harm: each limit and each flood ends the call or the connection, with its reason."""

from __future__ import annotations

import asyncio

import pytest
from service_chassis.grpc_server import Server, ServerCall, stream, unary
from service_chassis.http2 import control, frames, limits, reader
from service_chassis.http2.frames import ErrorCode, frame
from service_chassis.http2.limits import Limits

from tests.unit.service_chassis.grpc.memory_pipe import RawPeer, head, message

SMALL = {"PING": 5, "SETTINGS": 5, "RST_STREAM": 5, "DATA": 5, "WINDOW_UPDATE": 5, "OTHER": 5}


def serving(**given: object) -> Server:
    """Return a server with a stream and a unary method, and limits of these values."""
    server = Server(limits=Limits(**{"floods": SMALL, **given}))  # type: ignore[arg-type]
    server.add("x", {"Chat": stream(_read_all), "Echo": unary(_echo, request_bytes_max=100), "Wait": stream(_wait)})
    return server


async def _read_all(call: ServerCall) -> None:
    while await call.read() is not None:
        pass


async def _wait(_call: ServerCall) -> None:
    await asyncio.Event().wait()


async def _echo(message: bytes, _call: ServerCall) -> bytes:
    return message


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("PING", lambda _: frame(frames.PING, 0, 0, bytes(8))),
        ("SETTINGS", lambda _: frames.settings()),
        ("RST_STREAM", lambda number: head(2 * number + 3) + frames.rst_stream(2 * number + 3, ErrorCode.CANCEL)),
        ("RST_STREAM", lambda number: head(2 * number + 3) * 2),
        ("RST_STREAM", lambda number: head(2 * number + 3, "")),
        ("DATA", lambda _: frame(frames.DATA, 0, 1)),
        ("DATA", lambda _: frame(frames.DATA, frames.PADDED, 1, b"\x05" + bytes(5))),
        ("DATA", lambda number: frame(frames.DATA, 0, 1, b"\0\0\0\0\x64" if not number else b"a")),
        ("WINDOW_UPDATE", lambda _: frames.window_update(0, 1)),
        ("OTHER", lambda _: frame(frames.PRIORITY, 0, 1, bytes(5))),
        ("OTHER", lambda _: frame(0xEE, 0, 0, b"unknown")),
    ],
    ids=["ping", "settings", "rapid reset", "reset by trailers", "reset by headers", "empty", "padding only", "tiny",
         "updates", "priority", "unknown"],
)  # fmt: skip
async def test_a_flood_ends_the_connection(name: str, one: object) -> None:
    server = serving()
    peer = RawPeer(server).greet()
    peer.send(head(1))
    sent = 0
    for number in range(5 if name != "SETTINGS" else 4):  # the greeting is one
        peer.send(one(number))  # type: ignore[operator]
        sent += 1
    assert not peer.transport.is_closing()
    peer.send(one(sent))  # type: ignore[operator]
    assert peer.end() == (ErrorCode.ENHANCE_YOUR_CALM, f"a flood of {name}")
    assert server.counts.floods == 1


async def test_counters_of_floods_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FLOOD_INTERVAL_S", 0.0)
    peer = RawPeer(serving()).greet()
    for _ in range(50):
        peer.send(frame(frames.PING, 0, 0, bytes(8)))
    assert [kind for kind, *_ in peer.frames()] == [frames.PING] * 50


async def test_the_reset_of_an_old_call_and_what_a_peer_sends_because_of_data_are_no_flood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "RAPID_S", 0.0)
    peer = RawPeer(serving()).greet()
    for number in range(1, 41, 2):
        peer.send(head(number), frames.rst_stream(number, ErrorCode.CANCEL))
    for number in range(41, 81, 2):
        peer.send(head(number, "/x/Echo"), message(number, b"a", frames.END_STREAM))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        peer.send(frames.window_update(0, 6), frames.window_update(number, 6), frame(frames.PING, 0, 0, bytes(8)))
    assert not peer.transport.is_closing()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([frame(frames.HEADERS, 0, 1, bytes(10))] + [frame(frames.CONTINUATION, 0, 1)] * 17, "a flood of CONTINUATION"),
        ([frame(frames.HEADERS, 0, 1, bytes(16_385))], "too many header fields"),
        ([frame(frames.HEADERS, 0, 1, bytes(9_000)), frame(frames.CONTINUATION, 0, 1, bytes(9_000))],
         "too many header fields"),
        ([head(1, "/x/Chat", *[("a", "")] * 500)], "too many header fields"),
        ([frame(frames.SETTINGS, 0, 0, bytes(6 * 65))], "too many SETTINGS"),
    ],
    ids=["continuations", "a long block", "a block in parts", "many fields", "many settings"],
)  # fmt: skip
async def test_headers_and_settings_are_bounded(data: list[bytes], reason: str) -> None:
    peer = RawPeer(serving()).greet()
    peer.send(*data)
    assert peer.end() == (ErrorCode.ENHANCE_YOUR_CALM, reason)


async def test_more_calls_than_allowed_are_refused() -> None:
    peer = RawPeer(serving(streams=2)).greet()
    peer.send(head(1), head(3), head(5))
    assert peer.frames() == [(frames.RST_STREAM, 0, 5, bytes((0, 0, 0, ErrorCode.REFUSED_STREAM)))]
    peer.send(frames.rst_stream(3, ErrorCode.CANCEL), head(7))
    assert peer.frames() == []


@pytest.mark.parametrize("size", [101, 5_000, 1 << 20, 0xFFFFFFFF])
async def test_a_longer_message_than_the_method_takes_ends_the_call_and_nothing_else(size: int) -> None:
    peer = RawPeer(serving()).greet()
    part = b"\0" + size.to_bytes(4, "big") + bytes(min(size, 100_000))
    peer.send(head(1, "/x/Echo"), frame(frames.DATA, 0, 1, part))
    assert f"a message of {size} bytes, 100 are allowed".encode() in peer.trailers(1)
    peer.send(head(3, "/x/Echo"), message(3, b"a" * 100, frames.END_STREAM))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert peer.trailers(3).endswith(b"0")
    peer.connection.check_invariants()


async def test_a_compressed_message_ends_the_call() -> None:
    peer = RawPeer(serving()).greet()
    peer.send(head(1), frame(frames.DATA, 0, 1, b"\1\0\0\0\1a"))
    assert b"compressed messages are not supported" in peer.trailers(1)


async def test_bytes_of_unfinished_messages_are_bounded() -> None:
    peer = RawPeer(serving(held_bytes=10_000, message_bytes=10_000)).greet()
    part = b"\0" + (9_000).to_bytes(4, "big") + bytes(8_000)
    for number in (1, 3):
        peer.send(head(number), frame(frames.DATA, 0, number, part))
    assert not peer.transport.is_closing()
    peer.send(head(5), frame(frames.DATA, 0, 5, part))
    assert peer.end() == (ErrorCode.ENHANCE_YOUR_CALM, "too many bytes of unfinished messages")


async def test_many_messages_of_a_frame_are_bounded() -> None:
    """Three million of them fit into one frame. A hundred are no flood, however short."""
    peer = RawPeer(serving()).greet()
    peer.send(head(1), frame(frames.DATA, 0, 1, bytes(5 * 105)))
    assert not peer.transport.is_closing()
    peer.send(frame(frames.DATA, 0, 1, bytes(5 * 101)))
    assert peer.end() == (ErrorCode.ENHANCE_YOUR_CALM, "a flood of DATA")


async def test_messages_that_wait_count_with_what_they_cost() -> None:
    peer = RawPeer(serving(held_bytes=10_000, message_bytes=0)).greet()
    peer.send(head(1, "/x/Wait"), *[message(1, b"")] * 156)
    assert peer.connection.held_bytes == 156 * 64
    peer.send(message(1, b""))
    assert peer.end() == (ErrorCode.ENHANCE_YOUR_CALM, "too many bytes of unfinished messages")


async def test_empty_frames_of_calls_that_have_ended_are_counted() -> None:
    peer = RawPeer(serving()).greet()
    for number in range(1, 21, 2):  # the last frame of a call that the server has refused meanwhile
        peer.send(head(number, "/x/None"), frame(frames.DATA, frames.END_STREAM, number))
    peer.send(*[frame(frames.DATA, 0, 1)] * 5)
    assert not peer.transport.is_closing()
    peer.send(frame(frames.DATA, 0, 1))
    assert peer.end() == (ErrorCode.ENHANCE_YOUR_CALM, "a flood of DATA")


async def test_answers_that_the_peer_does_not_read_are_bounded() -> None:
    """Neither calls without room nor pings without end fill the memory of a server. A call ends, its connection does
    not: its peer may read, only slower than a burst of long answers is made."""
    server = serving(queued_bytes=1_000)
    server.add("y", {"Long": unary(_long)})
    peer = RawPeer(server).greet()
    peer.send(frames.settings(initial_window_size=0))
    for number in range(1, 7, 2):
        peer.send(head(number, "/y/Long"), message(number, b"", frames.END_STREAM))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert peer.connection.queued_bytes == 2 * 605
    assert b"too many answers wait for the client" in peer.trailers(5)
    peer.send(frames.settings(initial_window_size=1_000))
    assert [number for kind, flags, number, _ in peer.frames() if kind == frames.HEADERS and flags & 1] == [1, 3]
    peer = RawPeer(serving(queued_bytes=1_000, floods=dict.fromkeys(SMALL, 10_000)), high=500)
    peer.greet()
    while not peer.transport.is_closing():
        peer.send(frame(frames.PING, 0, 0, bytes(8)))
        assert peer.transport.get_write_buffer_size() < 1_200
    assert peer.connection.end_reason == "the peer does not read"


async def test_messages_of_a_sender_that_does_not_ask_for_room_are_bounded() -> None:
    server = serving(queued_bytes=1_000)

    async def send_all(call: ServerCall) -> None:
        call.begin()
        while call.is_open:
            call.send((bytes(600),), 600)

    server.add("y", {"All": stream(send_all)})
    peer = RawPeer(server).greet()
    peer.send(frames.settings(initial_window_size=0), head(1, "/y/All"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert b"too many messages wait for the peer" in peer.trailers(1)
    peer.connection.check_invariants()


async def test_windows_of_many_calls_are_not_changed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "CHANGED_WINDOWS", 10)
    peer = RawPeer(serving()).greet()
    peer.send(*[head(number) for number in range(1, 41, 2)])
    peer.send(frames.settings(initial_window_size=1))
    assert not peer.transport.is_closing()
    peer.send(frames.settings(initial_window_size=2))
    assert peer.end() == (ErrorCode.ENHANCE_YOUR_CALM, "a flood of SETTINGS")


async def _long(_message: bytes, _call: ServerCall) -> bytes:
    return bytes(600)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n", ErrorCode.PROTOCOL_ERROR),
        (frames.PREFACE + frame(frames.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frames.PREFACE + frames.settings() + frame(frames.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (frames.PREFACE + frames.settings() + frame(frames.PING, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
        (frames.PREFACE + frames.settings() + frame(frames.PUSH_PROMISE, 0, 1, bytes(9)), ErrorCode.PROTOCOL_ERROR),
        (frames.PREFACE + frames.settings() + frame(frames.DATA, 0, 1, b"a"), ErrorCode.PROTOCOL_ERROR),
        (frames.PREFACE + frames.settings() + head(2), ErrorCode.PROTOCOL_ERROR),
        (frames.PREFACE + frames.settings() + head(3) + head(1), ErrorCode.PROTOCOL_ERROR),
        (frames.PREFACE + frames.settings() + frame(frames.HEADERS, 4, 1, b"\xff" * 9), ErrorCode.COMPRESSION_ERROR),
        (frames.PREFACE + frames.settings() + frame(frames.HEADERS, 0, 1) + frames.settings(),
         ErrorCode.PROTOCOL_ERROR),
        (frames.PREFACE + frames.settings() + frames.HEAD.pack(70_000 << 8 | frames.SETTINGS, 0, 0),
         ErrorCode.FRAME_SIZE_ERROR),
        (frames.PREFACE + frames.settings() + frames.window_update(0, 1 << 31), ErrorCode.PROTOCOL_ERROR),
        (frames.PREFACE + frames.settings() + frames.window_update(0, frames.WINDOW_MAX),
         ErrorCode.FLOW_CONTROL_ERROR),
        (frames.PREFACE + frames.settings(initial_window_size=1 << 31), ErrorCode.FLOW_CONTROL_ERROR),
        (frames.PREFACE + frames.settings(max_frame_size=100), ErrorCode.PROTOCOL_ERROR),
    ],
)  # fmt: skip
async def test_a_broken_peer_gets_goaway_with_the_code(data: bytes, code: ErrorCode) -> None:
    peer = RawPeer(serving())
    peer.frames()
    peer.send(data)
    end = peer.end()
    assert end is not None
    assert end[0] is code


async def test_a_silent_peer_is_asked_and_then_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    from service_chassis.http2 import keepalive

    monkeypatch.setattr(keepalive, "CHECK_S", 0.01)
    silent, living = RawPeer(serving()).greet(), RawPeer(serving(floods=dict.fromkeys(SMALL, 100_000))).greet()
    slow = RawPeer(serving())
    slow.send(frames.PREFACE)
    async with asyncio.timeout(60):
        while not silent.transport.is_aborted:
            for kind, _, _, payload in living.frames():
                if kind == frames.PING:
                    living.send(frame(frames.PING, frames.ACK, 0, payload))
            await asyncio.sleep(0.001)
    assert silent.connection.end_reason == "the peer does not answer"
    assert slow.connection.end_reason == "no SETTINGS in time"
    living.connection.abort("the test is over")


@pytest.mark.parametrize(("late_s", "end"), [(0.0, "the peer does not answer"), (4.0, "")], ids=["in time", "late"])
async def test_a_process_that_stood_still_asks_its_peer_again(late_s: float, end: str) -> None:
    """The answer may wait in its socket, where the timer does not see it."""
    peer = RawPeer(serving()).greet()
    timer = peer.connection._keepalive
    for _ in range(5):  # the peer has sent bytes before the first
        timer._check()
    assert [kind for kind, *_ in peer.frames()] == [frames.PING]
    timer._due = peer.connection.loop.time() - late_s
    timer._check()
    assert peer.connection.end_reason == end
    assert [kind for kind, *_ in peer.frames()] == ([] if end else [frames.PING])
    timer.stop()


async def test_connections_are_bounded() -> None:
    server = serving(connections=2)
    first, second, third = (RawPeer(server) for _ in range(3))
    assert (third.transport.is_aborted, third.frames(), server.counts.floods) == (True, [], 1)
    first.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert not RawPeer(server).greet().transport.is_aborted
    assert not second.greet().transport.is_aborted


async def test_frames_that_cost_much_are_processed_in_several_turns() -> None:
    """A read may hold a thousand calls that begin."""
    peer = RawPeer(serving(), stays_paused=True).greet()
    peer.send(b"".join(head(number) for number in range(1, 601, 2)))
    counts = [len(peer.connection.streams)]
    while not peer.transport.is_reading:
        await asyncio.sleep(0)
        counts.append(len(peer.connection.streams))
    assert counts == [reader.FRAMES_A_TURN, 300]
