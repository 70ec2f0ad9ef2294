import asyncio
import contextlib
import sys
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from service_chassis import rpc
from service_chassis.version import VERSION

Status = health_pb2.HealthCheckResponse


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_health_over_each_kind_of_address(kind, tmp_path):
    server = rpc.server()
    service = rpc.HealthService(server)
    port = rpc.listen(server, f"unix:{tmp_path}/s" if kind == "unix" else "127.0.0.1:0")
    await server.start()
    async with rpc.channel(f"unix:{tmp_path}/s" if kind == "unix" else f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for serving, status in ((True, Status.SERVING), (False, Status.NOT_SERVING)):
            await service.set_serving(serving)
            assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)).status == status
    await server.stop(None)


@contextlib.asynccontextmanager
async def serving(folder, contract="", **handlers):
    """Run a server with calls of these names, `/x/NAME`; yield its address."""
    server = rpc.server(contract)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x", handlers),))
    await rpc.HealthService(server).set_serving(True)
    rpc.listen(server, f"unix:{folder}/s")
    await server.start()
    yield f"unix:{folder}/s"
    await server.stop(None)


async def _echo(request, _context):
    return request


ECHO = grpc.unary_unary_rpc_method_handler(_echo)


@pytest.fixture
async def echoes(tmp_path):
    """A channel to a server that has one call, `/x/Echo`."""
    async with serving(tmp_path, Echo=ECHO) as address, rpc.channel(address) as channel:
        yield channel


async def test_messages_of_any_length(echoes):
    answer = await echoes.unary_unary("/x/Echo")(bytes(20_000_000), timeout=20)
    assert len(answer) == 20_000_000


async def test_no_call_of_a_burst_is_refused(echoes):
    """gRPC alone cancels some of a thousand that wait, and all beyond three thousand."""
    await echoes.channel_ready()
    call = echoes.unary_unary("/x/Echo")
    # All are sent in one turn of the event loop. The server has the same loop, so all wait at once.
    answers = await asyncio.gather(*(call(b"%d" % number, timeout=60) for number in range(3500)))
    assert answers == [b"%d" % number for number in range(3500)]


async def test_a_server_may_take_its_time_to_greet(echoes, tmp_path):
    """On a busy machine the other side's first bytes come late, and that fails no call."""

    async def pass_on(reader, writer):
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def late(reader, writer):
        await asyncio.sleep(0.3)
        server_reader, server_writer = await asyncio.open_unix_connection(f"{tmp_path}/s")
        await asyncio.gather(pass_on(reader, server_writer), pass_on(server_reader, writer))

    answer = None
    async with await asyncio.start_unix_server(late, f"{tmp_path}/late"):
        while answer is None:
            began = time.monotonic()
            try:
                async with rpc.channel(f"unix:{tmp_path}/late") as channel:
                    answer = await channel.unary_unary("/x/Echo")(b"a", timeout=20)
            except grpc.aio.AioRpcError:
                if time.monotonic() - began < 1.5:
                    raise
                # All of this process stood still for as long as a server may take: that says nothing.
    assert answer == b"a"


async def test_taken_address_is_an_error():
    first, second = rpc.server(), rpc.server()
    port = rpc.listen(first, "127.0.0.1:0")
    await first.start()
    with pytest.raises(OSError, match="cannot listen at"):
        rpc.listen(second, f"127.0.0.1:{port}")
    await first.stop(None)


class _Public:
    """A call of which only the public methods are there."""

    def __init__(self, call):
        self.wait_for_connection, self.write, self.read = call.wait_for_connection, call.write, call.read


@pytest.mark.parametrize("seen", [lambda call: call, _Public], ids=["grpcio", "public"])
async def test_an_opened_stream_is_written_and_read_to_its_end(seen, tmp_path):
    async def twice(_requests, context):
        for _ in range(2):
            await context.write(b"<" + await context.read() + b">")

    twice_handler = grpc.stream_stream_rpc_method_handler(twice)
    async with serving(tmp_path, Twice=twice_handler) as address, rpc.channel(address) as channel:
        write, read = await rpc.opened(seen(channel.stream_stream("/x/Twice")()))
        for message in (b"a", b"b" * 1_000_000):
            await write(message)
            assert await read() == b"<" + message + b">"
        assert await read() is grpc.aio.EOF


@pytest.fixture
async def versioned(tmp_path):
    """A server that has contract 1.b, one unary call and one stream."""

    async def echo_all(requests, _context):
        async for each in requests:
            yield each

    async with serving(tmp_path, "1.b", Echo=ECHO, EchoAll=grpc.stream_stream_rpc_method_handler(echo_all)) as address:
        yield address


@pytest.mark.parametrize(
    ("contract", "caller"),
    [("1.bb", f"{VERSION} with contract 1.bb"), ("", "unknown with contract unknown")],
)
async def test_a_caller_of_another_contract_is_refused_with_a_sentence(versioned, contract, caller):
    sentence = (
        f"storage is Millrace {VERSION} with contract 1.b, the caller is Millrace {caller}: "
        "all services must be of one release"
    )
    async with rpc.channel(versioned, contract) as channel:
        stream = channel.stream_stream("/x/EchoAll")()
        for answer in (channel.unary_unary("/x/Echo")(b"a", timeout=60), stream.read()):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await answer
            assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.FAILED_PRECONDITION, sentence)
        health = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest(), timeout=60)).status == Status.SERVING


async def test_a_caller_of_the_same_contract_is_served(versioned):
    async with rpc.channel(versioned, "1.b") as channel:
        assert await channel.unary_unary("/x/Echo")(b"a", timeout=60) == b"a"
        stream = channel.stream_stream("/x/EchoAll")()
        await stream.write(b"b")
        assert await stream.read() == b"b"
        stream.cancel()
    with rpc.blocking_channel(versioned, "1.b") as blocking:
        call = blocking.unary_unary("/x/Echo")
        assert await asyncio.to_thread(call, b"c", timeout=60) == b"c"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux' prctl")
@pytest.mark.parametrize("kind", ["channel", "blocking_channel", "server"])
async def test_threads_of_grpc_may_wake_late_and_the_caller_may_not(kind, monkeypatch):
    slacks = []

    def threads_start(*_, **__):
        thread = threading.Thread(target=lambda: slacks.append(rpc._prctl(30, 0)))
        thread.start()
        thread.join()

    for owner, name in ((grpc.aio, "insecure_channel"), (grpc, "insecure_channel"), (grpc.aio, "server")):
        monkeypatch.setattr(owner, name, threads_start)
    own = rpc._prctl(30, 0)
    getattr(rpc, kind)(*([] if kind == "server" else ["127.0.0.1:1"]))
    assert slacks == [rpc._TIMER_SLACK_NS]
    assert rpc._prctl(30, 0) == own
