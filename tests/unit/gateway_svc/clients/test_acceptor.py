"""Accepting: every connection of a burst is begun, a lack of descriptors is survived, closing leaves nobody waiting."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator
from typing import cast

import pytest
from gateway_svc.clients import acceptor as accepting
from gateway_svc.clients.acceptor import ACCEPT_TURN, Acceptor
from gateway_svc.clients.entrance import Entrance, Entry
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals
from service_chassis import logs
from service_chassis.shared_turns import stranger_turns

pytestmark = pytest.mark.event_loops("asyncio", "uvloop")


class Greeting(asyncio.Protocol):
    """A protocol that sends one word to every client."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    def connection_lost(self, error: Exception | None) -> None:
        self.entry.leave()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        transport.write(b"hello")
        transport.close()


def listening() -> socket.socket:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


def heard(client: socket.socket) -> bytes:
    client.settimeout(30)
    with client:
        return client.recv(100)


def made_entrance(most: int = 10_000, rate: int = 0) -> Entrance:
    clock = asyncio.get_running_loop().time
    return Entrance(Refusals(GatewayMetrics()), clock, most=most, most_per_address=most, rate=rate)


async def test_every_connection_of_a_burst_is_begun() -> None:
    bound = listening()
    entrance = made_entrance()
    acceptor = Acceptor("EXTERNAL", bound, entrance, Greeting)
    address = bound.getsockname()
    count = ACCEPT_TURN + 100

    clients = [socket.create_connection(address) for _ in range(count)]  # the loop does not turn meanwhile
    words = await asyncio.to_thread(lambda: [heard(client) for client in clients])

    assert words == [b"hello"] * count
    acceptor.close()
    async with asyncio.timeout(60):
        while len(entrance):  # noqa: ASYNC110 (the last one is closed a turn later)
            await asyncio.sleep(0)
    assert entrance.by_address == {}


@contextlib.contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Leave only the three descriptors that are always open, and no room for others."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_accepts_again_after_a_lack_of_descriptors(capsys: pytest.CaptureFixture[str]) -> None:
    logs.get("test").error("what writes a line is imported with the first one")
    bound = listening()
    acceptor = Acceptor("EXTERNAL", bound, made_entrance(), Greeting)
    client = socket.create_connection(bound.getsockname())
    capsys.readouterr()
    with no_more_descriptors():
        async with asyncio.timeout(60):
            while "cannot accept connections" not in capsys.readouterr().err:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    assert await asyncio.to_thread(heard, client) == b"hello"
    acceptor.close()


async def test_closing_drops_what_was_not_begun() -> None:
    bound = listening()
    address = bound.getsockname()
    entrance = made_entrance()
    acceptor = Acceptor("EXTERNAL", bound, entrance, Greeting)
    clients = [socket.create_connection(address) for _ in range(accepting.BEGIN_TURN * 2)]
    await asyncio.sleep(0)

    acceptor.close()
    acceptor.close()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    for client in clients:
        client.settimeout(30)
        with client, contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 100) in (b"hello", b"")
    async with asyncio.timeout(60):
        while len(entrance):  # noqa: ASYNC110 (those that had begun)
            await asyncio.sleep(0)


async def test_accepted_connections_count_before_they_begin() -> None:
    bound = listening()
    entrance = made_entrance(most=3)
    acceptor = Acceptor("EXTERNAL", bound, entrance, Greeting)
    clients = [socket.create_connection(bound.getsockname()) for _ in range(8)]
    with contextlib.suppress(AttributeError):  # uvloop has no such step
        await asyncio.sleep(0)
    words = await asyncio.to_thread(lambda: sorted(heard_or_closed(client) for client in clients))
    assert words == [b""] * 5 + [b"hello"] * 3
    acceptor.close()


def heard_or_closed(client: socket.socket) -> bytes:
    try:
        return heard(client)
    except ConnectionResetError:
        return b""


class Waiting(asyncio.Protocol):
    """Notes the address of each connection that begins, and stays open."""

    def __init__(self, entry: Entry, begun: list[str]) -> None:
        begun.append(entry.key)


async def test_no_connection_begins_while_many_strangers_wait_for_their_turn() -> None:
    bound = listening()
    begun: list[str] = []
    turns = stranger_turns(asyncio.get_running_loop())
    waiting: list[int] = []
    acceptor = Acceptor("EXTERNAL", bound, made_entrance(), lambda entry: Waiting(entry, begun))
    for _ in range(accepting.STEPS_MAX + 10):
        turns.start_soon(lambda: waiting.append(len(begun)))
    with socket.create_connection(bound.getsockname()):
        async with asyncio.timeout(60):
            while not begun:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert waiting[:9] == [0] * 9
    acceptor.close()


async def test_strangers_whose_steps_never_end_keep_nobody_out() -> None:
    bound = listening()
    begun: list[str] = []
    turns = stranger_turns(asyncio.get_running_loop())
    acceptor = Acceptor("EXTERNAL", bound, made_entrance(), lambda entry: Waiting(entry, begun))

    def again() -> None:
        if not begun:
            turns.start_soon(again)

    for _ in range(accepting.STEPS_MAX * 2):
        turns.start_soon(again)
    with socket.create_connection(bound.getsockname()):
        async with asyncio.timeout(60):
            while not begun:  # noqa: ASYNC110
                await asyncio.sleep(0)
    acceptor.close()


async def test_connections_begin_at_a_rate_and_the_addresses_in_turn() -> None:
    """Five of one address are accepted before one of another; the burst is of one, and the clock is played."""
    bound = listening()
    now = 0.0
    entrance = Entrance(Refusals(GatewayMetrics()), lambda: now, most=1, most_per_address=9, rate=1000)
    entrance._most = 9  # after a burst of one
    begun: list[str] = []
    acceptor = Acceptor("EXTERNAL", bound, entrance, lambda entry: Waiting(entry, begun))
    clients = []
    for source in ["127.0.0.2"] * 5 + ["127.0.0.3"]:
        client = socket.socket()
        client.bind((source, 0))
        client.connect(bound.getsockname())
        clients.append(client)
    steps = []
    async with asyncio.timeout(20):
        for count in range(1, 7):
            while len(begun) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            steps.append(len(begun))
            now += 0.001
    assert steps == [1, 2, 3, 4, 5, 6]
    assert begun.index("127.0.0.3") == 1
    acceptor.close()
    for client in clients:
        client.close()
