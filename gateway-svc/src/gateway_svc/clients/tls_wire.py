"""The wire with TLS 1.2 and 1.3: an ssl.SSLObject between asyncio's transport and the connection.

    socket ── transport ── the end's buffer ── incoming ── SSLObject ── room, received
                        └─ outgoing ───────────────────────┘       └── write

Bytes go to `incoming` as whole records, at most PIECE_BYTES at a time. They come back from `outgoing` in such pieces,
too: neither keeps the memory of a large read or answer. A record is decrypted once all of it is there. So only records
without data cost an SSLWantReadError, which is slow. While reading is paused, bytes are kept encrypted. All wires of a
listener keep BACKLOG_BYTES, and SCARCE_READ_BYTES each above that.

A client is refused if its handshake does not end in time and within HANDSHAKE_BYTES, or if its ClientHello would take
much memory (`client_hello`). Handshakes take turns (`shared_turns.stranger_turns`), as each takes half a millisecond or
more. Answers of TLS itself (to KeyUpdate) that the client does not read end the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import ClassVar, Final, cast

from service_chassis.shared_turns import SharedTurns
from service_chassis.tls import explained

from gateway_svc.clients.answer_writer import WRITE_BYTES
from gateway_svc.clients.client_hello import HelloCheck, asks_again
from gateway_svc.clients.departure import has_left
from gateway_svc.clients.plain_wire import set_options
from gateway_svc.clients.wire import WireUser

#: Seconds from the begin of a connection to the end of its handshake.
HANDSHAKE_S: Final = 10.0
#: Most bytes that a client may send before the end of its handshake: a chain of certificates has less.
HANDSHAKE_BYTES: Final = 64 * 1024
#: Most bytes of a read before the end of the handshake.
_HANDSHAKE_READ_BYTES: Final = 4 * 1024
_READ_BYTES: Final = 128 * 1024
#: Most bytes that are decrypted, or encrypted, at a time: one long record, or many short ones.
PIECE_BYTES: Final = 16 * 1024
#: Encrypted bytes that the paused wires of a listener may keep together before they read less.
BACKLOG_BYTES: Final = 16 * 1024 * 1024
SCARCE_READ_BYTES: Final = 4 * 1024
#: Bytes that the transport keeps when answers of TLS itself are refused: more than those of one write.
_UNREAD_BYTES_MAX: Final = WRITE_BYTES + 256 * 1024

_HEAD_BYTES: Final = 5
#: Most bytes after a record's head (RFC 8446 and 5246), and the kinds of records.
_RECORD_BYTES_MAX: Final = 16 * 1024 + 2048
_HANDSHAKE_KIND: Final = 22
_KINDS: Final = frozenset((20, 21, _HANDSHAKE_KIND, 23))


class TlsEnd:
    """Our end of all encrypted connections of one listener, in one event loop."""

    def __init__(
        self, context: Callable[[], ssl.SSLContext], principal: Callable[[bytes | None], str], turns: SharedTurns
    ) -> None:
        """Serve with the keys of `context`, which is asked for each connection.

        Args:
            context: returns the context in force.
            principal: returns the user of a client's certificate (DER), or of a client without one. It raises
                ValueError if the client may not enter.
            turns: the turns of handshakes that meet.
        """
        self.context = context
        self.principal = principal
        self.turns = turns
        #: Filled and emptied within one callback of one wire.
        self.buffer: Final = memoryview(bytearray(_READ_BYTES))
        self.lent: Final = memoryview(bytearray(WRITE_BYTES))
        #: Encrypted bytes that paused wires keep.
        self.backlog = 0


class TlsWire(asyncio.BufferedProtocol):
    """A `wire.Wire` over one transport of asyncio."""

    __slots__ = (
        "_awaits_turn",
        "_deliver",
        "_end",
        "_has_ended",
        "_hello",
        "_incoming",
        "_is_paused",
        "_is_ready",
        "_left",
        "_missing",
        "_outgoing",
        "_read",
        "_received_bytes",
        "_rest",
        "_room_of",
        "_tls",
        "_transport",
        "_user",
        "abort",
        "is_closing",
        "principal",
        "unwritten",
    )

    ready_within_s: ClassVar = HANDSHAKE_S
    mover: ClassVar = None
    # Methods of the transport and of the connection: a call less for each. `connection_made` sets them.
    abort: Callable[[], None]
    is_closing: Callable[[], bool]
    unwritten: Callable[[], int]
    _room_of: Callable[[], memoryview]
    _deliver: Callable[[int], None]

    def __init__(self, end: TlsEnd, user: WireUser, _room: object) -> None:
        self._end = end
        self._user = user
        self._transport = cast(asyncio.Transport, None)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = end.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._read = cast(Callable[[int, memoryview], int], self._tls.read)
        self._left = self._tls.pending
        #: The client's user; set before the wire is ready.
        self.principal = ""
        self._is_ready = self._is_paused = self._awaits_turn = False
        #: Whether the client sends no more, and is owed answers.
        self._has_ended = False
        #: None once the client may send no ClientHello any more.
        self._hello: HelloCheck | None = HelloCheck()
        #: Bytes received before the end of the handshake.
        self._received_bytes = 0
        #: Bytes of the record in `incoming` that are still to come; then nothing else is in `incoming`.
        self._missing = 0
        #: Encrypted bytes that arrived and are not in `incoming`: while paused, or less than a record's head.
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast(asyncio.Transport, transport)
        self.unwritten, self.is_closing, self.abort = made.get_write_buffer_size, made.is_closing, made.abort
        set_options(made)
        self._user.began(self)
        self._room_of, self._deliver = self._user.room, self._user.received

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._keep(b"")
        if not self._is_ready and self._received_bytes:
            self._user.failed("tls_handshake", "the client left before the end")
        self._user.lost()
        # The wire refers to its connection: it is freed now, not when Python's collector comes.
        del self._user, self._room_of, self._deliver

    @property
    def peer(self) -> tuple[str, int]:
        host, port = (self._transport.get_extra_info("peername") or ("unknown", 0))[:2]
        return host, port

    # -- the handshake ---------------------------------------------------------------------------------------------

    def _shake_hands(self, data: memoryview) -> None:
        """Pass the bytes of a handshake on, and go on with it: in a later turn if others are under way."""
        if not self._received_bytes and data[0] != _HANDSHAKE_KIND:  # mutant: plaintext-told
            self._refuse("tls_plaintext", "the client does not speak TLS")
            return
        self._received_bytes += len(data)
        if self._received_bytes > HANDSHAKE_BYTES:  # mutant: handshake-bounded
            self._refuse("tls_handshake", f"more than {HANDSHAKE_BYTES} bytes")
            return
        if self._hello is not None:
            try:
                self._hello.check(data)
            except ValueError as error:
                self._refuse("tls_handshake", str(error))
                return
        self._incoming.write(data)
        if self._end.turns.admits():
            self._advance()
        elif not self._awaits_turn:
            self._awaits_turn = True
            self._transport.pause_reading()
            self._end.turns.start_soon(self._advance_in_turn)

    def _advance_in_turn(self) -> None:
        self._awaits_turn = False
        if not self.is_closing():
            if not self._is_paused:
                self._transport.resume_reading()
            self._advance()

    def _advance(self) -> None:
        """Go on with the handshake; at its end the connection is ready."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if self._outgoing.pending:
                answer = self._outgoing.read()
                if not asks_again(answer):
                    self._hello = None
                self._transport.write(answer)
            return
        except OSError as error:  # ssl.SSLError is one
            self._refuse("tls_handshake", explained(error))
            return
        try:
            self.principal = self._end.principal(self._tls.getpeercert(binary_form=True))
        except ValueError as error:
            self._refuse("tls_principal", str(error))
            return
        self._send()
        self._is_ready = True
        self._user.ready()
        if self._incoming.pending:  # requests that came with the last message of the handshake
            self._take(memoryview(self._incoming.read()))

    def _refuse(self, reason: str, detail: str) -> None:
        """Close, after the alert that explains it to the client."""
        self._user.failed(reason, detail)
        self._send()
        self._transport.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        end = self._end
        if not self._is_ready:
            return end.buffer[:_HANDSHAKE_READ_BYTES]
        return end.buffer if end.backlog < BACKLOG_BYTES else end.buffer[:SCARCE_READ_BYTES]

    def buffer_updated(self, count: int) -> None:
        data = self._end.buffer[:count]
        if not self._is_ready:
            self._shake_hands(data)
        elif not self._rest:
            self._take(data)
        else:
            joined = memoryview(b"".join((self._rest, data)))
            self._keep(b"")
            self._take(joined)

    def eof_received(self) -> bool:
        return self._is_ready and self._is_owed_answers()

    def _is_owed_answers(self) -> bool:
        """Return whether the client, which has ended TLS or the connection, may still get answers."""
        self._has_ended = self._has_ended or self._user.ended()  # mutant: tls-answers-after-end
        return self._has_ended

    def _take(self, data: memoryview) -> None:
        """Decrypt into the room of the connection, until the last whole record or a pause; keep the rest."""
        at, is_open = 0, True
        try:
            while is_open and not (self._is_paused or self.is_closing()):
                if not self._has_record():
                    if at == len(data):
                        break
                    at = self._pass_on(data, at)
                    continue
                room = self._room_of()
                filled, at, is_open = self._fill(room, data, at)
                del room  # a buffer in use cannot grow
                if filled:
                    self._deliver(filled)
        except ssl.SSLError as error:
            if not self.is_closing():
                self._refuse("tls_record", explained(error))
            return
        if at < len(data) and not self.is_closing():
            self._keep(bytes(data[at:]))
        if not is_open and not self._is_owed_answers():
            self.close()
        elif self._outgoing.pending:
            self._answer()

    def _fill(self, room: memoryview, data: memoryview, at: int) -> tuple[int, int, bool]:
        """Decrypt until the room is full or no whole record is left.

        Return the bytes in the room, the position of what is left in `data`, and whether the client may send more.
        """
        size, filled = len(room), 0
        while filled < size:
            if not self._has_record():
                if at == len(data):
                    break
                at = self._pass_on(data, at)
                continue
            try:
                count = self._read(size - filled, room[filled:] if filled else room)
            except ssl.SSLWantReadError:
                continue  # records without data
            if not count:
                return filled, at, False
            filled += count
        return filled, at, True

    def _has_record(self) -> bool:
        """Return whether data of a whole record can be read."""
        return bool(self._left() or (self._incoming.pending and not self._missing))

    def _pass_on(self, data: memoryview, at: int) -> int:
        """Put the next whole records, or the begin of one, into `incoming`; return the position after them."""
        length = len(data)
        if self._missing:
            end = min(length, at + self._missing)
            self._missing -= end - at
            self._incoming.write(data[at:end])
            return end
        end, size = at, 0
        while end - at < PIECE_BYTES and length - end >= _HEAD_BYTES:
            size = _HEAD_BYTES + (data[end + 3] << 8 | data[end + 4])
            if data[end] not in _KINDS or size > _HEAD_BYTES + _RECORD_BYTES_MAX:
                end = length  # OpenSSL finds the fault
                break
            if size > length - end:
                break
            end += size
        if end == at:
            if length - at < _HEAD_BYTES:
                self._keep(bytes(data[at:]))
                return length
            end, self._missing = length, size - (length - at)
        self._incoming.write(data[at:end])
        return end

    def _keep(self, rest: bytes) -> None:
        self._end.backlog += len(rest) - len(self._rest)
        self._rest = rest

    def _answer(self) -> None:
        """Send an answer of TLS itself, to a client that reads them."""
        self._send()
        if self.unwritten() > _UNREAD_BYTES_MAX:
            self._user.failed("tls_record", "the client asks for answers that it does not read")
            self.abort()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self._awaits_turn:
            self._transport.resume_reading()
        if self._rest or self._has_record():
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        """Decrypt what arrived before reading was paused, unless other bytes have come and taken it along."""
        if not self._is_paused and not self.is_closing():
            rest = memoryview(self._rest)
            self._keep(b"")
            self._take(rest)

    def peer_is_open(self) -> bool:
        return not has_left(self._transport.get_extra_info("socket").fileno())

    # -- writing ---------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._user.pause_writing()

    def resume_writing(self) -> None:
        self._user.resume_writing()

    def write(self, data: bytes | memoryview) -> None:
        if self.is_closing():
            return
        try:
            if len(data) <= PIECE_BYTES:
                self._tls.write(data)
                self._send()
                return
            view, pieces = memoryview(data), []
            for at in range(0, len(view), PIECE_BYTES):
                self._tls.write(view[at : at + PIECE_BYTES])
                pieces.append(self._outgoing.read())
            self._transport.writelines(pieces)
        except ssl.SSLError:  # the client has broken its end
            self.abort()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def borrow(self, count: int) -> memoryview:
        return self._end.lent[:count]

    def close(self) -> None:
        with contextlib.suppress(ssl.SSLError):  # it waits for the client's own
            self._tls.unwrap()
        self._send()
        self._transport.close()
