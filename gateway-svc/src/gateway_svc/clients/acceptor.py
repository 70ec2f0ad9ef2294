"""A listening socket that accepts all connections at once and begins them a few at a time.

The kernel queues BACKLOG connections. A client whose connection finds no room there tries again a second later.
asyncio's own server begins all queued connections before it accepts more. When thousands of clients reconnect at once,
that takes so long that the kernel's queue overflows, and connected clients wait as long.

`Entrance` counts a connection from the moment it is accepted, and limits how many begin in a second. Addresses take
turns, so that a client does not wait for the hundreds of another. While many others wait for the next step of their
handshakes and logins (`shared_turns`), one begins in STEPS_MAX turns. So those that have begun end in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict, deque
from collections.abc import Callable

from service_chassis import logs
from service_chassis.shared_turns import stranger_turns

from gateway_svc.clients.entrance import Entrance, Entry

#: Connections the kernel holds until they are accepted (Kafka's is 50): as many as Linux allows by default.
BACKLOG = 4096
#: Connections that are accepted, and that are begun, in one turn of the event loop: half a millisecond each.
ACCEPT_TURN, BEGIN_TURN = 16, 1
#: Steps of handshakes and logins that may wait while further connections begin.
STEPS_MAX = 32
#: Seconds without accepting when descriptors or memory have run out, or the network fails.
PAUSE_S = 1.0

log = logs.get(__name__)

#: The function that makes the protocol of a connection, which leaves when it is closed.
MakeProtocol = Callable[[Entry], asyncio.BaseProtocol]


class Acceptor:
    """A listener until `close`, which also drops connections that were accepted and not begun."""

    def __init__(self, listener: str, listening: socket.socket, entrance: Entrance, protocol: MakeProtocol) -> None:
        """Listen. `listener`: its name, for log lines."""
        self._loop = asyncio.get_running_loop()
        self._turns = stranger_turns(self._loop)
        #: Turns in which a connection could have begun, since the last one did.
        self._passed = 0
        self._listener = listener
        self._socket = listening
        self._entrance = entrance
        self._protocol = protocol
        #: Accepted sockets that have not begun, by address; the first address begins next.
        self._accepted: OrderedDict[str, deque[tuple[Entry, socket.socket]]] = OrderedDict()
        #: Sockets that are held unread, with the calls that will close them.
        self._held: dict[socket.socket, tuple[Entry, asyncio.TimerHandle]] = {}
        self._beginning: set[asyncio.Task[object]] = set()
        #: The next call of `_begin`; None while no accepted connection waits.
        self._next: asyncio.Handle | None = None
        self._resume: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._loop.add_reader(listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_TURN):
            try:
                accepted, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                self._loop.remove_reader(self._socket)
                self._resume = self._loop.call_later(PAUSE_S, self._loop.add_reader, self._socket, self._accept)
                log.error("cannot accept connections", reason=error.strerror, pause_s=PAUSE_S)
                break
            entry = self._entrance.enter(peer[0], peer[1], self._listener)
            if entry is None:
                accepted.close()
                continue
            delay_s = self._entrance.delay_s(peer[0].removeprefix("::ffff:"))
            if delay_s:
                self._hold(entry, accepted, delay_s)
                continue
            accepted.setblocking(False)
            self._accepted.setdefault(entry.key, deque()).append((entry, accepted))
        if self._next is None and self._accepted:
            self._begin()

    def _hold(self, entry: Entry, accepted: socket.socket, delay_s: float) -> None:
        """Leave a connection unread for a while, then close it: its address begins too many (KIP-612)."""
        handle = self._loop.call_later(delay_s, self._drop, entry, accepted)
        self._held[accepted] = (entry, handle)

    def _drop(self, entry: Entry, accepted: socket.socket) -> None:
        del self._held[accepted]
        accepted.close()
        entry.leave()

    def _begin(self) -> None:
        if len(self._turns) > STEPS_MAX and self._passed < STEPS_MAX:  # mutant: begun-logins-first
            self._passed += 1
            self._next = self._loop.call_soon(self._begin)
            return
        self._passed = 0
        self._next = None
        waiting = min(BEGIN_TURN, sum(map(len, self._accepted.values())))
        turns, wait_s = self._entrance.take_turns(waiting)
        for _ in range(turns):
            key, of_address = self._accepted.popitem(last=False)
            self._begin_one(*of_address.popleft())
            if of_address:
                self._accepted[key] = of_address
        if self._accepted:
            self._next = self._loop.call_later(wait_s, self._begin) if wait_s else self._loop.call_soon(self._begin)

    def _begin_one(self, entry: Entry, accepted: socket.socket) -> None:
        def begun(task: asyncio.Task[object]) -> None:
            self._beginning.discard(task)
            if task.cancelled() or (error := task.exception()) is not None:
                entry.leave()
            if not task.cancelled() and error is not None:
                log.warning("connection not begun", reason=repr(error))

        connecting = self._loop.connect_accepted_socket(lambda: self._protocol(entry), accepted)
        task: asyncio.Task[object] = self._loop.create_task(connecting, name="accept")
        self._beginning.add(task)
        task.add_done_callback(begun)

    def close(self) -> None:
        """Accept no more; connections that have begun stay. May be called again."""
        if self._socket.fileno() < 0:
            return
        for handle in (self._resume, self._next):
            if handle is not None:
                handle.cancel()
        self._loop.remove_reader(self._socket)
        with contextlib.suppress(OSError):  # a fork of the process would keep the port open
            self._socket.shutdown(socket.SHUT_RDWR)  # mutant: fork-leaves-port
        self._socket.close()
        for accepted, (entry, late) in list(self._held.items()):
            late.cancel()
            self._drop(entry, accepted)
        while self._accepted:
            for entry, accepted in self._accepted.popitem()[1]:
                accepted.close()
                entry.leave()
