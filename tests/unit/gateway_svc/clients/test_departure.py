"""The end of a client is found though bytes that it sent are unread, on every kind of socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from gateway_svc.clients.departure import has_left


@pytest.fixture(params=["tcp", "unix"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    if request.param == "unix":
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            theirs = socket.create_connection(server.getsockname())
            ours, _ = server.accept()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize("sent", [b"", b"a request"])
def test_a_client_that_closes_has_left(ends: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    ours, theirs = ends
    theirs.sendall(sent)
    assert not has_left(ours.fileno())
    theirs.close()
    assert has_left(ours.fileno())
    assert ours.recv(100) == sent, "the look has taken bytes"


def test_a_client_that_resets_the_connection_has_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    assert has_left(ours.fileno())
    ours.close()
    assert has_left(ours.fileno())


def test_a_connection_that_this_end_has_closed_has_nobody() -> None:
    assert has_left(-1)
