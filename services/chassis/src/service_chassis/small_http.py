"""An HTTP/1 server for probes and scrapes, bounded in everything: one thread, and a second one for slow answers.

    CONNECTIONS_MAX connections at a time; one more closes the oldest whose request is incomplete
    HEAD_BYTES_MAX of a request's head, which must be there REQUEST_TIMEOUT_S after the connection
    ANSWER_TIMEOUT_S for a client to receive the answer
    BACKLOG connections in the kernel's queue, so that no probe of a burst waits for its SYN to be sent again

A probe thus finds a place at once among any number of slow senders. A spare descriptor answers one client at a time
when the process has run out of descriptors. Without it the server pauses; it does not ask the listener again and again.

The thread has an event loop of its own, because the service's may be stuck. The standard library's threading server
has none of these bounds: it starts a thread for each connection, and a sender of a byte now and then keeps it for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from service_chassis import address as addresses
from service_chassis import logs

CONNECTIONS_MAX = 64
HEAD_BYTES_MAX = 16 * 1024
REQUEST_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
#: Seconds until a slow answer is begun.
SLOW_ANSWER_TIMEOUT_S = 30.0
BACKLOG = 1024
#: Seconds without accepting when descriptors or memory have run out.
PAUSE_S = 0.5
#: Connections accepted in one turn.
_ACCEPT_TURN = 64
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_CLOSE_WAIT_S = 5.0

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Route:
    """The answer of a path. The function receives the request's headers, their names in lower case."""

    answer: Callable[[Mapping[str, str]], Answer]
    #: True for work of more than a moment, which then runs on the second thread, one request after the other.
    is_slow: bool = False


class SmallHttpServer:
    """The server at `host:port`, in daemon threads until `close`; port 0 is a free one."""

    def __init__(self, address: addresses.Address, routes: Mapping[str, Route], name: str = "health") -> None:
        """Listen and serve. Raises OSError when the address is in use or not of this machine."""
        self.routes = routes
        #: The connections, the oldest first. The thread owns them.
        self.connections: dict[_Connection, None] = {}
        self._name = name
        self._entering: set[asyncio.Task[object]] = set()
        self._slow: queue.SimpleQueue[tuple[_Connection, Route, Mapping[str, str]] | None] | None = None
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        with contextlib.ExitStack() as undo:
            self._listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.setblocking(False)
            self._listener.bind((address.host, address.port))
            self._listener.listen(BACKLOG)
            self._spare: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            undo.callback(os.close, self._spare)
            self._loop = asyncio.SelectorEventLoop()
            undo.pop_all()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop and close every connection."""
        self._call(self._closing.set)
        self._thread.join(_CLOSE_WAIT_S)
        with contextlib.suppress(OSError):  # a fork of the process would keep the port open
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        self._listen()
        await self._closing.wait()
        self._loop.remove_reader(self._listener)
        if self._slow is not None:
            self._slow.put(None)
        await asyncio.gather(*self._entering)
        for connection in self.connections:
            connection.transport.abort()
        await asyncio.sleep(0)  # they close in the next turn
        if self._spare is not None:
            os.close(self._spare)

    def _listen(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        if self._entering:  # most have sent their request: it is read before another may take their place
            return
        for _ in range(_ACCEPT_TURN):
            try:
                accepted, _address = self._listener.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._accept_with_spare()
                return
            self._enter(accepted)

    def _accept_with_spare(self) -> None:
        """Accept one client in the place of the spare descriptor, and no other before it has left."""
        self._loop.remove_reader(self._listener)  # mutant: accept-pause
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        try:
            accepted, _address = self._listener.accept()
        except OSError:
            self._loop.call_later(PAUSE_S, self._take_spare)
        else:
            self._enter(accepted, has_spare=True)

    def _take_spare(self) -> None:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._listen()

    def _enter(self, accepted: socket.socket, *, has_spare: bool = False) -> None:
        accepted.setblocking(False)
        connection = _Connection(self, self._loop, accepted, has_spare)
        task = self._loop.create_task(self._loop.connect_accepted_socket(lambda: connection, accepted))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    def add(self, connection: _Connection) -> None:
        if len(self.connections) >= CONNECTIONS_MAX:  # mutant: probe-gets-place
            waiting = (each for each in self.connections if not each.is_asked)
            oldest = next(waiting, None) or next(iter(self.connections))
            self.connections.pop(oldest, None)
            oldest.transport.abort()
        self.connections[connection] = None

    def left(self, connection: _Connection) -> None:
        self.connections.pop(connection, None)
        if connection.has_spare:
            self._loop.call_soon(self._take_spare)  # its descriptor is closed after this callback

    def answer_slowly(self, connection: _Connection, route: Route, headers: Mapping[str, str]) -> None:
        """Answer in the second thread, one request after the other."""
        if self._slow is None:
            self._slow = queue.SimpleQueue()
            threading.Thread(
                target=self._answer_slowly, args=(self._slow,), name=f"{self._name}-slow", daemon=True
            ).start()
        self._slow.put((connection, route, headers))

    def _answer_slowly(self, asked: queue.SimpleQueue[tuple[_Connection, Route, Mapping[str, str]] | None]) -> None:
        while (each := asked.get()) is not None:
            connection, route, headers = each
            if not connection.transport.is_closing():
                self._call(connection.send, _called(route, headers))


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    transport: asyncio.Transport

    def __init__(
        self, server: SmallHttpServer, loop: asyncio.AbstractEventLoop, accepted: socket.socket, has_spare: bool
    ) -> None:
        self._server = server
        self._loop = loop
        self._socket = accepted
        #: True for the connection that has the place of the spare descriptor.
        self.has_spare = has_spare
        #: True from the end of the request's head.
        self.is_asked = False
        self._head = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server.add(self)
        self._close_after(REQUEST_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._close_after(None)
        self._server.left(self)

    def _close_after(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self.transport.abort)

    def eof_received(self) -> bool:
        return self.is_asked  # a client may end its side and wait for the answer

    def data_received(self, data: bytes) -> None:
        begin = max(0, len(self._head) - 3)
        self._head += data
        end = self._head.find(b"\r\n\r\n", begin)
        if end < 0 and len(self._head) <= HEAD_BYTES_MAX:
            return
        self.is_asked = True
        self._close_after(SLOW_ANSWER_TIMEOUT_S)
        self.transport.pause_reading()
        if 0 <= end <= HEAD_BYTES_MAX:
            self._answer(bytes(self._head[:end]))
        else:
            self.send(_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def _answer(self, head: bytes) -> None:
        line, _, rest = head.decode("latin-1").partition("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self.send(_refusal(HTTPStatus.BAD_REQUEST))
        elif words[0] != "GET":
            self.send(_refusal(HTTPStatus.METHOD_NOT_ALLOWED))
        elif (route := self._server.routes.get(words[1].partition("?")[0])) is None:
            self.send(_refusal(HTTPStatus.NOT_FOUND))
        elif route.is_slow:
            self._server.answer_slowly(self, route, _headers(rest))
        else:
            self.send(_called(route, _headers(rest)))

    def send(self, answer: Answer) -> None:
        """Send the answer and close."""
        if self.transport.is_closing():
            return
        phrase = HTTPStatus(answer.status).phrase
        head = (
            f"HTTP/1.1 {answer.status} {phrase}\r\nServer: millrace\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
        )
        self._close_after(ANSWER_TIMEOUT_S)
        self.transport.write(head.encode() + answer.body)
        if not self.transport.get_write_buffer_size():
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
                self._socket.recv(HEAD_BYTES_MAX)  # a close with unread bytes would reset the connection
        self.transport.close()


def _headers(text: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.split("\r\n"))
    return {name.strip().lower(): value.strip() for name, colon, value in lines if colon}


def _called(route: Route, headers: Mapping[str, str]) -> Answer:
    try:
        return route.answer(headers)
    except Exception:
        log.exception("no answer")
        return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)


def _refusal(status: HTTPStatus) -> Answer:
    body = f'{{"error_code": {status.value}, "message": "HTTP {status.value} {status.phrase}"}}\n'
    return Answer(status.value, "application/json", body.encode())
