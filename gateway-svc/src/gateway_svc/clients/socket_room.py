"""When the sockets of connections that wait have room again, told by one epoll object for all of them.

An event loop keeps its transports' descriptors to itself, and watching a second descriptor of the same socket costs
four system calls an answer. This epoll object holds the sockets' own descriptors, from when one waits for the first
time until it is closed, edge-triggered; the loop watches the epoll object.

    one waits       it is told as soon as anything is reported: if its socket has no room, it finds that out by itself
    several wait    who is reported is told

Invariant: whoever waits was armed (EPOLL_CTL_MOD looks at the socket) after the last report of its socket was taken. A
report that nobody has taken stays with the epoll object while the socket has room: the loop sees it each turn, and each
time the kernel looks at the socket again. So who waits alone is not armed anew while it goes on sending, and the report
is taken once it has sent all.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from enum import Enum
from typing import Final, Protocol

_ROOM: Final = select.EPOLLOUT | select.EPOLLET
#: Most sockets that are told in one turn.
_REPORTS_MAX: Final = 256


class Sent(Enum):
    """What became of a turn to send."""

    #: It waits for nothing any more.
    ALL = "all"
    #: It has sent something and waits for more room.
    SOME = "some"
    #: There was no room.
    NOTHING = "nothing"


_ALL, _SOME = Sent.ALL, Sent.SOME  # as the hot path calls them


class Waiter(Protocol):
    """Somebody who waits for room in a socket."""

    def has_room(self) -> Sent:
        """There may be room: sends what it can."""
        ...


class SocketRoom:
    """Owned by the gateway's Services."""

    __slots__ = ("_epoll", "_known", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: Made when the first one waits.
        self._epoll: select.epoll | None = None
        #: Registered descriptors.
        self._known: set[int] = set()
        self._waiting: dict[int, Waiter] = {}

    def wait(self, descriptor: int, waiter: Waiter) -> None:
        """Tells the waiter when the socket has room, until it says that it waits no longer, or `forget`."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._reported)
        self._waiting[descriptor] = waiter
        if descriptor in self._known:
            self._epoll.modify(descriptor, _ROOM)
        else:
            self._epoll.register(descriptor, _ROOM)
            self._known.add(descriptor)

    def forget(self, descriptor: int) -> None:
        """Before the socket is closed."""
        self._waiting.pop(descriptor, None)
        if descriptor in self._known:
            self._known.discard(descriptor)
            if self._epoll is not None:
                with contextlib.suppress(OSError):
                    self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Nobody is told any more."""
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
            sent = waiter.has_room()
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
            if found.has_room() is _ALL:
                waiting.pop(descriptor, None)
            else:
                epoll.modify(descriptor, _ROOM)
