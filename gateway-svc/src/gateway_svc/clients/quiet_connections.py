"""Connections on which members of groups say nothing but the same heartbeat: read together, a few times a second.

To wake up for a heartbeat costs several times what it takes to answer one. So these connections leave the event loop
and wait in an epoll of their own, which the loop watches:

    nothing has come for GATHER_S    what comes is read at once
    something has                    what has come since is read when GATHER_S is over

A member that is alone is not delayed, and thousands wake the gateway 1 / GATHER_S times a second.
"""

from __future__ import annotations

import asyncio
import select
from typing import Final, Protocol

#: How long what comes on a quiet connection waits at most, unless there are more than READ_TURN.
GATHER_S: Final = 0.05
#: So many are read before other connections get their turn: a millisecond.
READ_TURN: Final = 64


class Quiet(Protocol):
    """What is asked of a connection here."""

    def read_quiet(self) -> None:
        """Something has come on it, or its client is gone. Raises nothing."""
        ...


class QuietConnections:
    """Owned by `Connections`; used from the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: By the descriptor of the socket.
        self._waiting: dict[int, Quiet] = {}
        self._epoll = select.epoll()
        #: When to look next; None while the loop watches.
        self._next: asyncio.Handle | None = None
        self._watch()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_gathering(self) -> bool:
        """Whether what comes now waits."""
        return self._next is not None

    def add(self, descriptor: int, connection: Quiet) -> None:
        """The loop does not read it any more."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._waiting[descriptor] = connection

    def remove(self, descriptor: int) -> None:
        """Before its socket is closed."""
        del self._waiting[descriptor]
        self._epoll.unregister(descriptor)

    def check_invariants(self) -> None:
        """Assert that all connections that wait are registered with the epoll object, and their sockets open.

        Raises:
            OSError: one is not.
        """
        if not self._epoll.closed:
            for descriptor in self._waiting:
                self._epoll.modify(descriptor, select.EPOLLIN)

    def close(self) -> None:
        if self._epoll.closed:  # a gateway may be stopped twice
            return
        if self._next is None:
            self._loop.remove_reader(self._epoll.fileno())
        else:
            self._next.cancel()
        self._epoll.close()

    def _watch(self) -> None:
        self._next = None
        self._loop.add_reader(self._epoll.fileno(), self._came)

    def _came(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._read()

    def _read(self) -> None:
        came = self._epoll.poll(0, READ_TURN)
        for descriptor, _ in came:
            connection = self._waiting.get(descriptor)
            if connection is not None:  # or one before it has ended it
                connection.read_quiet()
        if len(came) == READ_TURN:
            self._next = self._loop.call_soon(self._read)
        elif came:
            self._next = self._loop.call_later(GATHER_S, self._read)
        else:
            self._watch()
