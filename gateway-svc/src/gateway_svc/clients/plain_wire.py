"""The wire without encryption: bytes go to the socket as they are, and the system moves files and lanes to it.

The kernel decides how much a socket accepts (no SO_SNDBUF): it adapts to the speed of the client. Connections within
this machine are not paced. A congestion control that paces (BBR) would wake the client for every 64 KB. It would halve
the rate of a path that cannot be congested.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import Callable
from typing import Final, cast

from service_chassis.socket_room import SocketRoom, Waiter

from gateway_svc.clients.departure import has_left
from gateway_svc.clients.wire import ANONYMOUS, WireUser
from gateway_svc.storage.protocols import LaneAnswer

_sendfile, _write = os.sendfile, os.write


class PlainWire(asyncio.BufferedProtocol):
    """A `wire.Wire` over one transport of asyncio."""

    ready_within_s: Final = math.inf
    principal: Final = ANONYMOUS
    # Methods of the transport: a call less for each read and each answer. `connection_made` sets them.
    write: Callable[[bytes | memoryview], None]
    is_closing: Callable[[], bool]
    unwritten: Callable[[], int]
    pause_reading: Callable[[], None]
    resume_reading: Callable[[], None]
    close: Callable[[], None]
    abort: Callable[[], None]

    def __init__(self, user: WireUser, room: SocketRoom) -> None:
        """Start without a transport. `room`: the waiting room of all sockets of the gateway."""
        self._user = user
        self._sockets = room
        self._transport = cast(asyncio.Transport, None)
        #: The socket's descriptor, which the transport owns.
        self._descriptor = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)
        self._transport = made
        self._descriptor = made.get_extra_info("socket").fileno()
        self.write, self.is_closing, self.unwritten = made.write, made.is_closing, made.get_write_buffer_size
        self.pause_reading, self.resume_reading = made.pause_reading, made.resume_reading
        self.close, self.abort = made.close, made.abort
        set_options(made)
        self._user.began(self)
        # Bound methods of what the connection is made of: a call less for each read.
        self._room_of, self._received = self._user.room, self._user.received
        self._user.ready()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._sockets.forget(self._descriptor)
        self._descriptor = -1
        self._user.lost()
        # The wire refers to its connection: it is freed now, not when Python's collector comes.
        del self._user, self._room_of, self._received

    @property
    def mover(self) -> PlainWire:
        return self

    @property
    def peer(self) -> tuple[str, int]:
        host, port = (self._transport.get_extra_info("peername") or ("unknown", 0))[:2]
        return host, port

    # -- reading ---------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._room_of()

    def buffer_updated(self, count: int) -> None:
        self._received(count)

    def eof_received(self) -> bool:
        return self._user.ended()

    def peer_is_open(self) -> bool:
        return not has_left(self._descriptor)

    # -- writing ---------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        self._user.pause_writing()

    def resume_writing(self) -> None:
        self._transport.set_write_buffer_limits()
        self._user.resume_writing()

    def borrow(self, count: int) -> memoryview:
        return memoryview(bytearray(count))  # the transport may keep it

    def is_writable(self) -> bool:
        return not self.unwritten() and not self.is_closing()

    def pause_until_written(self) -> None:
        self._transport.set_write_buffer_limits(high=0)

    def write_now(self, head: bytes | memoryview) -> bool:
        """Write to the socket: the transport might keep the bytes until the event loop's turn is over."""
        if not self.is_writable():
            return False
        try:
            sent = _write(self._descriptor, head)
        except OSError:
            return False  # the transport finds the error
        if sent < len(head):
            self.write(memoryview(head)[sent:])
        return True

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        return _sendfile(self._descriptor, descriptor, position, count)

    def splice(self, answer: LaneAnswer, count: int) -> int:
        return answer.move(self._descriptor, count)

    def wait_for_room(self, waiter: Waiter) -> None:
        self._sockets.wait(self._descriptor, waiter)


def set_options(transport: asyncio.Transport) -> None:
    """Set the options of a client connection's socket, as far as the system knows them."""
    connected = transport.get_extra_info("socket")
    ours, theirs = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ours and theirs and ours[0] == theirs[0]:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
