"""A listening socket that accepts all connections at once and begins them a few at a time.

The kernel queues BACKLOG connections; a client whose connection finds no room tries again a second later. asyncio's
own server accepts all that are queued and begins all of them before it looks again. When thousands of clients
reconnect at once, that takes long enough for the kernel's queue to overflow, and connected clients wait as long.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable

from service_chassis import logs

#: Connections the kernel holds until they are accepted (Kafka's is 50): as many as Linux allows by default.
BACKLOG = 4096
#: Connections that are accepted, and that are begun, in one turn of the event loop: a few milliseconds each.
ACCEPT_TURN, BEGIN_TURN = 512, 32
#: Seconds without accepting when descriptors or memory have run out.
PAUSE_S = 1.0
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logs.get(__name__)


class Acceptor:
    """A listener until `close`, which also drops connections that were accepted and not begun."""

    def __init__(self, listening: socket.socket, protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._protocol = protocol
        self._accepted: deque[socket.socket] = deque()
        self._beginning: set[asyncio.Task[object]] = set()
        self._resume: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._loop.add_reader(listening, self._accept)

    def _accept(self) -> None:
        idle = not self._accepted
        for _ in range(ACCEPT_TURN):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._loop.remove_reader(self._socket)
                self._resume = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._socket, self._accept)
                log.error("cannot accept connections", reason=error.strerror, pause_s=PAUSE_S)
                break
            accepted.setblocking(False)
            self._accepted.append(accepted)
        if idle and self._accepted:
            self._begin()

    def _begin(self) -> None:
        for _ in range(min(BEGIN_TURN, len(self._accepted))):
            connecting = self._loop.connect_accepted_socket(self._protocol, self._accepted.popleft())
            task: asyncio.Task[object] = self._loop.create_task(connecting, name="accept")
            self._beginning.add(task)
            task.add_done_callback(self._begun)
        if self._accepted:
            self._loop.call_soon(self._begin)

    def _begun(self, task: asyncio.Task[object]) -> None:
        self._beginning.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("connection not begun", reason=repr(error))

    def close(self) -> None:
        """Accept no more; connections that have begun stay. May be called again."""
        if self._socket.fileno() < 0:
            return
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        while self._accepted:
            self._accepted.popleft().close()
