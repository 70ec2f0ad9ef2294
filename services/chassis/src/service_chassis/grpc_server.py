"""A gRPC server on asyncio: services of methods, on TCP and Unix sockets, with or without TLS.

    server = Server()
    server.add("pkg.Echo", {"Say": unary(say, Request.FromString, Answer.SerializeToString), "Chat": stream(chat)})
    server.listen("unix:/path"); await server.start(); ...; await server.stop(2.0)

A method has the call (`ServerCall`) as its last argument. It ends a call with a status by raising RpcError. An error of
another kind becomes UNKNOWN with its text. A call that the client cancels, or whose time is over, cancels the method.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from service_chassis import logs
from service_chassis.grpc_status import RpcError, Status
from service_chassis.http2 import headers
from service_chassis.http2.connection import Connection
from service_chassis.http2.frames import (
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    MESSAGE_HEAD,
    ErrorCode,
    frame,
)
from service_chassis.http2.headers import Fields, Metadata
from service_chassis.http2.limits import EXPLAINED_A_FRAME, Limits, TransportCounts
from service_chassis.http2.stream import Stream
from service_chassis.socket_room import SocketRoom

_RESPONSE: Final = b"\x88" + headers.block([("content-type", "application/grpc")])  # 0x88: `:status: 200`
_TRAILERS_OK: Final = headers.block([("grpc-status", "0")])
_NOT_GRPC: Final = headers.block([(":status", "415")])
#: Seconds of the units of `grpc-timeout`.
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_TIMEOUT_DIGITS_MAX: Final = 8
_BACKLOG: Final = 512
#: Seconds from the begin of a connection to the end of its handshake.
_HANDSHAKE_S: Final = 10.0

log = logs.get(__name__)

Parse = Callable[[Any], Any]
Serialize = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service. `unary`, `answers` and `stream` make them.

    `parse` and `serialize` make objects from bytes and back; None for bytes. With `has_stream` the client sends any
    number of messages, otherwise one. With `has_one_answer` the method returns the answer, otherwise it writes answers
    to the call. `request_bytes_max` bounds one message of the client; None for the limit of the server.
    """

    run: Callable[..., Awaitable[Any]]
    parse: Parse | None = None
    serialize: Serialize | None = None
    has_stream: bool = False
    has_one_answer: bool = False
    request_bytes_max: int | None = None


def unary(
    run: Callable[[Any, ServerCall], Awaitable[Any]],
    parse: Parse | None = None,
    serialize: Serialize | None = None,
    *,
    request_bytes_max: int | None = None,
) -> Method:
    """Return a method with one request and one answer."""
    return Method(run, parse, serialize, has_one_answer=True, request_bytes_max=request_bytes_max)


def answers(
    run: Callable[[Any, ServerCall], Awaitable[None]],
    parse: Parse | None = None,
    serialize: Serialize | None = None,
    *,
    request_bytes_max: int | None = None,
) -> Method:
    """Return a method with one request and any number of answers."""
    return Method(run, parse, serialize, request_bytes_max=request_bytes_max)


def stream(
    run: Callable[[ServerCall], Awaitable[None]],
    parse: Parse | None = None,
    serialize: Serialize | None = None,
    *,
    request_bytes_max: int | None = None,
) -> Method:
    """Return a method with a stream of messages in each direction."""
    return Method(run, parse, serialize, has_stream=True, request_bytes_max=request_bytes_max)


class ServerCall(Stream):
    """A call, for its method: messages by `read` and `write`, or by `receive`, `send_from` and `on_room`."""

    __slots__ = ("_error", "_expires_at", "_has_headers", "_method", "_path", "_server", "_task", "metadata")

    def __init__(self, server: Server, connection: Connection, stream_id: int) -> None:
        super().__init__(connection, stream_id, server.limits.message_bytes)
        self._server = server
        self._method: Method | None = None
        self._path = ""
        self._task: asyncio.Task[None] | None = None
        self._has_headers = False
        self._error: Exception | None = None
        self._expires_at: float | None = None
        #: The metadata of the client.
        self.metadata: Metadata = ()

    # -- events of the stream ----------------------------------------------------------------------------------------

    def on_headers(self, fields: Fields, *, ends: bool) -> None:
        if self._method is not None:  # trailing fields of a request, which mean nothing
            self.on_last_message()
            return
        found = fields.by_name
        self.half_closed = ends
        if not found.get("content-type", "").startswith("application/grpc") or found[":method"] != "POST":
            self._finish(END_STREAM, _NOT_GRPC)
            return
        self.metadata = fields.metadata
        path = self._path = found[":path"]
        refusal = self._server.refusal(path, found.get("user-agent", ""))
        method = self._method = self._server.method(path)
        if refusal is not None:
            self._end(Status.FAILED_PRECONDITION, refusal)
        elif method is None:
            self._end(Status.UNIMPLEMENTED, f"there is no method {path[:200]}")
        elif (timeout := found.get("grpc-timeout")) is not None and not self._set_deadline(timeout):
            self._end(Status.INTERNAL, "the grpc-timeout cannot be read")
        else:
            if method.request_bytes_max is not None:
                self.message_bytes_max = method.request_bytes_max
            if method.has_stream:
                self._task = self.connection.loop.create_task(self._run(method))
            elif ends:
                self.on_last_message()

    def _set_deadline(self, timeout: str) -> bool:
        digits, unit = timeout[:-1], _UNITS.get(timeout[-1:])
        if unit is None or not (digits.isascii() and digits.isdigit()) or len(digits) > _TIMEOUT_DIGITS_MAX:
            return False
        loop = self.connection.loop
        self._expires_at = loop.time() + int(digits) * unit
        self.deadline = loop.call_at(self._expires_at, self._expire)
        return True

    def on_last_message(self) -> None:
        self.half_closed = True
        method = self._method
        if method is not None and not method.has_stream and self._task is None and self.is_open:
            if len(self.waiting) != 1:
                self._end(Status.INTERNAL, f"{len(self.waiting)} messages came for a method that takes one")
                return
            run = self._run_unary if method.has_one_answer else self._run
            self._task = self.connection.loop.create_task(run(method, self._taken()))
        self.wake()

    def on_lost(self, status: Status, details: str) -> None:  # noqa: ARG002
        self.half_closed = True
        if self._task is not None:
            self._task.cancel()  # mutant: lost-call-cancelled

    def fail(self, status: Status, details: str) -> None:
        if self._task is not None:
            self._task.cancel()
        self.drop_unsent()  # mutant: failed-call-ends-at-once
        self._end(status, details)

    def on_callback_error(self, error: Exception) -> None:
        self._error = error
        if self.half_closed and self._task is not None:  # the method does not wait for the last message any more
            self._task.cancel()  # mutant: failed-sender-ends-its-call
        self.wake()

    def _expire(self) -> None:
        self.fail(Status.DEADLINE_EXCEEDED, "the deadline is over")

    # -- running a method --------------------------------------------------------------------------------------------

    async def _run_unary(self, method: Method, message: bytes) -> None:
        try:
            request = message if method.parse is None else method.parse(message)
            answer = await method.run(request, self)
            wire = answer if method.serialize is None else method.serialize(answer)
        except (Exception, asyncio.CancelledError) as error:
            self._end_with(error)
            return
        self._answer(wire)

    def _answer(self, wire: bytes) -> None:
        """Send the one answer and its trailers, in one write if they fit."""
        connection = self.connection
        whole = len(wire) + 5
        if not self.is_open:
            return
        if whole > min(self.window, connection.window, connection.frame_bytes_max) or connection.is_full:
            if connection.is_behind:  # mutant: unread-answers-bounded
                self.fail(Status.RESOURCE_EXHAUSTED, "too many answers wait for the client")
                return
            self._open()
            self.send((wire,), len(wire))
            self._end(Status.OK, "")
            return
        head = b"" if self._has_headers else HEAD.pack(len(_RESPONSE) << 8 | HEADERS, END_HEADERS, self.id) + _RESPONSE
        connection.window -= whole
        connection.frames_explained += EXPLAINED_A_FRAME
        data = MESSAGE_HEAD.pack(whole << 8, 0, self.id, 0, len(wire))
        trailers = HEAD.pack(len(_TRAILERS_OK) << 8 | HEADERS, END_HEADERS | END_STREAM, self.id) + _TRAILERS_OK
        connection.write(b"".join((head, data, wire, trailers)), 3 if head else 2)
        connection.forget(self)

    async def _run(self, method: Method, *messages: bytes) -> None:
        try:
            requests = [message if method.parse is None else method.parse(message) for message in messages]
            await method.run(*requests, self)
        except (Exception, asyncio.CancelledError) as error:
            self._end_with(error)
        else:
            self._end(Status.OK, "")

    def _end_with(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError) and self._error is not None:
            error = self._error
        if isinstance(error, RpcError):
            self._end(error.status, error.details)
        elif isinstance(error, asyncio.CancelledError):  # of something that the method waited for, or the call is lost
            self._end(Status.CANCELLED, "the method was cancelled")
        else:
            log.error("method failed", method=self._path, exc_info=error)
            self._end(Status.UNKNOWN, f"{type(error).__name__}: {error}")

    def _end(self, status: Status, details: str) -> None:
        """End the call with trailers, after the messages that wait."""
        if not self.is_open:
            return
        fields = [("grpc-status", str(status.value))]
        if details:
            fields.append(("grpc-message", headers.escaped(details[:2000])))
        block = headers.block(fields) if status or details else _TRAILERS_OK
        self._finish(END_STREAM, block if self._has_headers else _RESPONSE + block)

    def _finish(self, flags: int, block: bytes) -> None:
        self.finish(frame(HEADERS, END_HEADERS | flags, self.id, block))

    def on_finished(self) -> None:
        if self.half_closed:
            self.connection.forget(self)
        else:  # the client need not send the rest (RFC 9113, 8.1)
            self.connection.reset(self, ErrorCode.NO_ERROR)

    # -- for methods -------------------------------------------------------------------------------------------------

    def _open(self, block: bytes = b"") -> None:
        if not self._has_headers and self.is_open:
            self._has_headers = True
            self.connection.write(frame(HEADERS, END_HEADERS, self.id, _RESPONSE + block))

    def begin(self, metadata: Metadata = ()) -> None:
        """Send the metadata that precedes the answers. `send` needs it; `write` does it."""
        self._open(headers.block(metadata))

    async def read(self) -> Any:
        """Return the next message of the client; None after the last one."""
        message = await self.next_message()
        parse = None if self._method is None else self._method.parse
        return message if message is None or parse is None else parse(message)

    async def write(self, answer: Any) -> None:
        """Send an answer, and wait until there is room for another.

        Raises:
            RpcError: the call has ended.
        """
        serialize = None if self._method is None else self._method.serialize
        wire = answer if serialize is None else serialize(answer)
        if not self.is_open:
            raise RpcError(Status.CANCELLED, "the call has ended")
        self._open()
        self.send((wire,), len(wire))
        await self.room()

    async def write_file(self, prefix: bytes, descriptor: int, position: int, length: int) -> None:
        """Send an answer of `prefix` and a range of a file, and wait until the file is needed no more.

        The system sends the range where the client's windows have room for all of it, without TLS. Otherwise its bytes
        are read, which must not wait for the disk.

        Raises:
            RpcError: the call has ended, or the file is shorter.
        """
        if not self.is_open:
            raise RpcError(Status.CANCELLED, "the call has ended")
        connection = self.connection
        first = b""
        if not self._has_headers:
            first = HEAD.pack(len(_RESPONSE) << 8 | HEADERS, END_HEADERS, self.id) + _RESPONSE
        sent = connection.loop.create_future()
        done = functools.partial(_complete, sent)
        if connection.send_file(self, first, prefix, (descriptor, position, length), done):
            self._has_headers = True
            await sent
            return
        data = os.pread(descriptor, length, position)
        if len(data) != length:
            raise RpcError(Status.DATA_LOSS, "a file is shorter than its range")
        self._open()
        self.send((data,), length, prefix)
        await self.room()

    async def last_message(self) -> None:
        """Wait until the client has sent its last message. Raises the error of the receiver, if it raised one."""
        while not self.half_closed and self._error is None:
            await self.news()
        if self._error is not None:
            raise self._error

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None without one."""
        return None if self._expires_at is None else self._expires_at - self.connection.loop.time()

    def peer(self) -> str:
        """Return the address of the client, for logs."""
        name = self.connection.transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():  # its task may be cancelled
        future.set_result(None)


class Server:
    """A server without ports until `listen`.

    `refusal` returns why a caller with a user agent may not call a path; None if it may. `tls` offers h2 by ALPN. If it
    has CERT_REQUIRED, clients need a certificate. `peer_refusal` returns why the client of a connection with TLS may
    not connect, None if it may.
    """

    def __init__(
        self,
        refusal: Callable[[str, str], str | None] = lambda _path, _agent: None,
        *,
        tls: ssl.SSLContext | None = None,
        peer_refusal: Callable[[ssl.SSLObject], str | None] = lambda _tls: None,
        limits: Limits | None = None,
    ) -> None:
        self.refusal = refusal
        self._peer_refusal = peer_refusal
        self._is_stopping = False
        self.limits = limits or Limits()
        self.counts = TransportCounts()
        self._tls = tls
        self._methods: dict[str, Method] = {}
        self._sockets: list[socket.socket] = []
        self._listeners: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        #: The place where connections that send files wait for room; None before `start`.
        self._room: SocketRoom | None = None

    def add(self, service: str, methods: Mapping[str, Method]) -> None:
        """Serve the methods of a service, by its full name."""
        self._methods.update({f"/{service}/{name}": method for name, method in methods.items()})

    def method(self, path: str) -> Method | None:
        return self._methods.get(path)

    def listen(self, address: str) -> int:
        """Bind `host:port` or `unix:/path`; return the port, 1 for a Unix socket.

        Raises:
            OSError: the address cannot be bound.
        """
        try:
            sock = _bound(address)
        except (OSError, ValueError) as error:
            raise OSError(f"cannot listen at {address}: {error}") from error
        self._sockets.append(sock)
        return 1 if sock.family == socket.AF_UNIX else int(sock.getsockname()[1])

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._room = SocketRoom(loop)
        for sock in self._sockets:
            create = loop.create_unix_server if sock.family == socket.AF_UNIX else loop.create_server
            within_s = None if self._tls is None else _HANDSHAKE_S
            listener = create(self._connect, sock=sock, ssl=self._tls, ssl_handshake_timeout=within_s, backlog=_BACKLOG)
            self._listeners.append(await listener)

    def _connect(self) -> Connection:
        def accept(connection: Connection, stream_id: int) -> Stream:
            return ServerCall(self, connection, stream_id)

        return Connection(
            is_client=False,
            limits=self.limits,
            counts=self.counts,
            accept=accept,
            room=self._room,
            admit=self._admit,
        )

    def _admit(self, connection: Connection) -> str | None:
        """Count a connection; return why it is refused. A client that fails in its handshake never comes here."""
        if self._is_stopping:
            return "the server has stopped"
        if len(self._connections) >= self.limits.connections:  # mutant: connections-bounded
            self.counts.floods += 1
            return "too many connections"
        tls = connection.transport.get_extra_info("ssl_object")
        if tls is not None and (reason := self._peer_refusal(tls)) is not None:
            log.warning("connection refused", reason=reason)
            return reason
        self._connections.add(connection)
        connection.lost.add_done_callback(lambda _: self._connections.discard(connection))
        return None

    async def stop(self, grace_s: float | None) -> None:
        """Accept no new calls, and cut those that have not ended after `grace_s` seconds (None for at once)."""
        self._is_stopping = True
        for listener in self._listeners:
            listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.close()
        connections = list(self._connections)
        for connection in connections:
            connection.leave()
        ends = [connection.lost for connection in connections]
        if ends and grace_s:
            await asyncio.wait(ends, timeout=grace_s)
        for connection in connections:
            if not connection.is_lost:
                connection.abort("the server has stopped")
        if ends:
            await asyncio.wait(ends)
        await asyncio.sleep(0)  # the methods of the calls that were cut end
        if self._room is not None:
            self._room.close()


def _bound(address: str) -> socket.socket:
    path = address.removeprefix("unix:")
    if path != address:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(path).st_mode):
                os.unlink(path)  # of a server that was killed
        sock = socket.socket(socket.AF_UNIX)
        os.fchmod(sock.fileno(), 0o600)  # mutant: unix-socket-private
        where: Any = path
    else:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        where = (host, int(port))
    try:
        sock.bind(where)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
