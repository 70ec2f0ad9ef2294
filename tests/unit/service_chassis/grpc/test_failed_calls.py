"""Calls that fail, by the peer or by their own method: each ends with its own status, and at once."""

from __future__ import annotations

import asyncio

import pytest
from service_chassis import rpc
from service_chassis.grpc_server import Server, ServerCall, stream, unary
from service_chassis.grpc_status import Status
from service_chassis.http2 import frames, headers
from service_chassis.http2.frames import frame

from tests.unit.service_chassis.grpc.memory_pipe import Pair, RawPeer, head, message, request

WATCH = "/grpc.health.v1.Health/Watch"


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def server() -> Server:
    server = Server()
    server.add("x", {"Chat": stream(_long), "Echo": unary(_echo)})
    rpc.HealthService(server)
    return server


async def _echo(message: bytes, _call: ServerCall) -> bytes:
    return message


async def _long(call: ServerCall) -> None:
    """Send more than the first window, and wait."""
    call.begin()
    call.send((bytes(frames.FIRST_WINDOW),), frames.FIRST_WINDOW)
    await asyncio.Event().wait()


@pytest.mark.parametrize(("body", "status"), [(b"\xff\xff", "3"), (b"\x0a\x05short", "8")], ids=["broken", "long"])
async def test_a_watch_that_cannot_be_read_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, body: bytes, status: str
) -> None:
    monkeypatch.setattr("service_chassis.grpc_health._REQUEST_BYTES_MAX", 6)
    rpc.HealthService(server)
    peer = RawPeer(server).greet()
    peer.send(head(1, WATCH), message(1, body, frames.END_STREAM))
    await turns()
    assert headers.block([("grpc-status", status)]) in peer.trailers(1)


async def test_a_call_whose_time_is_over_ends_although_its_client_does_not_read(server: Server) -> None:
    peer = RawPeer(server).greet()
    peer.send(head(1, "/x/Chat", ("grpc-timeout", "1m")))
    await turns()
    assert peer.connection.queued_bytes == 5
    peer.frames()
    async with asyncio.timeout(10):
        while peer.connection.streams:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert headers.block([("grpc-status", str(Status.DEADLINE_EXCEEDED.value))]) in peer.trailers(1)
    await turns()
    peer.connection.check_invariants()


async def test_a_sender_that_fails_after_the_last_message_ends_its_call(server: Server) -> None:
    async def late(call: ServerCall) -> None:
        call.begin()
        await call.last_message()
        call.on_room = lambda: 1 // 0  # type: ignore[assignment, return-value]
        call.send_now()
        await asyncio.Event().wait()

    server.add("y", {"Late": stream(late)})
    peer = RawPeer(server).greet()
    peer.send(head(1, "/y/Late", flags=frames.END_HEADERS | frames.END_STREAM))
    await turns()
    assert b"ZeroDivisionError" in peer.trailers(1)


async def test_metadata_that_is_not_base_64_is_left_out(server: Server) -> None:
    peer = RawPeer(server).greet()
    odd = b"\0\x05a-bin\x02\xc3\xa9" + b"\0\x05b-bin\x01!" + b"\0\x05c-bin\x04AAEC"
    peer.send(frame(frames.HEADERS, frames.END_HEADERS, 1, request("/x/Echo") + odd))
    metadata = peer.connection.streams[1].metadata  # type: ignore[attr-defined]
    assert [each for each in metadata if each[0].endswith("-bin")] == [("c-bin", b"\0\1\2")]


async def test_metadata_that_its_receiver_cannot_use_ends_the_call_and_nothing_else(server: Server) -> None:
    pair = Pair(server)
    pair.move(1 << 20, 1 << 20)
    first, second = pair.call("/x/Chat"), pair.call("/x/Chat")
    first.on_begin = lambda _: 1 // 0  # type: ignore[assignment, return-value]
    pair.move(1 << 20, 0)
    await turns()
    pair.move(0, 1 << 20)
    assert (first.status, second.status) == (Status.CANCELLED, None)
    assert isinstance(first.error(), ZeroDivisionError)
