"""A wire that encrypts, over ssl.SSLObject: the double of a listener with TLS. It is all that TLS takes in the gateway.

    socket ── asyncio's transport ── incoming ── SSLObject ── room, received
                                  └─ outgoing ──┘         └── write

While reading is paused, at most the bytes of one read wait in `incoming`, encrypted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from gateway_svc.clients.answer_writer import WRITE_BYTES
from gateway_svc.clients.departure import has_left
from gateway_svc.clients.plain_wire import set_options
from gateway_svc.clients.wire import MakeWire, WireUser

_READ_BYTES = 64 << 10


class TlsWire(asyncio.BufferedProtocol):
    """A `gateway_svc.clients.wire.Wire`."""

    ready_within_s: ClassVar = 10.0
    mover: ClassVar = None
    #: Memory of all wires: each of them empties it before another is called.
    _encrypted: ClassVar = memoryview(bytearray(_READ_BYTES))
    _lent: ClassVar = memoryview(bytearray(WRITE_BYTES))

    def __init__(self, context: ssl.SSLContext, user: WireUser, _sockets: object) -> None:
        self._user = user
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_ready = self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast(asyncio.Transport, transport)
        self.unwritten, self.is_closing, self.abort = made.get_write_buffer_size, made.is_closing, made.abort
        set_options(made)
        self._user.began(self)  # type: ignore[arg-type]

    def connection_lost(self, error: Exception | None) -> None:
        self._user.lost()
        del self._user

    @property
    def peer(self) -> tuple[str, int]:
        peer: tuple[str, int] = self._transport.get_extra_info("peername")[:2]
        return peer

    # -- reading ---------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._encrypted

    def buffer_updated(self, count: int) -> None:
        self._incoming.write(self._encrypted[:count])
        try:
            if not self._is_ready:
                self._shake_hands()
            self._decrypt()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:  # the client sends no more
            self.close()
        except ssl.SSLError:
            self.abort()
        finally:
            self._send()

    def _shake_hands(self) -> None:
        self._tls.do_handshake()
        self._is_ready = True
        self._user.ready()

    def _decrypt(self) -> None:
        while not self._is_paused and not self.is_closing() and (self._incoming.pending or self._tls.pending()):
            room = self._user.room()
            count = self._tls.read(len(room), cast(Any, room))
            del room  # a buffer in use cannot grow
            if not count:
                raise ssl.SSLZeroReturnError
            self._user.received(count)

    def pause_reading(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self._transport.resume_reading()
        if self._incoming.pending or self._tls.pending():
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self.is_closing():
            self.buffer_updated(0)

    def peer_is_open(self) -> bool:
        return not has_left(self._transport.get_extra_info("socket").fileno())

    # -- writing ---------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._user.pause_writing()

    def resume_writing(self) -> None:
        self._user.resume_writing()

    def write(self, data: bytes | memoryview) -> None:
        self._tls.write(data)
        self._send()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def borrow(self, count: int) -> memoryview:
        return self._lent[:count]

    def close(self) -> None:
        with contextlib.suppress(ssl.SSLError):  # it waits for the client's own
            self._tls.unwrap()
        self._send()
        self._transport.close()


def certificate(folder: Path) -> tuple[MakeWire, Path]:
    """Make a key and a certificate for localhost; return a function that makes wires, and the certificate's file."""
    key, made = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(made)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    return partial(TlsWire, context), made
