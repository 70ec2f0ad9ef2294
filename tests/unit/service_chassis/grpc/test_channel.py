"""The channel: connections that come and go, the server's limit of calls, TLS."""

from __future__ import annotations

import asyncio
import gc
import ssl
import subprocess
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from service_chassis import grpc_channel
from service_chassis.grpc_channel import Channel
from service_chassis.grpc_server import Server, ServerCall, stream, unary
from service_chassis.grpc_status import RpcError, Status
from service_chassis.http2 import frames
from service_chassis.http2.limits import Limits


class Gate:
    """A server whose calls wait until they may go on."""

    def __init__(self, address: str, limits: Limits | None = None) -> None:
        self.address = address
        self.begun = self.running = self.most = 0
        self.open = asyncio.Event()
        self.server = Server(limits=limits)
        self.server.add("x", {"Wait": unary(self._wait), "Chat": stream(self._chat)})
        self.server.listen(address)

    async def _wait(self, message: bytes, _call: ServerCall) -> bytes:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        return message

    async def _chat(self, call: ServerCall) -> None:
        while (message := await call.read()) is not None:
            await call.write(message)

    async def until_running(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.running != count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    made = Gate(f"unix:{tmp_path}/s", Limits(streams=2))
    await made.server.start()
    yield made
    await made.server.stop(0)


async def test_the_servers_limit_of_calls_is_kept_and_each_waiting_call_has_its_turn(gate: Gate) -> None:
    async with Channel(gate.address) as channel:
        wait = channel.unary("/x/Wait", bytes, bytes)
        calls = [asyncio.create_task(wait(b"%d" % number, timeout=60)) for number in range(20)]
        await gate.until_running(2)
        calls[5].cancel()  # while it waits
        gate.open.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [each for each in answers if isinstance(each, bytes)] == [b"%d" % n for n in range(20) if n != 5]
        assert gate.most == 2


async def test_a_call_that_is_cancelled_when_its_turn_has_come_passes_it_on(gate: Gate) -> None:
    async with Channel(gate.address) as channel:
        wait = channel.unary("/x/Wait", bytes, bytes)
        running = [asyncio.create_task(wait(b"", timeout=60)) for _ in range(2)]
        await gate.until_running(2)
        first, second = (asyncio.create_task(wait(b"", timeout=60)) for _ in range(2))
        await asyncio.sleep(0)
        waiter = channel._waiting[0]
        running[0].cancel()
        while not waiter.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        first.cancel()
        async with asyncio.timeout(60):
            while gate.begun != 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        gate.open.set()
        assert await second == b""
        assert await running[1] == b""


async def test_calls_that_have_ended_need_no_collection(gate: Gate) -> None:
    async with Channel(gate.address) as channel:
        gc.disable()
        try:
            call = asyncio.create_task(channel.unary("/x/Wait", bytes, bytes)(b"", timeout=60))
            chat = await channel.stream("/x/Chat")
            chat.on_room = chat.wake
            await chat.write(b"a")
            assert await chat.read() == b"a"
            await gate.until_running(1)
            ends = [*gate.server._connections, *channel._connections]
            calls = [weakref.ref(each) for end in ends for each in end.streams.values()]
            chat.cancel()
            gate.open.set()
            await call
            del chat, call
            async with asyncio.timeout(10):
                while any(end.streams for end in ends):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert [each() for each in calls] == [None] * 4
        finally:
            gc.enable()


async def test_a_cancelled_call_ends_its_method(gate: Gate) -> None:
    async with Channel(gate.address) as channel:
        call = asyncio.create_task(channel.unary("/x/Wait", bytes, bytes)(b"", timeout=60))
        await gate.until_running(1)
        call.cancel()
        await gate.until_running(0)


async def test_a_call_on_its_way_ends_with_its_connection_and_one_that_waits_gets_the_next(tmp_path: Path) -> None:
    gate = Gate(f"unix:{tmp_path}/s", Limits(streams=1))
    await gate.server.start()
    async with Channel(gate.address) as channel:
        wait = channel.unary("/x/Wait", bytes, bytes)
        lost = asyncio.create_task(wait(b"lost", timeout=60))
        await gate.until_running(1)
        waiting = asyncio.create_task(wait(b"waiting", timeout=60, wait_for_ready=True))
        await asyncio.sleep(0)
        await gate.server.stop(None)
        with pytest.raises(RpcError) as caught:
            await lost
        assert caught.value.status is Status.UNAVAILABLE
        again = Gate(gate.address)
        again.open.set()
        await again.server.start()
        assert await waiting == b"waiting"
        assert channel.counts.connections == 2
        await again.server.stop(0)


async def test_without_a_server_a_call_fails_or_waits(tmp_path: Path) -> None:
    async with Channel(f"unix:{tmp_path}/none") as channel:
        call = channel.unary("/x/Wait", bytes, bytes)
        with pytest.raises(RpcError) as caught:
            await call(b"", timeout=60)
        assert caught.value.status is Status.UNAVAILABLE
        with pytest.raises(RpcError) as caught:
            await call(b"", timeout=0.03, wait_for_ready=True)
        assert caught.value.status is Status.DEADLINE_EXCEEDED
        waiting = asyncio.create_task(call(b"", wait_for_ready=True))
        await asyncio.sleep(0)
    with pytest.raises(RpcError) as caught:
        await waiting
    assert caught.value.status is Status.CANCELLED


@pytest.mark.parametrize("turns", range(5))
async def test_a_call_is_woken_when_its_server_ends_the_connection_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """It ends within the few turns between the attempt to connect and the call, or later."""
    monkeypatch.setattr(grpc_channel, "RECONNECT_PAUSE_S", 0.001)
    loop = asyncio.get_running_loop()
    made: list[asyncio.BaseTransport] = []

    class Greeter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)
            transport.write(frames.settings())  # type: ignore[attr-defined]
            if len(made) == 1:
                self.end_after(turns)

        def end_after(self, turns: int) -> None:
            if turns:
                loop.call_soon(self.end_after, turns - 1)
            else:
                made[0].abort()  # type: ignore[attr-defined]

    async with await loop.create_unix_server(Greeter, f"{tmp_path}/s"), Channel(f"unix:{tmp_path}/s") as channel:
        async with asyncio.timeout(10):
            call = await channel.stream("/x/Chat")
            while call.status is None and len(made) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert (call.status, len(made)) in ((Status.UNAVAILABLE, 1), (None, 2))
        for transport in made:
            transport.close()


async def test_requests_that_the_server_does_not_read_are_bounded(gate: Gate) -> None:
    gate.server.limits = Limits(stream_window=0)
    gate.open.set()
    async with Channel(gate.address, limits=Limits(queued_bytes=1_000)) as channel:
        wait = channel.unary("/x/Wait", bytes, bytes)
        calls = [asyncio.create_task(wait(bytes(600), timeout=60)) for _ in range(2)]
        await channel.ready()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(RpcError, match="too many requests wait for the server") as caught:
            await wait(b"", timeout=60)
        assert caught.value.status is Status.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_calls_that_have_waited_for_the_server_share_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_channel, "RECONNECT_PAUSE_S", 0.02)
    async with Channel(f"unix:{tmp_path}/s") as channel:
        wait = channel.unary("/x/Wait", bytes, bytes)
        calls = []
        for number in range(8):
            calls.append(asyncio.create_task(wait(b"%d" % number, timeout=60, wait_for_ready=True)))
            await asyncio.sleep(0.002)  # each pauses from another moment on
        gate = Gate(f"unix:{tmp_path}/s")
        gate.open.set()
        await gate.server.start()
        assert await asyncio.gather(*calls) == [b"%d" % number for number in range(8)]
        assert channel.counts.connections == 1
        await gate.server.stop(None)


async def test_there_is_another_connection_before_stream_ids_run_out(gate: Gate) -> None:
    gate.open.set()
    async with Channel(gate.address, stream_ids=9) as channel:
        wait = channel.unary("/x/Wait", bytes, bytes)
        chat = await channel.stream("/x/Chat")
        for number in range(20):
            assert await wait(b"%d" % number, timeout=60) == b"%d" % number
        assert channel.counts.connections == 5
        await chat.write(b"on the first connection")
        assert await chat.read() == b"on the first connection"


async def test_a_stopping_server_ends_calls_in_order_and_a_refused_call_is_sent_again(tmp_path: Path) -> None:
    gate = Gate(f"unix:{tmp_path}/s")
    await gate.server.start()
    async with Channel(gate.address) as channel:
        wait = channel.unary("/x/Wait", bytes, bytes)
        before = asyncio.create_task(wait(b"before", timeout=60))
        await gate.until_running(1)
        stopping = asyncio.create_task(gate.server.stop(60))
        await asyncio.sleep(0)  # GOAWAY is on its way, and the next call does not know of it
        after = asyncio.create_task(wait(b"after", timeout=60, wait_for_ready=True))
        await asyncio.sleep(0.01)
        gate.open.set()
        assert await before == b"before"
        await stopping
        again = Gate(gate.address)
        again.open.set()
        await again.server.start()
        assert await after == b"after"
        await again.server.stop(0)


@pytest.mark.parametrize(("begins_to_answer", "times"), [(False, 5), (True, 1)])
async def test_a_call_that_the_server_has_begun_to_answer_is_not_sent_again(
    gate: Gate, begins_to_answer: bool, times: int
) -> None:
    async def refuse(call: ServerCall) -> None:
        gate.begun += 1
        if begins_to_answer:
            call.begin()
        call.connection.reset(call, frames.ErrorCode.REFUSED_STREAM)

    gate.server.add("y", {"Refuse": stream(refuse)})
    async with Channel(gate.address) as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary("/y/Refuse", bytes, bytes)(b"", timeout=60)
        assert (caught.value.status, gate.begun) == (Status.UNAVAILABLE, times)


async def test_no_attempt_to_connect_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_channel, "CONNECT_TIMEOUT_S", 0.02)
    async with (
        await asyncio.start_unix_server(lambda *_: None, f"{tmp_path}/s"),
        Channel(f"unix:{tmp_path}/s") as channel,
    ):
        with pytest.raises(RpcError, match=r"no answer within 0\.02 s"):
            await channel.unary("/x/Wait", bytes, bytes)(b"", timeout=60)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key and the certificate of "localhost", which has signed itself, in one file."""
    path = tmp_path_factory.mktemp("tls") / "one.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(path), "-out", str(path) + ".crt"]
    subprocess.run([*command.split(), *more], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


def context(pem: Path, *, is_server: bool, certificate: bool = True) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    if certificate:
        made.load_cert_chain(pem)
    made.load_verify_locations(pem)
    made.verify_mode = ssl.CERT_REQUIRED
    made.set_alpn_protocols(["h2"])
    return made


def stock_credentials(pem: Path) -> grpc.ChannelCredentials:
    certificate = Path(f"{pem}.crt").read_bytes()
    return grpc.ssl_channel_credentials(certificate, pem.read_bytes(), certificate)


async def _echo(message: bytes, _call: ServerCall) -> bytes:
    return message


async def test_mutual_tls_with_ours_and_with_stock_grpc(pem: Path) -> None:
    server = Server(tls=context(pem, is_server=True))
    server.add("x", {"Echo": unary(_echo)})
    port = server.listen("127.0.0.1:0")
    await server.start()
    message = bytes(3_000_000)
    async with Channel(f"localhost:{port}", tls=lambda: context(pem, is_server=False)) as channel:
        assert await channel.unary("/x/Echo", bytes, bytes)(message, timeout=60) == message
    async with grpc.aio.secure_channel(f"localhost:{port}", stock_credentials(pem)) as stock:
        assert await stock.unary_unary("/x/Echo")(message[:100_000], timeout=60) == message[:100_000]
    async with Channel(f"localhost:{port}", tls=lambda: context(pem, is_server=False, certificate=False)) as channel:
        with pytest.raises(RpcError) as caught:
            await channel.unary("/x/Echo", bytes, bytes)(message, timeout=60)
        assert caught.value.status is Status.UNAVAILABLE
    await server.stop(0)


async def test_a_peer_that_does_not_agree_to_h2_is_refused(pem: Path) -> None:
    other = context(pem, is_server=True)
    other.set_alpn_protocols(["http/1.1"])
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=other) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with Channel(f"localhost:{port}", tls=lambda: context(pem, is_server=False)) as channel:
            with pytest.raises(RpcError, match=r"did not agree to h2|alert no application protocol"):
                await channel.unary("/x/Echo", bytes, bytes)(b"", timeout=60)
