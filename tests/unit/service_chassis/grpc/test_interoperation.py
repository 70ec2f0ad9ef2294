"""Stock gRPC (grpcio) as the other end: every method of the contract in both roles, over TCP and Unix sockets.

One module fixture runs all four ends. Bodies are bytes: messages of protobuf are tested where they are made.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker_contract import (
    administration_pb2,
    cluster_pb2,
    data_pb2,
    groups_pb2,
    logs_pb2,
    producers_pb2,
    topics_pb2,
    transactions_pb2,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc
from service_chassis import rpc
from service_chassis.grpc_channel import Channel
from service_chassis.grpc_server import Server, ServerCall, stream, unary
from service_chassis.grpc_status import RpcError, Status
from service_chassis.http2.frames import FIRST_WINDOW
from service_chassis.http2.limits import Limits

FILES = (administration_pb2, cluster_pb2, data_pb2, groups_pb2, logs_pb2, producers_pb2, topics_pb2, transactions_pb2)
#: Every method of the contract: its service, its name, whether it is a stream.
METHODS = [
    (service.full_name, method.name, method.client_streaming)
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
#: gRPC's smallest window, without its growth.
TINY = [*UNLIMITED, ("grpc.http2.lookahead_bytes", FIRST_WINDOW), ("grpc.http2.bdp_probe", 0)]
TEXT = "n\u00f6 100% \n wrong"


async def _answer(message: bytes, abort: Callable[[], Awaitable[Any]]) -> bytes:
    if message == b"abort":
        await abort()
    if message == b"raise":
        raise ValueError("bad")
    if message == b"wait":
        await asyncio.Event().wait()
    return message


def our_server(limits: Limits | None = None) -> Server:
    async def echo(message: bytes, call: ServerCall) -> bytes:
        async def abort() -> None:
            raise RpcError(Status.FAILED_PRECONDITION, TEXT)

        return await _answer(message, abort)

    async def chat(call: ServerCall) -> None:
        call.begin(
            [("x-text", "1"), ("x-bytes-bin", b"\0\xff\1"), *((k, v) for k, v in call.metadata if k == "sent-bin")]
        )
        while (message := await call.read()) is not None:
            await call.write(message)

    server = Server(limits=limits)
    for service, name, is_stream in METHODS:
        server.add(service, {name: stream(chat) if is_stream else unary(echo)})
    return server


def stock_server(options: list[tuple[str, int]]) -> grpc.aio.Server:
    async def echo(message: bytes, context: Any) -> bytes:
        return await _answer(message, lambda: context.abort(grpc.StatusCode.FAILED_PRECONDITION, TEXT))

    async def chat(_: Any, context: Any) -> None:
        sent = [(key, value) for key, value in context.invocation_metadata() if key == "sent-bin"]
        await context.send_initial_metadata([("x-text", "1"), ("x-bytes-bin", b"\0\xff\1"), *sent])
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(message)

    server = grpc.aio.server(options=options)
    for service, name, is_stream in METHODS:
        handler = (
            grpc.stream_stream_rpc_method_handler(chat) if is_stream else grpc.unary_unary_rpc_method_handler(echo)
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
    return server


@dataclass
class Ends:
    """A client of each kind for a server: what a test needs of them."""

    call: Callable[..., Awaitable[bytes]]
    open: Callable[[str], Awaitable[Any]]
    read: Callable[[Any], Awaitable[bytes | None]]
    write: Callable[[Any, bytes], Awaitable[None]]
    done: Callable[[Any], Awaitable[None]]
    metadata: Callable[[Any], Awaitable[list[tuple[str, Any]]]]


def of_ours(channel: Channel) -> Ends:
    async def done(call: Any) -> None:
        call.done_writing()

    return Ends(
        call=lambda path, message, **given: channel.unary(path, bytes, bytes)(message, **given),
        open=lambda path: channel.stream(path, metadata=[("sent-bin", b"\0\1\2")]),
        read=lambda call: call.read(),
        write=lambda call, message: call.write(message),
        done=done,
        metadata=lambda call: call.initial_metadata(),
    )


def of_stock(channel: grpc.aio.Channel) -> Ends:
    async def call(path: str, message: bytes, **given: Any) -> bytes:
        try:
            return await channel.unary_unary(path)(message, **given)
        except grpc.aio.AioRpcError as error:
            raise RpcError(Status[error.code().name], error.details()) from error

    async def opened(path: str) -> Any:
        return channel.stream_stream(path)(metadata=[("sent-bin", b"\0\1\2")])

    async def read(call: Any) -> bytes | None:
        message = await call.read()
        return None if message is grpc.aio.EOF else message

    async def metadata(call: Any) -> list[tuple[str, Any]]:
        return list(await call.initial_metadata())

    return Ends(
        call, opened, read, lambda call, message: call.write(message), lambda call: call.done_writing(), metadata
    )


@pytest.fixture(params=["stock client", "stock server", "both ours"])
def roles(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["tcp", "unix", "tiny windows"])
async def ends(roles: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ends]:
    tiny = request.param == "tiny windows"
    options = TINY if tiny else UNLIMITED
    limits = Limits(stream_window=FIRST_WINDOW, connection_window=FIRST_WINDOW) if tiny else None
    address = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/s"
    if roles == "stock server":
        stock = stock_server(options)
        port = stock.add_insecure_port(address)
        await stock.start()
        stop: Callable[[], Awaitable[None]] = lambda: stock.stop(0)  # noqa: E731
    else:
        server = our_server(limits)
        port = server.listen(address)
        await server.start()
        stop = lambda: server.stop(0)  # noqa: E731
    address = address if port == 1 else f"127.0.0.1:{port}"
    if roles == "stock client":
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            yield of_stock(channel)
    else:
        async with Channel(address, limits=limits) as ours:
            yield of_ours(ours)
            for connection in ours._connections:
                connection.check_invariants()
    await stop()


async def test_every_method_of_the_contract(ends: Ends) -> None:
    for service, name, is_stream in METHODS:
        path = f"/{service}/{name}"
        if is_stream:
            call = await ends.open(path)
            await ends.write(call, path.encode())
            assert await ends.read(call) == path.encode()
            await ends.done(call)
            assert await ends.read(call) is None
        else:
            assert await ends.call(path, path.encode(), timeout=60) == path.encode()


ECHO, CHAT = "/millrace.v1.Topics/DescribeTopics", "/millrace.v1.Data/Exchange"


async def test_messages_of_all_lengths_and_many_at_once(ends: Ends) -> None:
    call = await ends.open(CHAT)
    found = dict(await ends.metadata(call))
    assert (found["x-text"], found["x-bytes-bin"], found["sent-bin"]) == ("1", b"\0\xff\1", b"\0\1\2")
    for size in (0, 1, 16_000, 65_000, 300_000, 5_000_000):
        message = os.urandom(size)
        await ends.write(call, message)
        assert bytes(await ends.read(call) or b"") == message

    async def send() -> None:
        for number in range(20):
            await ends.write(call, bytes([number]) * 500_000)

    sending = asyncio.create_task(send())
    for number in range(20):
        assert bytes(await ends.read(call) or b"") == bytes([number]) * 500_000
    await sending
    answers = await asyncio.gather(*(ends.call(ECHO, b"%d" % number, timeout=60) for number in range(300)))
    assert answers == [b"%d" % number for number in range(300)]


async def test_a_message_of_20_mb(roles: str, ends: Ends) -> None:
    message = os.urandom(1 << 20) * 20
    assert await ends.call(ECHO, message, timeout=60) == message


@pytest.mark.parametrize(
    ("message", "status", "details"),
    [(b"abort", Status.FAILED_PRECONDITION, TEXT), (b"raise", Status.UNKNOWN, None)],
)
async def test_ends_of_calls(ends: Ends, message: bytes, status: Status, details: str | None) -> None:
    with pytest.raises(RpcError) as caught:
        await ends.call(ECHO, message, timeout=60)
    assert caught.value.status is status
    assert details in (None, caught.value.details)


async def test_a_deadline_an_unknown_method_and_a_cancelled_call(ends: Ends) -> None:
    with pytest.raises(RpcError) as caught:
        await ends.call(ECHO, b"wait", timeout=0.05)
    assert caught.value.status is Status.DEADLINE_EXCEEDED
    with pytest.raises(RpcError) as caught:
        await ends.call("/millrace.v1.Topics/None", b"", timeout=60)
    assert caught.value.status is Status.UNIMPLEMENTED
    call = await ends.open(CHAT)
    await ends.write(call, b"a")
    assert await ends.read(call) == b"a"
    call.cancel()
    assert await ends.call(ECHO, b"after", timeout=60) == b"after"


async def test_health_to_a_stock_client(tmp_path: Path) -> None:
    server = rpc.server()
    health = rpc.HealthService(server)
    server.listen(f"unix:{tmp_path}/s")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        health.set_serving(True)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="other"), timeout=60)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        other = stub.Watch(health_pb2.HealthCheckRequest(service="other"))
        assert (await other.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()
        other.cancel()
    await server.stop(0)
