"""An HTTP/1 server for probes and scrapes, bounded in everything: one thread, and a second one for slow answers.

    CONNECTIONS_MAX connections at a time; one more closes the oldest whose request is incomplete
    HEAD_BYTES_MAX of a request's head, which must be there REQUEST_TIMEOUT_S after the connection
    ANSWER_TIMEOUT_S for a client to receive the answer
    BACKLOG connections in the kernel's queue, so that no probe of a burst waits for its SYN to be sent again

A probe thus finds a place at once among any number of slow senders. A spare descriptor answers one client at a time
when the process has run out of descriptors. Without it the server pauses; it does not ask the listener again and again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from service_chassis import address as addresses
from service_chassis import logs

__all__ = ["Answer", "Route", "SmallHttpServer"]

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


@dataclass(eq=False, slots=True)
class _Connection:
    socket: socket.socket
    #: The time at which the server closes the connection.
    deadline: float
    #: True for the connection that holds the spare descriptor.
    has_spare: bool
    received: bytearray = field(default_factory=bytearray)
    unsent: memoryview | None = None
    #: True from the end of the request's head.
    is_asked: bool = False


class SmallHttpServer:
    """The server at `host:port`, in daemon threads from `start` to `close`; port 0 is a free one."""

    def __init__(self, address: addresses.Address, routes: Mapping[str, Route], name: str = "health") -> None:
        """Listen. Raises OSError when the address is in use or not of this machine."""
        self._routes = routes
        self._name = name
        self._connections: dict[socket.socket, _Connection] = {}
        self._resume_at: float | None = None
        self._slow: queue.SimpleQueue[tuple[_Connection, Route, Mapping[str, str]] | None] | None = None
        self._done: deque[tuple[_Connection, Answer]] = deque()
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        with contextlib.ExitStack() as undo:
            self._listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.setblocking(False)
            self._listener.bind((address.host, address.port))
            self._listener.listen(BACKLOG)
            self._woken, self._wake = socket.socketpair()
            undo.callback(self._woken.close)
            undo.callback(self._wake.close)
            self._woken.setblocking(False)
            self._wake.setblocking(False)
            self._selector = undo.enter_context(selectors.DefaultSelector())
            self._spare: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            undo.pop_all()
        self._ending = False
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop and close every connection."""
        self._ending = True
        self._wake_up()
        if self._thread.ident is not None:
            self._thread.join(_CLOSE_WAIT_S)
        if self._slow is not None:
            self._slow.put(None)
        for connection in list(self._connections.values()):
            self._close(connection)
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        self._selector.close()
        with contextlib.suppress(OSError):  # a fork of the process would keep the port open
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, self._woken, self._wake):
            each.close()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # full: the thread wakes up anyway
            self._wake.send(b"\0")

    def _serve(self) -> None:
        while True:
            ready = [(key.fileobj, events) for key, events in self._selector.select(self._wait_s())]
            if self._ending:
                return
            for source, events in ready:
                if source is self._woken:
                    self._drain_wakes()
                elif source is self._listener:
                    self._accept()
                elif isinstance(source, socket.socket) and (connection := self._connections.get(source)) is not None:
                    self._advance(connection, events)
            while self._done:
                self._begin_answer(*self._done.popleft())
            self._close_late()

    def _wait_s(self) -> float | None:
        times = [connection.deadline for connection in self._connections.values()]
        if self._resume_at is not None:
            times.append(self._resume_at)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _close_late(self) -> None:
        now = time.monotonic()
        for connection in [each for each in self._connections.values() if each.deadline <= now]:
            self._close(connection)
        if self._resume_at is not None and self._resume_at <= now:
            self._resume_at = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _drain_wakes(self) -> None:
        with contextlib.suppress(OSError):
            self._woken.recv(4096)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_TURN):
            has_spare = False
            try:
                try:
                    accepted, _address = self._listener.accept()
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE) or self._spare is None:
                        raise
                    os.close(self._spare)
                    self._spare = None
                    has_spare = True
                    accepted, _address = self._listener.accept()
            except OSError as error:
                if has_spare:
                    self._take_spare()
                if error.errno in _EXHAUSTED:
                    self._pause()
                return
            if len(self._connections) >= CONNECTIONS_MAX:
                self._make_room()  # mutant: probe-gets-place
            accepted.setblocking(False)
            connection = _Connection(accepted, time.monotonic() + REQUEST_TIMEOUT_S, has_spare)
            self._connections[accepted] = connection
            self._selector.register(accepted, selectors.EVENT_READ)
            self._advance(connection, selectors.EVENT_READ)  # most requests are there already
            if has_spare and self._spare is None:
                self._pause()
                return

    def _pause(self) -> None:
        self._selector.unregister(self._listener)
        self._resume_at = time.monotonic() + PAUSE_S  # mutant: accept-pause

    def _take_spare(self) -> None:
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _make_room(self) -> None:
        waiting = (each for each in self._connections.values() if not each.is_asked)
        self._close(next(waiting, None) or next(iter(self._connections.values())))

    def _advance(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._send(connection)
            else:
                self._receive(connection)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)

    def _receive(self, connection: _Connection) -> None:
        part = connection.socket.recv(HEAD_BYTES_MAX)
        if not part:
            self._close(connection)
            return
        begin = max(0, len(connection.received) - 3)
        connection.received += part
        end = connection.received.find(b"\r\n\r\n", begin)
        if end >= 0:
            self._ask(connection)
            self._answer(connection, bytes(connection.received[:end]))
        elif len(connection.received) > HEAD_BYTES_MAX:
            self._ask(connection)
            self._begin_answer(connection, _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def _ask(self, connection: _Connection) -> None:
        connection.is_asked = True
        connection.deadline = time.monotonic() + SLOW_ANSWER_TIMEOUT_S
        self._selector.unregister(connection.socket)  # until there is an answer to send

    def _answer(self, connection: _Connection, head: bytes) -> None:
        line, _, rest = head.decode("latin-1").partition("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._begin_answer(connection, _refusal(HTTPStatus.BAD_REQUEST))
            return
        if words[0] != "GET":
            self._begin_answer(connection, _refusal(HTTPStatus.METHOD_NOT_ALLOWED))
            return
        route = self._routes.get(words[1].partition("?")[0])
        headers = _headers(rest)
        if route is None:
            self._begin_answer(connection, _refusal(HTTPStatus.NOT_FOUND))
        elif route.is_slow:
            self._queue().put((connection, route, headers))
        else:
            self._begin_answer(connection, _called(route, headers))

    def _queue(self) -> queue.SimpleQueue[tuple[_Connection, Route, Mapping[str, str]] | None]:
        if self._slow is None:
            self._slow = queue.SimpleQueue()
            threading.Thread(target=self._answer_slowly, name=f"{self._name}-slow", daemon=True).start()
        return self._slow

    def _answer_slowly(self) -> None:
        waiting = self._queue()
        while (asked := waiting.get()) is not None:
            connection, route, headers = asked
            if connection.socket.fileno() >= 0:  # else it was closed while it waited
                self._done.append((connection, _called(route, headers)))
                self._wake_up()

    def _begin_answer(self, connection: _Connection, answer: Answer) -> None:
        if connection.socket not in self._connections:
            return
        phrase = HTTPStatus(answer.status).phrase
        head = (
            f"HTTP/1.1 {answer.status} {phrase}\r\nServer: millrace\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
        )
        connection.unsent = memoryview(head.encode() + answer.body)
        connection.deadline = time.monotonic() + ANSWER_TIMEOUT_S
        self._selector.register(connection.socket, selectors.EVENT_WRITE)
        try:
            self._send(connection)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)

    def _send(self, connection: _Connection) -> None:
        while connection.unsent:
            connection.unsent = connection.unsent[connection.socket.send(connection.unsent) :]
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_WR)
            connection.socket.recv(HEAD_BYTES_MAX)  # a close with unread bytes would reset the connection
        self._close(connection)

    def _close(self, connection: _Connection) -> None:
        if self._connections.pop(connection.socket, None) is None:
            return
        with contextlib.suppress(KeyError):  # it waits for a slow answer
            self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection.has_spare:
            self._take_spare()


def _headers(text: str) -> dict[str, str]:
    headers = {}
    for line in text.split("\r\n"):
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return headers


def _called(route: Route, headers: Mapping[str, str]) -> Answer:
    try:
        return route.answer(headers)
    except Exception:
        log.exception("no answer")
        return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)


def _refusal(status: HTTPStatus) -> Answer:
    body = f'{{"error_code": {status.value}, "message": "HTTP {status.value} {status.phrase}"}}\n'
    return Answer(status.value, "application/json", body.encode())
