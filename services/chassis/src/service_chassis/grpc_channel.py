"""A gRPC client on asyncio: a channel to one server, which connects when it is used and again when the connection ends.

    channel = Channel("host:port"); say = channel.unary("/pkg.Echo/Say", Request.SerializeToString, Answer.FromString)
    answer = await say(request, timeout=5); chat = await channel.stream("/pkg.Echo/Chat")

A call that the server has refused before it did anything for it is sent again, as gRPC's clients do. The server's
limit of calls is kept: further calls wait for a slot, the first to come first.

**A call that waits for a slot is woken.** It waits for a connection that is usable at this moment. `Connection.on_slot`
is called when a call ends, the limit grows, or the connection ends or leaves. It wakes as many calls as there are
slots. A call that is cancelled then passes its turn on.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from service_chassis.grpc_call import ClientCall
from service_chassis.grpc_status import RpcError, Status
from service_chassis.http2 import headers
from service_chassis.http2.connection import Connection
from service_chassis.http2.frames import DATA, END_HEADERS, END_STREAM, HEAD, HEADERS, MESSAGE_HEAD
from service_chassis.http2.headers import Metadata
from service_chassis.http2.limits import EXPLAINED_A_FRAME, Limits, TransportCounts

#: Seconds of an attempt to connect, up to the first SETTINGS of the server. On a busy machine they can be late.
CONNECT_TIMEOUT_S: Final = 2.0
#: Seconds between two attempts for calls that wait for the server.
RECONNECT_PAUSE_S: Final = 0.1
#: Stream ids that one connection uses; then there is another one.
_STREAM_IDS: Final = 1 << 30
#: Times that a refused call is sent.
_ATTEMPTS_MAX: Final = 5

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


class Channel:
    """A channel to `host:port` or `unix:/path`. Build it inside the event loop; `close` it, or use it as a context.

    `user_agent` goes with every call. `tls` returns the context of each connection. It must offer h2 by ALPN, and has
    the client's certificate where the server needs one. `server_name` is the name in the server's certificate, if it
    is not that of the address. `limits` bound the server's answers.
    """

    def __init__(
        self,
        address: str,
        user_agent: str = "millrace",
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
        limits: Limits | None = None,
        stream_ids: int = _STREAM_IDS,
    ) -> None:
        self.address = address
        self._tls, self._server_name = tls, server_name
        self._limits = limits or Limits()
        self._stream_ids = stream_ids
        self.counts = TransportCounts()
        self._connection: Connection | None = None
        #: The attempt to connect that is under way, for all calls that wait for it.
        self._attempt: asyncio.Task[str] | None = None
        #: Connections with calls that have not ended, the current one included.
        self._connections: set[Connection] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        #: The fields of a call by its path: as many as the contract has methods.
        self._blocks: dict[str, bytes] = {}
        authority = "localhost" if address.startswith("unix:") else address
        #: `:method: POST` and `:scheme` are in HPACK's static table.
        self._first = b"\x83\x87" if tls else b"\x83\x86"
        self._last = headers.block(
            [
                (":authority", authority),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("user-agent", user_agent),
            ]
        )

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- connections -------------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Wait until there is a connection, for as long as it takes."""
        await self.slot(wait_for_ready=True)

    def _usable(self) -> Connection | None:
        connection = self._connection
        if connection is None or connection.is_lost or connection.is_leaving:
            return None
        if connection.last_id >= self._stream_ids:  # mutant: stream-ids-end
            connection.leave()
            return None
        return connection

    def free_slot(self) -> Connection | None:
        """Return a connection on which a call may begin now, None if it has to wait for one."""
        connection = self._usable()
        return connection if connection is not None and connection.has_slot else None

    async def slot(self, *, wait_for_ready: bool) -> Connection:
        """Return a connection on which a call may begin now.

        Raises:
            RpcError: UNAVAILABLE, if there is no server and the call does not wait for it; CANCELLED after `close`.
        """
        while True:
            connection = self._usable()
            if connection is None:
                await self._connected(wait_for_ready=wait_for_ready)
                continue
            if connection.has_slot:
                return connection
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_slots()  # mutant: cancelled-turn-passed-on
                raise

    def _wake_slots(self) -> None:
        """Wake as many calls as may begin: all when there has to be another connection."""
        if not self._waiting:
            return
        connection = self._usable()
        count = len(self._waiting) if connection is None else connection.peer_streams_max - len(connection.streams)
        while self._waiting and count > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def _connected(self, *, wait_for_ready: bool) -> None:
        """Make an attempt to connect, or wait for the one under way. Pause if there is no usable connection then: the
        server may have ended it already.

        Raises:
            RpcError: as `slot`.
        """
        if self._is_closed:
            raise RpcError(Status.CANCELLED, "the channel is closed")
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.get_running_loop().create_task(self._connect(), name="connect")
        attempt = self._attempt
        await asyncio.wait({attempt})
        if attempt.cancelled() or self._usable() is not None:
            return
        reason = attempt.result() or "the server has ended the connection"
        if not wait_for_ready:
            raise RpcError(Status.UNAVAILABLE, f"no connection to {self.address}: {reason}")
        await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _connect(self) -> str:
        """Try once to connect; return why there is no connection, nothing if there is one."""
        loop = asyncio.get_running_loop()
        connection = Connection(is_client=True, limits=self._limits, counts=self.counts)
        name = self._server_name
        tls = None if self._tls is None else self._tls()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                if self.address.startswith("unix:"):
                    path = self.address.removeprefix("unix:")
                    if tls is not None:
                        name = name or "localhost"
                    await loop.create_unix_connection(lambda: connection, path, ssl=tls, server_hostname=name)
                else:
                    host, _, port = self.address.rpartition(":")
                    await loop.create_connection(
                        lambda: connection, host.strip("[]"), int(port), ssl=tls, server_hostname=name
                    )
                await asyncio.shield(connection.settled)
        except TimeoutError:
            connection.abort("no SETTINGS in time")
            return f"no answer within {CONNECT_TIMEOUT_S:g} s"
        except (OSError, ValueError) as error:
            return str(error) or type(error).__name__
        except asyncio.CancelledError:
            connection.abort("the channel is closed")
            raise
        if connection.is_lost:
            return connection.end_reason
        connection.on_slot = self._wake_slots
        self._connection = connection
        self._connections.add(connection)
        connection.lost.add_done_callback(lambda _: self._connections.discard(connection))
        return ""

    async def close(self) -> None:
        """End all calls and the connection. Calls that wait are CANCELLED."""
        self._is_closed = True
        if self._attempt is not None and not self._attempt.done():
            self._attempt.cancel()
        for connection in list(self._connections):
            for call in list(connection.streams.values()):
                if isinstance(call, ClientCall):
                    call.cancel()
            connection.leave()
        self._connection = None
        self._wake_slots()
        ends = [connection.lost for connection in self._connections]
        if ends:
            await asyncio.wait(ends, timeout=1.0)
            for connection in list(self._connections):
                connection.abort("the channel is closed")
            await asyncio.wait(ends)

    # -- calls -------------------------------------------------------------------------------------------------------

    def begin(
        self,
        connection: Connection,
        path: str,
        more: bytes = b"",
        *,
        serialize: Callable[[Any], Any] | None = None,
        parse: Callable[[Any], Any] | None = None,
        message_bytes_max: int | None = None,
    ) -> tuple[ClientCall, bytes]:
        """Return a new call on a connection with a slot, and its HEADERS frame to send at once.

        `more` is a block of the fields that are not the same for each call of the path.
        """
        connection.last_id += 2
        bytes_max = message_bytes_max or self._limits.message_bytes
        call = ClientCall(connection, connection.last_id, serialize, parse, bytes_max)
        connection.add(call)
        block = self.block(path) + more
        return call, HEAD.pack(len(block) << 8 | HEADERS, END_HEADERS, call.id) + block

    def block(self, path: str, metadata: Metadata = ()) -> bytes:
        """Return the header fields of a call."""
        block = self._blocks.get(path)
        if block is None:
            block = self._blocks[path] = self._first + headers.block([(":path", path)]) + self._last
        return block + headers.block(metadata) if metadata else block

    @property
    def is_plain(self) -> bool:
        """Whether its connections are without TLS."""
        return self._tls is None

    async def stream(
        self,
        path: str,
        *,
        metadata: Metadata = (),
        serialize: Callable[[Any], Any] | None = None,
        parse: Callable[[Any], Any] | None = None,
        message_bytes_max: int | None = None,
        wait_for_ready: bool = True,
    ) -> ClientCall:
        """Begin a call with any number of messages in each direction. `message_bytes_max`: of one of the server's.

        Raises:
            RpcError: as `slot`.
        """
        connection = await self.slot(wait_for_ready=wait_for_ready)
        call, head = self.begin(
            connection,
            path,
            headers.block(metadata),
            serialize=serialize,
            parse=parse,
            message_bytes_max=message_bytes_max,
        )
        connection.write(head)
        return call

    def unary(
        self, path: str, serialize: Callable[[RequestT], bytes], parse: Callable[[bytes], AnswerT]
    ) -> Unary[RequestT, AnswerT]:
        """Return the function of a method with one request and one answer."""
        return Unary(self, path, serialize, parse)


class Unary(Generic[RequestT, AnswerT]):
    """A method with one request and one answer, of one channel."""

    __slots__ = ("_channel", "_parse", "_path", "_serialize")

    def __init__(
        self, channel: Channel, path: str, serialize: Callable[[RequestT], bytes], parse: Callable[[bytes], AnswerT]
    ) -> None:
        self._channel, self._path = channel, path
        self._serialize, self._parse = serialize, parse

    async def __call__(
        self, request: RequestT, *, timeout: float | None = None, wait_for_ready: bool = False, metadata: Metadata = ()
    ) -> AnswerT:
        """Make the call.

        `timeout` has the seconds for the call and for the connection; None for no end. With `wait_for_ready` it waits
        while there is no server.

        Raises:
            RpcError: it did not end with OK, in time.
        """
        wire = self._serialize(request)
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        for _ in range(_ATTEMPTS_MAX):
            connection = self._channel.free_slot()
            if connection is None:
                try:
                    async with asyncio.timeout_at(until):
                        connection = await self._channel.slot(wait_for_ready=wait_for_ready)
                except TimeoutError:
                    raise RpcError(Status.DEADLINE_EXCEEDED, "the deadline is over") from None
            if connection.is_behind:  # mutant: unread-requests-bounded
                raise RpcError(Status.RESOURCE_EXHAUSTED, "too many requests wait for the server")
            call = self._send(connection, wire, until, metadata)
            try:
                while call.status is None:
                    await call.news()
            finally:
                if call.status is None:
                    call.cancel()
            if not call.may_repeat:
                break
        if call.status is not Status.OK:
            raise call.error()
        if len(call.waiting) != 1:
            raise RpcError(Status.INTERNAL, f"{len(call.waiting)} answers came, not one")
        return self._parse(call.waiting.popleft())

    def _send(self, connection: Connection, wire: bytes, until: float | None, metadata: Metadata) -> ClientCall:
        """Begin the call, and send its message, in one write if it fits."""
        more = b""
        if until is not None:
            more = _timeout_block(-int(-(until - connection.loop.time()) * 100 // 1))
        if metadata:
            more += headers.block(metadata)
        call, head = self._channel.begin(connection, self._path, more)
        if until is not None:
            call.deadline = connection.loop.call_at(until, call.expire)
        whole = len(wire) + 5
        if whole <= min(call.window, connection.window, connection.frame_bytes_max) and not connection.is_full:
            connection.window -= whole
            connection.frames_explained += EXPLAINED_A_FRAME
            data = MESSAGE_HEAD.pack(whole << 8 | DATA, END_STREAM, call.id, 0, len(wire))
            connection.write(b"".join((head, data, wire)), 2)
            call.on_finished()
        else:
            connection.write(head)
            call.send((wire,), len(wire))
            call.done_writing()
        return call


@functools.lru_cache(256)
def _timeout_block(hundredths: int) -> bytes:
    """Return a `grpc-timeout` of hundredths of a second, rounded up: many calls have the same block of headers."""
    if hundredths > 1_000_000:
        return headers.block([("grpc-timeout", f"{min(hundredths // 100, 99_999_999)}S")])
    return headers.block([("grpc-timeout", f"{max(1, hundredths) * 10}m")])
