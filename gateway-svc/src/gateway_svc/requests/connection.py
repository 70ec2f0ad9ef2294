"""One client connection: bytes in, requests out, answers back in order.

Receiving. All connections read into one shared buffer, so an idle one holds no memory. A complete request is copied
out of it once (`starting`). A request longer than SMALL_REQUEST_BYTES is received into a buffer of its own
(`long_request`).

    frame = length i32, then that many bytes; a length below 8 (no header fits) or above the limit ends the connection

The socket of a member that only lives on is read together with others (`quiet_connections`), as if it were by the loop.

Reading pauses while requests wait: for their place in the pipeline (`waiting`), for the client to read its answers
(`sending`), for their turn on the way to storage (`append_window`), or for memory (`memory`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, cast

from service_chassis import logs

from gateway_svc.clients.answer_writer import AnswerWriter
from gateway_svc.clients.connections import SHARED_BUFFER_BYTES, Connections
from gateway_svc.clients.long_request import FULL_READ_BYTES, LongRequest
from gateway_svc.clients.pipeline import Kind, Pending, Pipeline, release
from gateway_svc.clients.slices import Part
from gateway_svc.errors import RequestRefused
from gateway_svc.requests.call import Call, Services
from gateway_svc.requests.dispatch import Dispatcher
from gateway_svc.requests.path import SMALL_REQUEST_BYTES, RequestStarter

#: api key, version, correlation id: what every request has.
_REQUEST_BYTES_MIN = 8

#: Begins where no other gateway, and none that ran before, is likely to be.
_connection_ids: Final = itertools.count(secrets.randbits(63))

_log = logs.get(__name__)

_length: Final = Struct(">i").unpack_from


class Connection(asyncio.BufferedProtocol):
    """Implements `context.Client`. Lives from accept to close; `Connections` knows all of them."""

    def __init__(self, listener: str, services: Services, dispatcher: Dispatcher, connections: Connections) -> None:
        self.listener = listener
        self.connection_id = next(_connection_ids)
        self.host = ""
        self.peer = ""
        self.handler_states: dict[int, Any] = {}
        self._services = services
        self._dispatcher = dispatcher
        self._connections = connections
        self._limit = services.settings.socket_request_max_bytes
        self._pipeline = Pipeline()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._writer: AnswerWriter = cast(AnswerWriter, None)
        self._starter: RequestStarter = cast(RequestStarter, None)
        self._closed = False
        #: Whether requests are being started: what they answer at once leaves when all are.
        self._starting = False
        #: Whether answers may leave and nobody has sent them yet.
        self._flush_due = False
        self._reading = True
        #: The socket's descriptor while it is read with the quiet ones, not by the loop; -1 otherwise.
        self._quiet = -1
        #: Bytes that arrived and are no complete request, or requests that may not start yet.
        self._rest: bytes = b""
        #: Where in `rest` they begin.
        self._rest_at = 0
        #: One that is being received, or has been and may not start yet.
        self._long: LongRequest | None = None
        #: When the first byte of the request being received came; None between requests, and while complete requests
        #: wait. It runs on while reading is paused for want of memory, so that what fills the memory cannot keep it.
        self.frame_started_at: float | None = None
        self.active_at = 0.0

    # -- asyncio's callbacks ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("unknown", 0)
        self.host = address[0].removeprefix("::ffff:")
        self.peer = f"[{self.host}]:{address[1]}" if ":" in self.host else f"{self.host}:{address[1]}"
        self.active_at = self._services.loop.time()
        if not self._connections.admit(self):
            self._closed = True
            self._transport.abort()
            return
        self._writer = AnswerWriter(
            self._transport,
            self._services.room,
            self._services.answers,
            drained=self._go_on,
            failed=lambda _reason: self.abort(),
        )
        shared = self._connections.shared_buffer
        self._starter = RequestStarter(self, self._services, self._dispatcher, self._pipeline, self._writer, shared)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        if self._writer is None:  # it was not admitted
            self._pipeline.close()
            return
        if not self._closed and self._incomplete():
            self._refused(RequestRefused("frame_cut", "the connection ended in the middle of a request"), None)
        self._closed = True
        self.rouse()
        for pending in self._pipeline.unanswered():
            self._services.requests.give(pending.size)
        self._pipeline.close()
        self._starter.close()
        self._writer.close()
        self._drop_long()
        self._services.requests.forget(self)
        if self._services.storage.window is not None:
            self._services.storage.window.forget(self)
        self._connections.remove(self)
        # Both refer to this connection: it is freed now, not when Python's collector comes.
        self._writer = cast(AnswerWriter, None)
        self._starter = cast(RequestStarter, None)

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self.active_at = self._services.loop.time()
        self._writer.resume()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        if self._long is not None:
            return self._long.room()
        shared = self._connections.shared_view
        kept = len(self._rest)
        if kept:
            shared[:kept] = self._rest
        elif not self._services.requests.full:
            return shared
        return shared[kept : kept + FULL_READ_BYTES] if self._services.requests.full else shared[kept:]

    def buffer_updated(self, count: int) -> None:
        self.active_at = self._services.loop.time()
        if self._closed:
            return
        try:
            if self._long is not None:
                self._receive_long(self._long, count)
            else:
                received = len(self._rest) + count
                self._consume(self._connections.shared_buffer, 0, received)
                if received == SHARED_BUFFER_BYTES:
                    self._let_others()
        except RequestRefused as refusal:
            self.refuse(refusal)

    def quieten(self) -> None:
        if self._reading and self._quiet < 0:
            self._transport.pause_reading()
            self._quiet = self._transport.get_extra_info("socket").fileno()
            self._connections.quiet.add(self._quiet, self)

    def rouse(self) -> None:
        if self._quiet >= 0:
            self._connections.quiet.remove(self._quiet)
            self._quiet = -1
            if self._reading and not self._closed:
                self._transport.resume_reading()

    def read_quiet(self) -> None:
        if not self._reading:
            self.rouse()
            return
        try:
            count = os.readv(self._quiet, (self.get_buffer(-1),))
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self.rouse()  # the transport finds what has happened
            return
        try:
            self.buffer_updated(count)
        except Exception:
            _log.exception("request failed", peer=self.peer)
            self.abort()

    # -- requests --------------------------------------------------------------------------------------------------

    def _consume(self, store: bytes | bytearray, position: int, end: int) -> None:
        """Starts the requests between two positions that are complete and may start; keeps the rest."""
        first = position
        self._starting = True
        try:
            while end - position >= 4 and not self._closed:
                (size,) = _length(store, position)
                if not _REQUEST_BYTES_MIN <= size <= self._limit:
                    raise RequestRefused("frame_length", f"a length of {size}")
                begin = position + 4
                if size > end - begin:
                    break
                if not self._may_start(store, begin, size):
                    self._hold(store, position, end)
                    return
                position = self._starter.start(store, begin, begin + size, end)
        finally:
            self._starting = False
            if self._flush_due and not self._closed:
                self._flush()
        if self._closed:
            return
        if position == end:
            self._rest, self._rest_at = b"", 0
            self.frame_started_at = None
        else:
            self._keep(store, position, end, new=position > first)
        if self._services.requests.full:
            self._pause_reading()
            self._services.requests.wait(self, self._go_on)

    def _hold(self, store: bytes | bytearray, position: int, end: int) -> None:
        """Requests have arrived that may not start yet."""
        if store is not self._rest:
            self._rest, position = bytes(memoryview(store)[position:end]), 0
        self._rest_at = position
        self.frame_started_at = None
        self._pause_reading()

    def _keep(self, store: bytes | bytearray, position: int, end: int, *, new: bool) -> None:
        """The beginning of a request that has not arrived whole; `new`: its first byte came just now."""
        self._rest_at = 0
        if new or self.frame_started_at is None:
            self.frame_started_at = self.active_at
        data = memoryview(store)[position:end]
        if len(data) >= 4:
            size = int.from_bytes(data[:4], "big", signed=True)
            if size > SMALL_REQUEST_BYTES:
                self._rest = b""
                self._long = LongRequest(size, data[4:], self._services.requests, self)
                return
        self._rest = bytes(data)

    def _receive_long(self, request: LongRequest, count: int) -> None:
        request.received += count
        if request.pause_due:
            request.pause_due = False
            self._pause_reading()
            self._services.requests.wait(self, self._go_on)
        if request.whole:
            self._start_long(request)

    def _start_long(self, request: LongRequest) -> None:
        """Starts a whole one if it may start."""
        buffer = request.buffer
        self.frame_started_at = None
        if not self._may_start(buffer, 0, len(buffer)):
            self._pause_reading()
            return
        self._drop_long()
        self._starting = True
        try:
            self._starter.start(buffer, 0, len(buffer), len(buffer))
        finally:
            self._starting = False
            if self._flush_due and not self._closed:
                self._flush()

    def _drop_long(self) -> None:
        if self._long is not None:
            request, self._long = self._long, None
            request.drop()

    def _may_start(self, store: bytes | bytearray, begin: int, size: int) -> bool:
        if self._writer.busy:
            return False
        window = self._services.storage.window
        if window is None or not window.full:
            return not self._pipeline.order or self._pipeline.admits(self._dispatcher.kind(*_length(store, begin)))
        kind = self._dispatcher.kind(*_length(store, begin))
        if not self._pipeline.admits(kind):
            return False
        if kind is not Kind.APPEND or window.admits(size):
            return True
        window.wait(self, self._go_on)
        return False

    def _incomplete(self) -> bool:
        """Whether a request has arrived in part."""
        if self._long is not None:
            return not self._long.whole
        return bool(self._rest) and self.frame_started_at is not None

    # -- answers ---------------------------------------------------------------------------------------------------

    def answered(self, pending: Pending, parts: Sequence[Part]) -> None:
        """Answers that may leave do so at once if no others are waited for, else with all that may in this turn."""
        if self._pipeline.closed:
            release(parts)
            return
        self._services.requests.give(pending.size)
        if not self._pipeline.answer(pending, parts) or self._flush_due:
            return
        self._flush_due = True
        if not self._starting:
            if len(self._pipeline.order) == 1:
                self._flush()
            else:
                self._services.loop.call_soon(self._flush)

    def _flush(self) -> None:
        if not self._flush_due:
            return
        self._flush_due = False
        parts = self._pipeline.take()
        if self._closed or self._transport.is_closing():
            release(parts)
            return
        if parts:
            self._writer.send(parts)
            self._services.polling.expect_more()
        if not self._reading:
            self._go_on()

    def _go_on(self) -> None:
        """Something that requests waited for has come: start those that arrived, then read on."""
        if self._closed or self._reading:
            return
        try:
            if self._long is not None:
                if self._long.whole:
                    self._start_long(self._long)
                    if self._long is not None:
                        return
            elif self._rest:
                self._reading = True
                self._consume(self._rest, self._rest_at, len(self._rest))
                if not self._reading:
                    return
        except RequestRefused as refusal:
            self.refuse(refusal)
        if not self._closed:
            self._reading = True
            if self._quiet < 0:
                self._transport.resume_reading()

    def _let_others(self) -> None:
        """What was received is served, and others are read, before more of this connection. After a read that filled
        the buffer libuv would read on for as long as it does, and what waits would leave the processor's cache."""
        if self._reading and not self._closed:
            self._pause_reading()
            self._services.loop.call_soon(self._go_on)

    def _pause_reading(self) -> None:
        self._reading = False
        self._transport.pause_reading()

    # -- the end ---------------------------------------------------------------------------------------------------

    def refuse(self, refusal: RequestRefused, call: Call | None = None) -> None:
        """Logs and counts the refusal, once, and closes."""
        if self._closed:
            return
        self._refused(refusal, call)
        self.abort()

    def _refused(self, refusal: RequestRefused, call: Call | None) -> None:
        fields = dict(refusal.fields)
        if call is not None:
            fields = {
                "client_id": call.client_id,
                "api_key": call.route.api_key,
                "version": call.version,
                "correlation_id": call.correlation_id,
            }
        if refusal.detail:
            fields["detail"] = refusal.detail
        self._services.refusals.request(refusal.reason, peer=self.peer, **fields)

    def abort(self) -> None:
        """Closes at once; what was not sent is lost."""
        self._closed = True
        self._transport.abort()

    def finish(self) -> None:
        """Takes no more requests and closes when those in service, parked reads apart, are answered."""
        if not self._closed and self.idle:
            self._closed = True
            self._transport.close()
        elif self._reading:
            self._pause_reading()

    @property
    def idle(self) -> bool:
        """Whether the connection could be closed without anybody missing an answer."""
        return self._pipeline.only_parked() and not self._writer.busy

    def check_time(self, now: float, frame_timeout_s: float, idle_max_s: float) -> None:
        """Ends a request that takes too long to arrive, and a connection on which nothing happens."""
        if self._closed:
            return
        started = self.frame_started_at
        if started is not None and now - started > frame_timeout_s:
            self.refuse(RequestRefused("frame_timeout", f"a request did not arrive within {frame_timeout_s:g} s"))
        elif now - self.active_at > idle_max_s and (self._writer.busy or not self._pipeline.order):
            self.abort()
