"""Connections of one server, bounded in number, time and memory, around uvicorn's HTTP/1.1 protocol.

    CONNECTIONS_MAX      at once; one more closes the connection that has waited longest for its client
    HEAD_TIMEOUT_S       from the connection, or the first byte of a later request, to the end of the head
    BODY_TIMEOUT_S       from there to the end of the body, if the application does not read it
    SEND_TIMEOUT_S       for the client to receive another part of its answer
    HEAD_BYTES_MAX       bytes of a head, FIELDS_MAX its lines
    PARTS_MAX            parts of a body: chunks and reads, each of which costs more than many bytes
    LINGER_S             from the end of an answer whose body goes on to the end of the connection
    UNSENT_BYTES_MAX     bytes of all answers that clients are slow to receive; above it the slowest is cut off

Silent and slow clients thus cost a bounded share, and a new client finds a place at once among any number of them.

uvicorn and h11 have a public setting for HEAD_BYTES_MAX and for idle connections alone. uvicorn's `limit_concurrency`
refuses the new client in place of the silent one. So this module overrides methods of uvicorn's H11Protocol and reads
its state (`conn`, `cycle`, `loop`), which are not public: only here, and it changes with uvicorn's releases.
"""

from __future__ import annotations

import asyncio
import re
from enum import Enum, auto
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service_chassis.http import errors
from service_chassis.http.rules import Rules

#: Tomcat's acceptor allows 8,192 for 200 threads; here requests share one thread.
CONNECTIONS_MAX = 512
HEAD_TIMEOUT_S = 10.0
#: The ring allows 10 s for a body and 5 s for the rest of a refused one.
BODY_TIMEOUT_S = 20.0
SEND_TIMEOUT_S = 30.0
#: h11's own default.
HEAD_BYTES_MAX = 16 * 1024
#: Apache's LimitRequestFields.
FIELDS_MAX = 100
PARTS_MAX = 512
#: The same for a body that is read in parts, and bytes that allow one part more: a record has no fewer. The endpoint
#: bounds such a body in time, silence and bytes.
STREAM_PARTS_MAX = 65_536
STREAM_PART_BYTES = 16
#: A client that still sends would see a reset connection, and not the end of its answer; nginx lingers for 5 s.
LINGER_S = 2.0
#: Seconds in which a busy server may not yet have read the request that a new client has sent.
GRACE_S = 2.0
UNSENT_BYTES_MAX = 64 * 1024 * 1024
#: Bytes of one read. A head that a read completes is longer than HEAD_BYTES_MAX by no more than that.
_READ_BYTES = 8 * 1024
#: An end of a head that began in an earlier read begins in that read's last bytes.
_END_BYTES = 3
_HEAD_END = re.compile(rb"\n\r?\n")


class _Waits(Enum):
    """The event that the server waits for on a connection."""

    HEAD = auto()
    BODY = auto()
    NEXT_REQUEST = auto()
    ANSWER = auto()
    CLOSE = auto()


_TIMEOUTS_S = {_Waits.HEAD: HEAD_TIMEOUT_S, _Waits.BODY: BODY_TIMEOUT_S}


class Connections:
    """The connections of one server. The event loop owns it."""

    def __init__(self, rules: Rules, limit: int = CONNECTIONS_MAX, unsent_bytes_max: int = UNSENT_BYTES_MAX) -> None:
        self.rules = rules
        self._limit = limit
        self._unsent_bytes_max = unsent_bytes_max
        self.open: set[Connection] = set()
        #: The connections that wait for their client, to send a request or to receive an answer; the oldest first.
        #: The values are the event loop's times at which they began to wait.
        self.waiting: dict[Connection, float] = {}
        #: Those whose client is slow to receive.
        self.unsent: dict[Connection, None] = {}

    def add(self, connection: Connection) -> None:
        """Add a connection, in the place of another if there are too many."""
        if len(self.open) >= self._limit:
            victim = self._least_deserving() or connection  # mutant: silent-http-client-displaced
            victim.cut()
            if victim is connection:
                return
        self.open.add(connection)

    def _least_deserving(self) -> Connection | None:
        """Return the connection that has waited longest. In its first GRACE_S, slow receivers go before it."""
        oldest = next(iter(self.waiting), None)
        if oldest is not None and oldest.loop.time() - self.waiting[oldest] < GRACE_S:
            return next(iter(self.unsent), oldest)
        return oldest

    def forget(self, connection: Connection) -> None:
        self.open.discard(connection)
        self.waiting.pop(connection, None)
        self.unsent.pop(connection, None)

    def bound_unsent(self) -> None:
        """Cut off the slowest receivers until the rest is within the limit. The newest may exceed it alone."""
        sizes = {each: each.unsent_bytes for each in self.unsent}
        total = sum(sizes.values())
        for connection in list(sizes)[:-1]:
            if total <= self._unsent_bytes_max:
                return
            total -= sizes[connection]
            connection.cut()


class _Parser(h11.Connection):
    """h11's parser, with a bound on the parts of a body."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(h11.SERVER, HEAD_BYTES_MAX)
        self._reads_in_parts = rules.reads_in_parts
        self._parts = self._bytes = 0
        #: Whether the endpoint of the last request reads its body in parts.
        self.is_stream = False

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._parts = self._bytes = 0
            path = event.target.partition(b"?")[0].decode("latin-1")
            self.is_stream = bool(self._reads_in_parts(event.method.decode("latin-1"), path))
        elif isinstance(event, h11.Data):
            self._parts += 1
            self._bytes += len(event.data)
            most = STREAM_PARTS_MAX + self._bytes // STREAM_PART_BYTES if self.is_stream else PARTS_MAX
            if self._parts > most:
                raise h11.RemoteProtocolError("too many parts of a body")
        return event


class Connection(H11Protocol, asyncio.BufferedProtocol):
    """One connection. As a BufferedProtocol it reads a few kilobytes at a time, where asyncio would read 256."""

    #: Every connection's: a read is over before another begins.
    _read = bytearray(_READ_BYTES)

    def __init__(self, *arguments: Any, connections: Connections, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.conn = self._parser = _Parser(connections.rules)
        self._all = connections
        self._waits: _Waits | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        #: Unsent bytes when the send timer began.
        self._unsent_before = 0
        #: An answer is complete, except for its way to the client.
        self._completes = False
        #: The answer is over, and the rest of the body is dropped.
        self._lingers = False
        self._fields = 0
        self._end_of_read = b""

    @property
    def unsent_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        self._all.add(self)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self._read

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(memoryview(self._read)[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._lingers:
            return
        if self.conn.their_state is h11.IDLE and self._has_too_many_fields(data):
            self._refuse(431)
        else:
            super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Go on to the next request, once the client has received this answer: it would get memory for another.

        After an answer that did not wait for the end of its body, the connection ends.
        """
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._linger()
            return
        self._completes = self in self._all.unsent  # mutant: unsent-answer-waits
        if not self._completes:
            super().on_response_complete()
        self._look()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._all.unsent[self] = None
        self._look()
        self._time_sending()
        self._all.bound_unsent()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._all.unsent.pop(self, None)
        _cancel(self._send_timer)
        if self._completes:
            self.on_response_complete()
        self._look()

    def _linger(self) -> None:
        """End the sending half, and close after LINGER_S."""
        self._lingers = True
        self._look()
        self.flow.resume_reading()
        self.transport.write_eof()  # mutant: ended-stream-closed
        self._timer = self.loop.call_later(LINGER_S, self.transport.close)

    def cut(self) -> None:
        """Close at once and drop unsent bytes. The connection counts no more."""
        self._release()
        self.transport.abort()

    def _look(self) -> None:
        """Note the event that the server waits for now, and begin its timeout."""
        if self not in self._all.open:
            return
        waits = self._state()
        if waits is _Waits.ANSWER and self not in self._all.unsent:
            self._all.waiting.pop(self, None)
        else:
            self._all.waiting.setdefault(self, self.loop.time())
        if waits is self._waits:
            return
        self._waits = waits
        _cancel(self._timer)
        if waits is not _Waits.HEAD:
            self._fields, self._end_of_read = 0, b""
        if waits is _Waits.CLOSE:
            self._time_sending()
        elif waits in _TIMEOUTS_S:
            if waits is _Waits.BODY and self._parser.is_stream:
                return  # its endpoint bounds the time
            # mutant: silent-http-client-timed
            self._timer = self.loop.call_later(_TIMEOUTS_S[waits], self._on_late)

    def _state(self) -> _Waits:
        """Return the event that the server waits for, by the state that h11 and the transport have come to."""
        if self.transport.is_closing() or self._lingers:
            return _Waits.CLOSE
        if self.conn.their_state is h11.SEND_BODY:
            return _Waits.BODY
        if self.conn.their_state is not h11.IDLE:
            return _Waits.ANSWER
        return _Waits.HEAD if self.cycle is None or self.conn.trailing_data[0] else _Waits.NEXT_REQUEST

    def _time_sending(self) -> None:
        """Begin to wait for the client to receive more."""
        _cancel(self._send_timer)
        self._unsent_before = self.unsent_bytes
        self._send_timer = self.loop.call_later(SEND_TIMEOUT_S, self._on_slow)

    def _on_slow(self) -> None:
        if self.unsent_bytes < self._unsent_before:
            self._time_sending()
        else:
            self.cut()

    def _on_late(self) -> None:
        if self._waits is _Waits.HEAD and self.conn.trailing_data[0]:
            self._refuse(408)
            self._look()
        else:
            self.cut()

    def _has_too_many_fields(self, data: bytes) -> bool:
        """Count the lines of the head in `data`; return whether there are too many."""
        head = self._end_of_read + data
        end = _HEAD_END.search(head)
        self._fields += head.count(b"\n", len(self._end_of_read), end.start() if end else len(head))
        self._end_of_read = head[-_END_BYTES:]
        return self._fields > FIELDS_MAX  # mutant: head-lines-bounded

    def _refuse(self, status: int) -> None:
        """Answer a request whose head cannot be read, and close."""
        answer = self._all.rules.render(errors.of_status(status, headers={"connection": "close"}))
        phrase = HTTPStatus(status).phrase.encode()
        response = h11.Response(status_code=status, headers=answer.raw_headers, reason=phrase)
        for event in (response, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse bytes that are no request, or no body; close where their answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # mutant: broken-body-after-answer
            self._refuse(400)
        else:
            self.transport.close()

    def _release(self) -> None:
        self._all.forget(self)
        _cancel(self._timer)
        _cancel(self._send_timer)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
