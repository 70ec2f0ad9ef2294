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
from service_chassis import logs

pytestmark = pytest.mark.event_loops("asyncio", "uvloop")


class Greeting(asyncio.Protocol):
    """A protocol that sends one word to every client."""

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


async def test_every_connection_of_a_burst_is_begun() -> None:
    bound = listening()
    acceptor = Acceptor(bound, Greeting)
    address = bound.getsockname()
    count = ACCEPT_TURN + 100

    clients = [socket.create_connection(address) for _ in range(count)]  # the loop does not turn meanwhile
    words = await asyncio.to_thread(lambda: [heard(client) for client in clients])

    assert words == [b"hello"] * count
    acceptor.close()


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
    acceptor = Acceptor(bound, Greeting)
    client = socket.create_connection(bound.getsockname())
    capsys.readouterr()
    with no_more_descriptors():
        async with asyncio.timeout(10):
            while "cannot accept connections" not in capsys.readouterr().err:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    assert await asyncio.to_thread(heard, client) == b"hello"
    acceptor.close()


async def test_closing_drops_what_was_not_begun() -> None:
    bound = listening()
    address = bound.getsockname()
    acceptor = Acceptor(bound, Greeting)
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
