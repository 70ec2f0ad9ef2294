"""Calls of every kind in any order, with tiny windows and full sockets: each ends at both ends, and leaves nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings
from service_chassis.grpc_call import ClientCall
from service_chassis.grpc_server import Server, ServerCall, stream, unary
from service_chassis.grpc_status import RpcError, Status
from service_chassis.http2 import frames
from service_chassis.http2.limits import Limits

from tests.unit.service_chassis.grpc.memory_pipe import Pair, head

PATHS = ("/x/Read", "/x/Called", "/x/One", "/x/None")
FIELDS = ((), (("grpc-timeout", "1m"),), (("grpc-timeout", "0n"),))
CALLS = st.integers(0, 5)
SIZES = st.sampled_from([0, 1, 50, 3_000, 30_000, 100_000])
MESSAGES = st.builds(lambda letter, size: letter * size, st.sampled_from([b"a", b"x"]), SIZES)

Steps = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(PATHS), st.sampled_from(FIELDS)),
        st.tuples(st.just("send"), CALLS, MESSAGES),
        st.tuples(st.just("done"), CALLS, st.none()),
        st.tuples(st.just("cancel"), CALLS, st.none()),
        st.tuples(st.just("pause"), CALLS, st.booleans()),
        st.tuples(st.just("window"), st.booleans(), st.sampled_from([0, 1, 10, 5_000, 70_000])),
        st.tuples(st.just("move"), SIZES, SIZES),
        st.tuples(st.just("turns"), st.integers(1, 3), st.none()),
        st.tuples(st.just("leave"), st.none(), st.none()),
    ),
    max_size=40,
)  # fmt: skip


def refuse(message: bytes) -> None:
    if message[:1] == b"x":
        raise RpcError(Status.ABORTED, "x")


async def _read(call: ServerCall) -> None:
    while (message := await call.read()) is not None:
        refuse(message)
        await call.write(message)


async def _called(call: ServerCall) -> None:
    """Echo by callbacks, which raise errors."""
    queue: list[bytes] = []

    def following() -> tuple[tuple[bytes], int, bytes] | None:
        if not queue:
            return None
        message = queue.pop(0)
        refuse(message[1:])
        return (message,), len(message), b""

    def receive(message: memoryview) -> None:
        queue.append(bytes(message))
        refuse(queue[-1][:2][-1:])
        call.send_soon()

    call.begin()
    call.on_room = lambda: call.send_from(following)
    call.receive(receive)
    await call.last_message()


async def _one(message: bytes, _call: ServerCall) -> bytes:
    await asyncio.sleep(0)
    refuse(message)
    return message * 2


async def _play(steps: list[tuple[Any, ...]], high: int, window: int) -> None:
    limits = Limits(stream_window=window, connection_window=frames.FIRST_WINDOW, queued_bytes=150_000)
    server = Server(limits=limits)
    server.add("x", {"Read": stream(_read), "Called": stream(_called), "One": unary(_one, request_bytes_max=20_000)})
    pair = Pair(server, high=high, limits=limits)
    pair.move(1 << 20, 1 << 20)
    ends = (pair.client, pair.server)
    calls: list[ClientCall] = []
    for kind, first, second in steps:
        call = calls[first % len(calls)] if calls and isinstance(first, int) else None
        if kind == "begin" and not pair.client.is_leaving:
            pair.client.last_id += 2
            calls.append(ClientCall(pair.client, pair.client.last_id, None, None, 1 << 20))
            pair.client.add(calls[-1])
            pair.client.write(head(calls[-1].id, first, *second))
        elif kind == "send" and call is not None and not call._has_finished:
            call.send((second,), len(second))
        elif kind == "done" and call is not None and not call._has_finished:
            call.done_writing()
        elif kind == "cancel" and call is not None:
            call.cancel()
        elif kind == "pause" and call is not None:
            call.pause() if second else call.resume()
        elif kind == "window":
            ends[first].write(frames.settings(initial_window_size=second))
        elif kind == "move":
            pair.move(first, second)
        elif kind == "turns":
            for _ in range(first):
                await asyncio.sleep(0)
        elif kind == "leave":
            pair.server.leave()
        pair.check_invariants()
    for end in ends:
        end.write(frames.settings(initial_window_size=70_000))
    for call in calls:
        call.resume()
        call.receive(lambda _: None)
        if not call._has_finished:
            call.done_writing()
    async with asyncio.timeout(30):
        while any(end.streams for end in ends):
            pair.move(1 << 20, 1 << 20)
            pair.check_invariants()
            await asyncio.sleep(0)
    assert [call for call in calls if call.status is None] == []
    assert [(end.end_reason, end.held_bytes, end.queued_bytes) for end in ends] == [("", 0, 0)] * 2


@settings(max_examples=100, deadline=None)
@given(steps=Steps, high=st.sampled_from([0, 300, 5_000, 1 << 40]), window=st.sampled_from([1, 100, 2_000, 70_000]))
def test_every_call_ends_with_a_status(steps: list[tuple[Any, ...]], high: int, window: int) -> None:
    asyncio.run(_play(steps, high, window))
