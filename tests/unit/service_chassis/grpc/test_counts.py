"""The counts of both ends of a connection: what one has sent, the other has received."""

from __future__ import annotations

import asyncio

from service_chassis.grpc_server import Server, ServerCall, stream, unary
from service_chassis.http2.frames import FIRST_WINDOW, ErrorCode, frame
from service_chassis.http2.limits import TransportCounts

from tests.unit.service_chassis.grpc.memory_pipe import Pair


async def _echo(message: bytes, _call: ServerCall) -> bytes:
    return message


async def _chat(call: ServerCall) -> None:
    while (message := await call.read()) is not None:
        await call.write(message)


def sent(counts: TransportCounts) -> tuple[int, int, int]:
    return counts.frames_sent, counts.bytes_sent, counts.resets_sent


def received(counts: TransportCounts) -> tuple[int, int, int]:
    return counts.frames_received, counts.bytes_received, counts.resets_received


async def test_each_frame_and_byte_is_counted_once() -> None:
    server = Server()
    server.add("x", {"Echo": unary(_echo), "Chat": stream(_chat)})
    pair = Pair(server)
    ours, theirs = pair.client.counts, server.counts

    async def move() -> None:
        for _ in range(30):
            pair.move(1 << 30, 1 << 30)
            await asyncio.sleep(0)
        assert sent(ours) == received(theirs)
        assert sent(theirs) == received(ours)

    await move()
    assert ours.frames_sent == theirs.frames_sent == 3  # SETTINGS, its ACK, WINDOW_UPDATE
    for size in (0, FIRST_WINDOW, 5_000_000):
        one, many, none = pair.call("/x/Echo"), pair.call("/x/Chat"), pair.call("/x/None")
        for call in (one, many, none):
            call.send((bytes(size),), size)
        one.done_writing()
        await move()
        many.cancel()
        await move()
    assert (theirs.resets_sent, theirs.resets_received) == (3, 6)  # calls to no method, by both ends; cancelled calls
    pair.server.fail(ErrorCode.PROTOCOL_ERROR, "the test is over")
    await move()
    pair.server.write(frame(6, 0, 0, bytes(8)))  # after the end: nothing is sent
    assert sent(theirs) == received(ours)
