"""Connections: silent and slow clients are cut off, a new client finds a place among any number of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from admin_api import connections, middleware
from admin_api.access import Access
from admin_api.connections import Connections
from admin_api.origins import Hosts
from admin_api.server import listen, serving
from admin_api.settings import AdminSettings
from prometheus_client import CollectorRegistry
from service_chassis import address
from starlette.types import Receive, Scope, Send

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Loop, Stack

#: A time that no test sees pass.
NEVER_S = 3600.0
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Server:
    """The REST server's connections before an application of its test: it answers `answer` to every request."""

    def __init__(self, loop: Loop) -> None:
        self.answer = b"answer"
        self.requests = 0
        self.connections = Connections()
        self.port = 0
        self._loop = loop
        self._opened = contextlib.AsyncExitStack()
        self._clients = contextlib.ExitStack()

    def start(self, **limits: int) -> None:
        self.connections = Connections(**limits)

        async def start() -> None:
            sockets = listen(address.parse("127.0.0.1:0"))
            self.port = sockets[0].getsockname()[1]
            await self._opened.enter_async_context(
                serving(self._app, sockets, stop_deadline_s=1, connections=self.connections)
            )

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
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", b"%d" % len(self.answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.answer})


@pytest.fixture
def server(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
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
    until_ready(lambda: server.counts() == (0, 0, 0))


@pytest.mark.parametrize("sent", [b"P", HEAD, HEAD + b"Content-Length: 10\r\n"])
def test_half_a_head_is_answered_and_closed(server: Server, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_timeouts(monkeypatch, head=0.05)
    server.start()
    answer = _all_of(server.connect(sent))
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert answer.endswith(b'{"error_code":408,"message":"HTTP 408 Request Timeout"}')


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
    until_ready(lambda: server.counts()[0] == 8)
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
    until_ready(lambda: server.counts() == (1, 1, 0))
    for count in (1, 2, 3):
        server.connect(GET, receive_bytes=4096)
        until_ready(lambda count=count: server.counts() == (count + 1, count + 1, count))
    if not grace_s:
        server.connect()
        assert _all_of(silent) == b""
    for left in (2, 1, 0):
        server.connect()
        until_ready(lambda left=left: server.counts() == (4, 4, left))
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


def test_a_request_whose_sender_left_in_the_middle_is_not_run(stack: Stack) -> None:
    host, port = stack.base_url.removeprefix("http://").split(":")
    body = b'{"topic_name": "left-behind"}'
    head = (
        f"POST {stack.cluster}/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body) + 1}\r\n\r\n"
    ).encode()
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(head + body)
        assert stack.http.get(f"{stack.cluster}/topics/left-behind").status_code == 404
    for _ in range(20):
        assert stack.http.get(f"{stack.cluster}/topics/left-behind").status_code == 404


def test_a_client_that_does_not_receive_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    _set_timeouts(monkeypatch, send=0.05)
    server.answer = b"x" * 16_000_000
    server.start()
    client = server.connect(GET, receive_bytes=4096)
    until_ready(lambda: server.requests == 1 and server.counts() == (0, 0, 0))
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
    until_ready(lambda: server.counts() == (1, 1, 1))
    assert server.requests == 1
    received = 0
    while received < 32_000_000:
        received += len(client.recv(65536))
    assert server.requests == 2


async def test_a_slow_receiver_of_an_answer_holds_up_no_other_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "RUNNING_MAX", 1)
    received = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await received.wait()
        await send({"type": "http.response.body"})

    ring = _ring(app)
    slow = [asyncio.create_task(_status(ring, "/docs")) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not ring._running.locked()
    assert ring._waiting == 0
    received.set()
    assert await asyncio.gather(*slow) == [200] * 5


def test_unsent_answers_are_bounded_in_all(server: Server) -> None:
    server.answer = b"x" * 16_000_000
    server.start(unsent_bytes_max=40_000_000)
    for _ in range(8):
        before = server.counts()[2]
        server.connect(GET, receive_bytes=4096)
        until_ready(lambda before=before: server.counts()[2] == min(before + 1, 2) or server.counts()[2] == 3)
    assert server.counts()[2] in (2, 3)


@pytest.mark.parametrize("lines", [101, 5000])
def test_too_many_lines_of_a_head_are_refused(server: Server, lines: int) -> None:
    server.start()
    answer = _all_of(server.connect(b"GET / HTTP/1.1\r\n" + b"a:\r\n" * lines + b"\r\n"))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")  # a sender in the middle may see the reset alone
    until_ready(lambda: server.counts() == (0, 0, 0))


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
    until_ready(lambda: server.counts() == (0, 0, 0))


def test_slow_senders_hold_no_place_among_the_requests(stack: Stack) -> None:
    """A probe and a request are served at once, while more slow senders are there than requests may run or wait."""
    host, port = stack.base_url.removeprefix("http://").split(":")
    head = f"POST {stack.cluster}/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx".encode()
    with contextlib.ExitStack() as held:
        for _ in range(middleware.RUNNING_MAX + middleware.WAITING_MAX + 1):
            held.enter_context(socket.create_connection((host, int(port)), timeout=30)).sendall(head)
        for path in ("/healthz", "/v3/clusters"):
            assert stack.http.get(path).status_code == 200


async def test_a_request_takes_no_place_before_its_body_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "RUNNING_MAX", 1)
    monkeypatch.setattr(middleware, "WAITING_MAX", 0)

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    ring = _ring(app)
    sending = asyncio.create_task(_status(ring, "/v3/slow", headers=[(b"content-length", b"1000")]))
    await asyncio.sleep(0.01)
    assert await _status(ring, "/v3/clusters") == 200
    assert not sending.done()
    sending.cancel()


async def test_requests_above_the_limit_wait_for_their_turn_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "RUNNING_MAX", 2)
    monkeypatch.setattr(middleware, "WAITING_MAX", 3)
    may_end = asyncio.Event()

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["path"] == "/v3/clusters":
            await may_end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    ring = _ring(app)
    asked = [asyncio.create_task(_status(ring, "/v3/clusters")) for _ in range(6)]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in asked if task.done()] == [503]
    assert await _status(ring, "/healthz") == 200
    may_end.set()
    assert sorted(await asyncio.gather(*asked)) == [200] * 5 + [503]
    monkeypatch.setattr(middleware, "WAIT_TIMEOUT_S", 0.01)
    may_end.clear()
    running = [asyncio.create_task(_status(ring, "/v3/clusters")) for _ in range(2)]
    await asyncio.sleep(0)
    assert await _status(ring, "/v3/clusters") == 503
    may_end.set()
    assert await asyncio.gather(*running) == [200, 200]


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        (b"&".join([b"a=1"] * 16), [], 200),
        (b"&".join([b"a=1"] * 17), [], 400),
        (b"", [(b"a", b"1")] * 99, 200),
        (b"", [(b"a", b"1")] * 100, 431),
    ],
)
async def test_requests_of_many_parts_are_refused(query: bytes, headers: list[Any], status: int) -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    assert await _status(_ring(app), "/v3/clusters", query, headers) == status
    assert len(seen) == (status == 200)


async def test_cookies_are_dropped() -> None:
    names: list[bytes] = []

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        names.extend(name for name, _ in scope["headers"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    await _status(_ring(app), "/v3/clusters", headers=[(b"cookie", b"a=1; b=2"), (b"x", b"y")])
    assert names == [b"host", b"x"]


def _ring(app: Callable[..., Any]) -> middleware.RequestRing:
    return middleware.RequestRing(
        app, metrics=middleware.HttpMetrics(CollectorRegistry()), hosts=Hosts(None), access=Access(AdminSettings())
    )


async def _status(ring: middleware.RequestRing, path: str, query: bytes = b"", headers: list[Any] | None = None) -> int:
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query,
        "headers": [(b"host", b"localhost"), *(headers or [])],
    }  # fmt: skip
    await ring(scope, receive, send)
    return statuses[0]
