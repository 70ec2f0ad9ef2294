"""Quiet connections, whose group members only repeat their heartbeat, are read together, a few times a second.

Waking up for a heartbeat costs several times as much as answering it. So the event loop does not watch these sockets
itself. It watches an epoll object that does:

    no bytes arrived for GATHER_S    the next ones are read at once
    some arrived                     the next ones are read when GATHER_S is over

A single member is not delayed, and thousands wake the gateway 1 / GATHER_S times a second.
"""

from __future__ import annotations

import asyncio
import select
from typing import Final, Protocol

from service_chassis import logs

#: Longest wait in seconds of bytes on a quiet connection, unless more than READ_TURN connections have some.
GATHER_S: Final = 0.05
#: Quiet connections that are read before other connections have their turn: a millisecond.
READ_TURN: Final = 64

_log = logs.get(__name__)


class Quiet(Protocol):
    """A connection, as far as it is used here."""

    def read_quiet(self) -> None:
        """Read the bytes that have arrived, or find that the client is gone."""
        ...

    def abort(self) -> None:
        """Close at once: `read_quiet` has raised."""
        ...


class QuietConnections:
    """The set of quiet connections; `Connections` owns it."""

    def __init__(self, *, gather_s: float = GATHER_S) -> None:
        """Wait in the running event loop. `gather_s`: instead of GATHER_S."""
        self._loop = asyncio.get_running_loop()
        self._gather_s = gather_s
        #: The connections by the descriptor of their socket.
        self._waiting: dict[int, Quiet] = {}
        self._epoll = select.epoll()
        #: The next read; None while the loop watches.
        self._next: asyncio.Handle | None = None
        self._watch()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_gathering(self) -> bool:
        """Whether bytes that arrive now wait."""
        return self._next is not None

    def add(self, descriptor: int, connection: Quiet) -> None:
        """Read a connection that the loop has stopped reading."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._waiting[descriptor] = connection

    def remove(self, descriptor: int) -> None:
        """Stop reading a connection. Must be called before its socket is closed."""
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
            if connection is not None:  # an earlier one may have removed it
                try:
                    connection.read_quiet()
                except Exception:
                    _log.exception("request failed")
                    connection.abort()
        if len(came) == READ_TURN:
            self._next = self._loop.call_soon(self._read)
        elif came:
            self._next = self._loop.call_later(self._gather_s, self._read)
        else:
            self._watch()
