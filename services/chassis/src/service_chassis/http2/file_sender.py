"""Ranges of files as DATA of a connection, which the system moves from the file to the socket (sendfile(2)).

The socket is the connection's own, so nothing else may be written to it between the head of such a frame and its last
byte. While a range is sent, the connection counts as full. Streams wait in `Connection.waiting`. Frames that wait for
no window are held here, at most Limits.queued_bytes of them.

**Whoever is told to wait is woken.** A range ends when all of its bytes are in the socket, or the connection has ended
(`close`). Both call `done` once. In the first case the held frames leave, and `pump_waiting` runs.
In between the sender waits in one of two places:

    what is missing                            what wakes it
    the transport's own bytes have to leave    `drained`, from the transport's `resume_writing`, as its limit is 0
    room in the socket                         SocketRoom, until `has_room` returns ALL or `close` forgets it

A stream that ends in between does not end the range: its frame's length is announced. The descriptor is a duplicate, so
that the file may be closed.
"""

from __future__ import annotations

import fcntl
import os
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from service_chassis.socket_room import Sent, SocketRoom

if TYPE_CHECKING:
    from service_chassis.http2.connection import Connection

#: Most bytes of a file that are sent in one call: half a millisecond, for which the event loop stands.
STEP_BYTES: Final = 2 << 20
#: Bytes that are read and written in one step of a file that cannot be sent by sendfile.
_COPIED_BYTES: Final = 256 << 10

_sendfile: Final = os.sendfile


class FileSender:
    """The sender of one connection's ranges, one at a time. `Connection.send_file` makes it."""

    def __init__(self, connection: Connection, room: SocketRoom) -> None:
        self._connection = connection
        self._room = room
        #: The socket's descriptor, which the transport owns.
        self._socket: int = connection.transport.get_extra_info("socket").fileno()
        #: Whether a range is being sent.
        self.is_busy = False
        self._waits_for_room = False
        self._can_sendfile = True
        self._head = b""
        self._file = -1
        self._position = self._left = 0
        self._done: Callable[[], None] = _nothing
        self._held: list[tuple[bytes, int]] = []
        self._held_bytes = 0

    def send(self, head: bytes, descriptor: int, position: int, length: int, done: Callable[[], None]) -> None:
        """Send `head` and then `length` bytes at `position` of a file; call `done` once they have left, or at the end
        of the connection, later.

        Raises:
            OSError: there are no more descriptors.
        """
        assert not self.is_busy
        self._file = os.dup(descriptor)
        self._head, self._position, self._left, self._done = head, position, length, done
        self.is_busy = self._connection.is_full = True
        transport = self._connection.transport
        if transport.get_write_buffer_size():
            transport.set_write_buffer_limits(high=0)
        else:
            self._begin()

    def hold(self, data: bytes, count: int) -> bool:
        """Keep `count` frames until the end of the range; return False if there are too many."""
        self._held.append((data, count))
        self._held_bytes += len(data)
        return self._held_bytes <= self._connection.limits.queued_bytes

    def drained(self) -> None:
        """Begin the range: the transport has nothing left to write."""
        if self.is_busy and not self._waits_for_room:
            self._begin()

    def _begin(self) -> None:
        if self.has_room() is not Sent.ALL:
            self._waits_for_room = True
            self._room.wait(self._socket, self)

    # -- SocketRoom's waiter -----------------------------------------------------------------------------------------

    def has_room(self) -> Sent:
        """Send as much as the socket accepts, STEP_BYTES at most."""
        try:
            if self._head:
                self._head = self._head[os.write(self._socket, self._head) :]
                if self._head:
                    return Sent.SOME
            sent = self._send_some()
        except BlockingIOError:
            return Sent.NOTHING
        except OSError as error:
            self._fail(f"a file could not be sent: {error.strerror}")
            return Sent.ALL
        if not sent:
            self._fail("a file is shorter than its range")
            return Sent.ALL
        self._position += sent
        self._left -= sent
        self._connection.counts.bytes_sent += sent
        if self._left:
            return Sent.SOME
        self._finish()
        return Sent.ALL

    def _send_some(self) -> int:
        if self._can_sendfile:
            try:
                return _sendfile(self._socket, self._file, self._position, min(self._left, STEP_BYTES))
            except BlockingIOError:
                raise
            except ConnectionError:
                raise
            except OSError:  # this file system, or this kind of socket
                self._can_sendfile = False
        data = os.pread(self._file, min(self._left, _COPIED_BYTES), self._position)
        return os.write(self._socket, data) if data else 0

    def fail(self, error: Exception) -> None:
        """Close the connection: `has_room` has raised this error."""
        self._fail(repr(error))

    def _fail(self, reason: str) -> None:
        self._connection.abort(reason)  # calls `close`

    def _finish(self) -> None:
        connection, done = self._connection, self._end()
        connection.restore_write_limits()
        connection.is_full = False
        held, self._held, self._held_bytes = self._held, [], 0
        for data, count in held:
            connection.write(data, count)
        done()
        connection.pump_waiting()  # mutant: sent-range-wakes

    def _end(self) -> Callable[[], None]:
        self.is_busy = self._waits_for_room = False
        os.close(self._file)
        self._file = -1
        done, self._done = self._done, _nothing
        return done

    def close(self) -> None:
        """Give up: the connection has ended. Idempotent."""
        self._room.forget(self._socket)
        self._held.clear()
        if self.is_busy:
            self._end()()  # mutant: lost-range-wakes

    def is_unread(self) -> bool:
        """Return whether the peer must read sent bytes before it can answer a PING. TCP detects a lost peer then."""
        if self.is_busy:
            return True
        return fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)) != bytes(4)


def _nothing() -> None:
    """Do nothing: no range is being sent."""
