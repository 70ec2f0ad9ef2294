"""Connections: silent and slow clients are cut off, a new client finds a place among any number of them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from service_chassis import address
from service_chassis.http import connections
from service_chassis.http.connections import Connections
from service_chassis.http.rules import Rules
from service_chassis.http.server import serving
from service_chassis.listeners import listen
from starlette.types import Receive, Scope, Send
from support.loop_thread import LoopThread
from support.waiting import until

from tests.unit.service_chassis.http.conftest import RULES

#: A time that no test sees pass.
NEVER_S = 3600.0
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Server:
    """The connections of a server before an application of its test: it answers `answer` to every request."""

    def __init__(self, loop: LoopThread) -> None:
        self.answer = b"answer"
        self.requests = 0
        #: Whether the application reads the body.
        self.reads = True
        #: Whether the answer begins before the body, and ends after it.
        self.begins_early = False
        self.connections = Connections(RULES)
        self.port = 0
        self._loop = loop
        self._opened = contextlib.AsyncExitStack()
        self._clients = contextlib.ExitStack()

    def start(self, rules: Rules = RULES, **limits: int) -> None:
        self.connections = Connections(rules, **limits)

        async def start() -> None:
            sockets = listen(address.parse("127.0.0.1:0"))
            self.port = sockets[0].getsockname()[1]
            await self._opened.enter_async_context(serving(self._app, sockets, self.connections, stop_deadline_s=1))

        self._loop.run(start())

    def close(self) -> None:
        self._clients.close()
        self._loop.run(self._opened.aclose())

    def connect(self, sent: bytes = b"", receive_bytes: int = 0) -> socket.socket:
        client = self._clients.enter_context(socket.socket())
        if receive_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(30)
        client.connect(("127.0.0.1", self.port))
        client.sendall(sent)
        return client

    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of connections: open, waiting for their client, slow to receive."""

        async def count() -> tuple[int, int, int]:
            return len(self.connections.open), len(self.connections.waiting), len(self.connections.unsent)

        return self._loop.run(count())

    async def _app(self, _scope: Scope, receive: Receive, send: Send) -> None:
        self.requests += 1
        while self.reads and (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", b"%d" % len(self.answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if self.begins_early:
            await send({"type": "http.response.body", "body": self.answer[:1], "more_body": True})
            while (await receive()).get("more_body"):
                pass
            return
        await send({"type": "http.response.body", "body": self.answer})


@pytest.fixture
def server(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    _set_timeouts(monkeypatch)
    server = Server(loop)
    yield server
    server.close()


def _set_timeouts(monkeypatch: pytest.MonkeyPatch, **timeouts_s: float) -> None:
    """Set the timeouts `head`, `body` and `send`; a timeout without a value never passes."""
    given = {"head": NEVER_S, "body": NEVER_S, "send": NEVER_S} | timeouts_s
    waits = connections._Waits
    monkeypatch.setattr(connections, "_TIMEOUTS_S", {waits.HEAD: given["head"], waits.BODY: given["body"]})
    monkeypatch.setattr(connections, "SEND_TIMEOUT_S", given["send"])


def _all_of(client: socket.socket) -> bytes:
    """Return the bytes until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            received += part
    return received


def _answered(client: socket.socket, times: int = 1) -> None:
    """Receive until this number of answers has come; there are no bytes after them."""
    received = b""
    while received.count(b"\r\n\r\nanswer") < times:
        part = client.recv(65536)
        assert part, received
        received += part
    assert received.endswith(b"answer")


def test_a_client_that_sends_nothing_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_timeouts(monkeypatch, head=0.05)
    server.start()
    assert _all_of(server.connect()) == b""
    until(lambda: server.counts() == (0, 0, 0))


@pytest.mark.parametrize("sent", [b"P", HEAD, HEAD + b"Content-Length: 10\r\n"])
def test_half_a_head_is_answered_and_closed(server: Server, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_timeouts(monkeypatch, head=0.05)
    server.start()
    answer = _all_of(server.connect(sent))
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert answer.endswith(b'{"errors":[408,"HTTP 408 Request Timeout"]}')


def test_the_time_for_a_later_head_begins_with_its_first_byte(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.start()
    client = server.connect(GET)
    _answered(client)
    assert server.counts() == (1, 1, 0)
    _set_timeouts(monkeypatch, head=0.05)
    client.sendall(b"G")
    assert _all_of(client).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("sent", [b"", b"x" * 9])
def test_a_body_that_never_ends_is_cut_off(server: Server, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_timeouts(monkeypatch, body=0.05)
    server.start()
    assert _all_of(server.connect(HEAD + b"Content-Length: 10\r\n\r\n" + sent)) == b""


def test_an_answer_before_the_end_of_its_body_ends_the_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sees the end at once. Bytes that it still sends are dropped for a while: a reset hides the answer."""
    monkeypatch.setattr(connections, "LINGER_S", NEVER_S)
    server.reads = False
    server.start()
    client = server.connect(HEAD + b"Content-Length: 1000000\r\n\r\n")
    assert _all_of(client).endswith(b"\r\n\r\nanswer")
    client.sendall(b"x" * 999_999 + b"y" + GET)
    assert (server.counts(), server.requests) == ((1, 1, 0), 1)
    monkeypatch.setattr(connections, "LINGER_S", 0.05)
    assert _all_of(server.connect(HEAD + b"Content-Length: 10\r\n\r\n")).endswith(b"answer")
    until(lambda: server.counts() == (1, 1, 0))


def test_requests_in_time_are_not_disturbed(server: Server) -> None:
    server.start()
    client = server.connect()
    for _ in range(3):
        for byte in HEAD + b"Content-Length: 3\r\n\r\nabc":
            client.sendall(bytes([byte]))
        _answered(client)
    client.sendall(GET * 3)
    _answered(client, times=3)
    assert server.counts() == (1, 1, 0)


def test_a_new_client_takes_the_place_of_the_one_that_waits_longest(server: Server) -> None:
    server.start(limit=8)
    silent = [server.connect() for _ in range(4)]
    halves = [server.connect(HEAD) for _ in range(2)]
    bodies = [server.connect(HEAD + b"Content-Length: 10\r\n\r\n123") for _ in range(2)]
    until(lambda: server.counts()[0] == 8)
    for old in (*silent, *halves, *bodies):
        new = server.connect(GET)
        _answered(new)
        assert _all_of(old) == b""
    assert server.counts()[0] == 8


@pytest.mark.parametrize("grace_s", [NEVER_S, 0.0])
def test_slow_receivers_give_way_before_new_clients(
    server: Server, grace_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its grace, a client that sent nothing gives way before slow receivers."""
    monkeypatch.setattr(connections, "GRACE_S", grace_s)
    server.answer = b"x" * 4_000_000
    server.start(limit=4)
    silent = server.connect()
    until(lambda: server.counts() == (1, 1, 0))
    for count in (1, 2, 3):
        server.connect(GET, receive_bytes=4096)
        until(lambda count=count: server.counts() == (count + 1, count + 1, count))
    if not grace_s:
        server.connect()
        assert _all_of(silent) == b""
    for left in (2, 1, 0):
        server.connect()
        until(lambda left=left: server.counts() == (4, 4, left))
    if grace_s:
        server.connect()
        assert _all_of(silent) == b""


@pytest.mark.parametrize("chunks", [512, 513])
def test_a_body_of_many_chunks_is_refused(server: Server, chunks: int) -> None:
    server.start()
    client = server.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * chunks + b"0\r\n\r\n")
    if chunks > 512:
        assert b"HTTP/1.1 400 " in _all_of(client)
    else:
        _answered(client)
    client = server.connect(GET)
    _answered(client)


@pytest.mark.parametrize(("size", "is_served"), [(16, True), (1, False)])
def test_a_stream_may_have_a_part_for_each_record(
    server: Server, size: int, is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that are too small for a record are bounded: each costs more than its bytes."""
    monkeypatch.setattr(connections, "STREAM_PARTS_MAX", 50)
    server.start(replace(RULES, reads_in_parts=lambda _method, _path: "stream"))
    part = b"%x\r\n%s\r\n" % (size, b"x" * size)
    client = server.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + part * 600 + b"0\r\n\r\n")
    if is_served:
        _answered(client)
    else:
        assert b"HTTP/1.1 400 " in _all_of(client)


def test_a_client_that_does_not_receive_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_timeouts(monkeypatch, send=0.05)
    server.answer = b"x" * 16_000_000
    server.start()
    client = server.connect(GET, receive_bytes=4096)
    until(lambda: server.requests == 1 and server.counts() == (0, 0, 0))
    assert len(_all_of(client)) < 16_000_000


@pytest.mark.parametrize("head", [GET, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")])
def test_a_client_that_receives_slowly_gets_all(server: Server, head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each interval with some progress is followed by another."""
    _set_timeouts(monkeypatch, send=1.0)
    server.answer = b"x" * 3_000_000
    server.start()
    client = server.connect(head, receive_bytes=4096)
    received = 0
    while received < 3_000_000:
        received += len(client.recv(65536))


def test_the_next_request_waits_until_its_client_has_received(server: Server) -> None:
    """Else each connection would hold a second answer, which does not count as unsent yet."""
    server.answer = b"x" * 16_000_000
    server.start()
    client = server.connect(GET * 2, receive_bytes=4096)
    until(lambda: server.counts() == (1, 1, 1))
    assert server.requests == 1
    received = 0
    while received < 32_000_000:
        received += len(client.recv(65536))
    assert server.requests == 2


def test_unsent_answers_are_bounded_in_all(server: Server) -> None:
    server.answer = b"x" * 16_000_000
    server.start(unsent_bytes_max=40_000_000)
    for _ in range(8):
        before = server.counts()[2]
        server.connect(GET, receive_bytes=4096)
        until(lambda before=before: server.counts()[2] == min(before + 1, 2) or server.counts()[2] == 3)
    assert server.counts()[2] in (2, 3)


@pytest.mark.parametrize("lines", [101, 5000])
def test_too_many_lines_of_a_head_are_refused(server: Server, lines: int) -> None:
    server.start()
    answer = _all_of(server.connect(b"GET / HTTP/1.1\r\n" + b"a:\r\n" * lines + b"\r\n"))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")  # a sender in the middle may see the reset alone
    until(lambda: server.counts() == (0, 0, 0))


def test_lines_of_a_body_are_not_those_of_a_head(server: Server) -> None:
    server.start()
    body = b"\n" * 7000
    client = server.connect(HEAD + b"Content-Length: %d\r\n\r\n" % (3 * len(body)) + body * 3)
    _answered(client)
    client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 90 + b"\r\n")
    _answered(client)


def test_a_long_head_is_refused(server: Server) -> None:
    server.start()
    answer = _all_of(server.connect(b"GET / HTTP/1.1\r\nx: " + b"a" * 30_000))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    until(lambda: server.counts() == (0, 0, 0))


def test_answers_are_not_held_back() -> None:
    """Only where the protocol is named does asyncio set TCP_NODELAY; without it every answer waits 40 ms for an ACK."""
    sockets = listen(address.parse("localhost:0"))
    try:
        assert {each.proto for each in sockets} == {socket.IPPROTO_TCP}
        assert len({each.getsockname()[1] for each in sockets}) == 1
    finally:
        for each in sockets:
            each.close()


@pytest.mark.parametrize("begins_early", [False, True])
def test_a_body_that_cannot_be_read(server: Server, caplog: pytest.LogCaptureFixture, begins_early: bool) -> None:
    server.start()
    server.begins_early, server.reads = begins_early, not begins_early
    client = server.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
    received = client.recv(4096) if begins_early else b""
    client.sendall(b"zz\r\n")
    while part := client.recv(4096):
        received += part
    assert received.startswith(b"HTTP/1.1 200 OK" if begins_early else b"HTTP/1.1 400 Bad Request")
    assert received.endswith(b"\r\n\r\na" if begins_early else b'{"errors":[400,"HTTP 400 Bad Request"]}')
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []
