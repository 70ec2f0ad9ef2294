"""Channel and server as our services use them."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from service_chassis import rpc
from service_chassis.grpc_server import stream, unary
from service_chassis.grpc_status import RpcError, Status
from service_chassis.version import VERSION

CHECK = "/grpc.health.v1.Health/Check"


async def health_of(channel):
    """Return the bytes of the answer: field 1 with the status."""
    return await channel.unary(CHECK, bytes, bytes)(b"", timeout=60)


@pytest.mark.parametrize("kind", ["unix", "tcp"])
async def test_health_over_each_kind_of_address(kind, tmp_path):
    server = rpc.server()
    service = rpc.HealthService(server)
    port = server.listen(f"unix:{tmp_path}/s" if kind == "unix" else "127.0.0.1:0")
    await server.start()
    async with rpc.channel(f"unix:{tmp_path}/s" if kind == "unix" else f"127.0.0.1:{port}") as channel:
        for serving, status in ((True, 1), (False, 2)):
            service.set_serving(serving)
            assert await health_of(channel) == bytes((0x08, status))
    await server.stop(None)


@contextlib.asynccontextmanager
async def serving(folder, contract="", **methods):
    """Run a server with calls of these names, `/x/NAME`; yield its address."""
    server = rpc.server(contract)
    server.add("x", methods)
    rpc.HealthService(server).set_serving(True)
    server.listen(f"unix:{folder}/s")
    await server.start()
    yield f"unix:{folder}/s"
    await server.stop(None)


async def _echo(request, _call):
    return request


ECHO = unary(_echo)


def echo(channel):
    return channel.unary("/x/Echo", bytes, bytes)


@pytest.fixture
async def echoes(tmp_path):
    """A channel to a server that has one call, `/x/Echo`."""
    async with serving(tmp_path, Echo=ECHO) as address, rpc.channel(address) as channel:
        yield channel


async def test_long_messages(echoes):
    assert len(await echo(echoes)(bytes(20_000_000), timeout=20)) == 20_000_000


async def test_no_call_of_a_burst_is_refused(echoes):
    await echoes.ready()
    call = echo(echoes)
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
                    answer = await echo(channel)(b"a", timeout=20)
            except RpcError:
                if time.monotonic() - began < 1.5:
                    raise
                # All of this process stood still for as long as a server may take: that says nothing.
    assert answer == b"a"


async def test_taken_address_is_an_error():
    first, second = rpc.server(), rpc.server()
    port = first.listen("127.0.0.1:0")
    await first.start()
    with pytest.raises(OSError, match="cannot listen at"):
        second.listen(f"127.0.0.1:{port}")
    await first.stop(None)


@pytest.fixture
async def versioned(tmp_path):
    """A server that has contract 1.b, one unary call and one stream."""

    async def echo_all(call):
        while (each := await call.read()) is not None:
            await call.write(each)

    async with serving(tmp_path, "1.b", Echo=ECHO, EchoAll=stream(echo_all)) as address:
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
        chat = await channel.stream("/x/EchoAll")
        for answer in (echo(channel)(b"a", timeout=60), chat.read()):
            with pytest.raises(RpcError) as caught:
                await answer
            assert (caught.value.status, caught.value.details) == (Status.FAILED_PRECONDITION, sentence)
        assert await health_of(channel) == b"\x08\x01"


async def test_a_caller_of_the_same_contract_is_served(versioned):
    async with rpc.channel(versioned, "1.b") as channel:
        assert await echo(channel)(b"a", timeout=60) == b"a"
        chat = await channel.stream("/x/EchoAll")
        await chat.write(b"b")
        assert await chat.read() == b"b"
        chat.cancel()
