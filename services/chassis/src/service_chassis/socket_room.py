"""One epoll object that reports when the sockets of waiting connections have room again, or bytes to read.

An event loop does not share its transports' descriptors, and watching a second descriptor of the same socket costs four
system calls an answer. So the loop watches this epoll object, and the epoll object watches the sockets, edge-triggered.
A socket is registered from its first wait until it is closed. Below, room stands for what the object watches for.

    one waiter         is called for any report; if its socket has no room, its write finds that
    several waiters    each is called for the reports of its socket

Invariant: a waiter was armed again (EPOLL_CTL_MOD, which checks the socket) after the last report of its socket was
read. A report that was not read stays in the epoll object while the socket has room, and wakes the loop each turn. So a
single waiter is not armed again while it is sending; its report is read once it has sent all.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from enum import Enum
from typing import Final, Protocol

#: The events that a SocketRoom watches for: room to send, or bytes to read.
TO_SEND: Final = select.EPOLLOUT
TO_READ: Final = select.EPOLLIN | select.EPOLLRDHUP
#: Most reports that are read in one turn.
_REPORTS_MAX: Final = 256


class Sent(Enum):
    """The outcome of one call of a waiter."""

    #: The waiter has sent all and waits no more.
    ALL = "all"
    #: The waiter has sent some bytes and waits for more room.
    SOME = "some"
    #: The socket had no room.
    NOTHING = "nothing"


_ALL, _SOME = Sent.ALL, Sent.SOME  # as the hot path calls them


class Waiter(Protocol):
    """An object that waits for room in a socket."""

    def has_room(self) -> Sent:
        """Send as much as the socket accepts: there may be room."""
        ...

    def fail(self, error: Exception) -> None:
        """Close the connection: `has_room` has raised this error."""
        ...


class SocketRoom:
    """The waiters of one event loop, all for the same events. A server, a client or a gateway owns it."""

    __slots__ = ("_epoll", "_events", "_known", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, events: int = TO_SEND) -> None:
        self._loop = loop
        self._events = events | select.EPOLLET
        #: The epoll object; None before the first wait.
        self._epoll: select.epoll | None = None
        #: Registered descriptors.
        self._known: set[int] = set()
        self._waiting: dict[int, Waiter] = {}

    def wait(self, descriptor: int, waiter: Waiter) -> None:
        """Call the waiter when the socket has room, until it returns ALL, or until `forget`."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._reported)
        self._waiting[descriptor] = waiter
        if descriptor in self._known:
            self._epoll.modify(descriptor, self._events)
        else:
            self._epoll.register(descriptor, self._events)
            self._known.add(descriptor)

    def forget(self, descriptor: int) -> None:
        """Stop calling the socket's waiter. Must be called before the socket is closed."""
        self._waiting.pop(descriptor, None)
        if descriptor in self._known:
            self._known.discard(descriptor)
            if self._epoll is not None:
                with contextlib.suppress(OSError):
                    self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Stop calling all waiters."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        self._known.clear()
        self._waiting.clear()

    def _reported(self) -> None:
        waiting = self._waiting
        if len(waiting) == 1:
            ((descriptor, waiter),) = waiting.items()
            try:
                sent = waiter.has_room()
            except Exception as error:
                waiter.fail(error)
                sent = _ALL
            if sent is _SOME:
                return
            if sent is _ALL:
                waiting.pop(descriptor, None)
        epoll = self._epoll
        if epoll is None:
            return
        for descriptor, _ in epoll.poll(0, _REPORTS_MAX):
            found = waiting.get(descriptor)
            if found is None:
                continue
            # A report is edge-triggered: one that is not handled here is lost, and its connection stuck.
            try:
                if found.has_room() is _ALL:
                    waiting.pop(descriptor, None)
                else:
                    epoll.modify(descriptor, self._events)
            except Exception as error:
                waiting.pop(descriptor, None)
                found.fail(error)
