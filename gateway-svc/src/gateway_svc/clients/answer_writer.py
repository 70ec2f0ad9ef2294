"""Writes one connection's answers to its socket, never holding more of them in the transport than one write.

Small parts are joined into one write, and large ones are written `WRITE_BYTES` at a time. Ranges of files are sent by
sendfile, those of lanes by splice. While the client does not read, parts wait in the queue by reference. So a slow
client costs the memory of one answer, and none for files.

**Whoever is told to wait is woken.** A queue that is not empty waits for one thing at a time. `_pump` goes on after it:

    the transport's bytes have to leave     from `pause` to `resume`
    the socket has no room                  `has_room`, from SocketRoom
    storage has to send records             `has_records`, from the lane

The kernel decides how much a socket accepts (no SO_SNDBUF): it adapts to the speed of the client. Connections within
this machine are not paced. A congestion control that paces (BBR) would start a timer and wake the client for every
64 KB, and halve the rate of a path that cannot be congested.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from service_chassis import logs
from service_chassis.socket_room import Sent, SocketRoom

from gateway_svc.clients.pipeline import release
from gateway_svc.clients.slices import MOVED, FileRange, LaneRange, Part
from gateway_svc.memory_budget import MemoryBudget

sendfile, write = os.sendfile, os.write
_ALL, _SOME, _NOTHING = Sent.ALL, Sent.SOME, Sent.NOTHING

#: Most bytes in one write to the transport, which copies the bytes that the socket does not accept at once.
WRITE_BYTES = 512 * 1024
#: Most bytes of a file sent in one call: half a millisecond, for which the event loop stands.
SENDFILE_BYTES_MAX = 2 * 1024 * 1024
#: Parts from this size on are written by themselves instead of being joined.
_LARGE_BYTES = 64 * 1024
_log = logs.get(__name__)


class AnswerWriter:
    """The queue of one connection's answers; the connection owns it.

    Callbacks:
        drained: all answers are written, after one had to wait.
        failed: the socket or a file failed.
        overfull: the answers that wait use more than their memory.
    """

    __slots__ = (
        "_budget",
        "_buffered",
        "_counted",
        "_descriptor",
        "_drained",
        "_failed",
        "_offset",
        "_overfull",
        "_paused",
        "_queue",
        "_range",
        "_room",
        "_sendfile_works",
        "_transport",
        "_waits_for_records",
        "_waits_for_room",
        "moves",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        room: SocketRoom,
        budget: MemoryBudget,
        *,
        drained: Callable[[], None],
        failed: Callable[[str], None],
        overfull: Callable[[], None],
    ) -> None:
        self._transport = transport
        #: The socket's descriptor, which the transport owns.
        self._descriptor: int = transport.get_extra_info("socket").fileno()
        _set_options(transport)
        self._room = room
        self._budget = budget
        self._drained = drained
        self._failed = failed
        self._overfull = overfull
        self._queue: deque[Part] = deque()
        #: Bytes of the first part that were written already.
        self._offset = 0
        #: Bytes of queued parts, and of the transport's buffer, that are counted in the budget.
        self._counted = self._buffered = 0
        self._paused = False
        self._sendfile_works = True
        #: The range that is being sent and waits for room, or for records of storage.
        self._range: FileRange | LaneRange | None = None
        self._waits_for_room = self._waits_for_records = False
        #: Counts the answers that were sent, and the times at which the client has read a part of one.
        self.moves = 0

    @property
    def busy(self) -> bool:
        """Whether answers wait to be written: no other request is started until they are."""
        return self._paused or bool(self._queue)

    @property
    def memory_held(self) -> int:
        """Bytes of the budget that waiting answers hold."""
        return self._counted + self._buffered

    def send(self, parts: Sequence[Part]) -> None:
        self.moves += 1
        if not self._queue and not self._paused:
            part = parts[0]
            if type(part) not in MOVED and len(part) < _LARGE_BYTES:
                if len(parts) == 1:
                    self._transport.write(part)  # type: ignore[arg-type]
                    return
                if type(parts[1]) in MOVED and self._send_head(part):  # type: ignore[arg-type]
                    parts = parts[1:]
        size = sum([len(part) for part in parts if type(part) not in MOVED])
        if size:
            self._budget.take(size)
            self._counted += size
        self._queue.extend(parts)
        self._pump()
        if self._counted and self._budget.full:
            self._overfull()

    def _send_head(self, head: bytes | memoryview) -> bool:
        """Write the bytes before a range to the socket; return whether they were written.

        The transport might keep them until the event loop's turn is over.
        """
        transport = self._transport
        if transport.get_write_buffer_size() or transport.is_closing():
            return False
        try:
            sent = write(self._descriptor, head)
        except OSError:
            return False  # the transport finds the error
        if sent < len(head):
            transport.write(memoryview(head)[sent:])
        return True

    def pause(self) -> None:
        self._paused = True
        self.count_buffered()

    def count_buffered(self) -> None:
        """Count the bytes in the transport's buffer: up to 64 KB that the client has not read, or one write."""
        buffered = self._transport.get_write_buffer_size()  # mutant: transport-bytes-counted
        change = buffered - self._buffered
        if change:
            self._buffered = buffered
            (self._budget.take if change > 0 else self._budget.give)(abs(change))

    def resume(self) -> None:
        self._paused = False
        self.count_buffered()
        self.moves += 1
        self._transport.set_write_buffer_limits()
        self._pump()
        if not self.busy:
            self._drained()

    def _pump(self) -> None:
        queue = self._queue
        while queue and not self._paused and not self._waits and not self._transport.is_closing():
            part = queue[0]
            if isinstance(part, (FileRange, LaneRange)):
                self._send_range(part)
            elif len(part) >= _LARGE_BYTES:
                self._write_large(part)
            else:
                self._write_small()

    @property
    def _waits(self) -> bool:
        return self._waits_for_room or self._waits_for_records

    def _write_small(self) -> None:
        batch: list[bytes | memoryview] = []
        size = 0
        queue = self._queue
        while queue and size < WRITE_BYTES:
            part = queue[0]
            if type(part) in MOVED or len(part) >= _LARGE_BYTES:
                break
            batch.append(part)  # type: ignore[arg-type]
            size += len(part)
            self._done_with_first()
        self._transport.write(b"".join(batch))

    def _write_large(self, part: Part) -> None:
        view = memoryview(part)  # type: ignore[arg-type]
        start, self._offset = self._offset, self._offset + WRITE_BYTES
        if self._offset >= len(view):
            self._done_with_first()
        self._transport.write(view[start : start + WRITE_BYTES])

    def _done_with_first(self) -> None:
        size = len(self._queue.popleft())
        self._offset = 0
        if self._counted:  # else the connection is closed
            self._counted -= size
            self._budget.give(size)

    def _send_range(self, part: FileRange | LaneRange) -> None:
        """Send as much as there is and the socket accepts; the rest follows when one of both has changed."""
        if not self._sendfile_works and type(part) is FileRange:
            self._write_range_bytes(part)
            return
        if self._transport.get_write_buffer_size():
            # The transport still has bytes from before: it calls `pause` now, and `resume` when it has sent them.
            self._transport.set_write_buffer_limits(high=0)
            return
        self._send_some(part)
        if part is self._range and not self._waits:
            self._waits_for_room = True
            self._room.wait(self._descriptor, self)

    def _send_some(self, part: FileRange | LaneRange) -> Sent:
        """Try once to send the rest of a range."""
        return self._sendfile(part) if isinstance(part, FileRange) else self._splice(part)

    def _splice(self, part: LaneRange) -> Sent:
        """Move what storage has sent to the socket. If more has to come first, `has_records` is called then."""
        left = part.length - self._offset
        try:
            moved = part.answer.move(self._descriptor, min(left, SENDFILE_BYTES_MAX))
        except OSError as error:
            self._range = None
            self._failed(f"records were cut off: {error}")
            return _ALL
        if moved:
            self.moves += 1
        if moved == left:
            self._range = None
            self._range_sent(part)
            return _ALL
        self._range = part
        self._offset += moved
        if part.answer.is_dry:
            self._waits_for_room, self._waits_for_records = False, True
            part.answer.wait(self)
            return _ALL
        return _SOME if moved else _NOTHING

    def has_records(self) -> None:
        """Go on with the range of a lane (`storage.protocols.RecordReader`)."""
        self._waits_for_records = False
        self._pump()
        if not self.busy and not self._transport.is_closing():
            self._drained()

    def _sendfile(self, part: FileRange) -> Sent:
        offset = self._offset
        left = part.length - offset
        position = part.position + offset
        try:
            sent = sendfile(self._descriptor, part.file.descriptor, position, min(left, SENDFILE_BYTES_MAX))
        except BlockingIOError:
            self._range = part
            return _NOTHING
        except OSError as error:
            self._range = None
            if isinstance(error, ConnectionError):
                self._failed(f"connection lost: {error.strerror}")
            else:
                self._sendfile_works = False
            return _ALL
        if sent == left:
            self._range = None
            self._range_sent(part)
            return _ALL
        if not sent:
            self._range = None
            self._failed("the file of a slice is shorter than the slice")
            return _ALL
        self._range = part
        self._offset = offset + sent
        return _SOME

    def has_room(self) -> Sent:
        """Send all that the socket accepts now (`socket_room.Waiter`)."""
        part = self._range
        self.moves += 1
        if part is not None and not self._transport.is_closing():
            sent = self._send_some(part)
            if sent is not _ALL or self._waits_for_records:
                return sent
        self._waits_for_room = False
        self._pump()
        if not self.busy:
            self._drained()
        return _SOME if self._waits_for_room else _ALL

    def fail(self, error: Exception) -> None:
        """Close the connection: an answer could not be sent."""
        _log.error("answer not sent", reason=repr(error))
        self._failed("the answer could not be sent")

    def _range_sent(self, part: FileRange | LaneRange) -> None:
        self._queue.popleft()
        self._offset = 0
        part.release()

    def _write_range_bytes(self, part: FileRange) -> None:
        """Read a part of a range and write it like other bytes: on volumes without sendfile."""
        size = min(WRITE_BYTES, part.length - self._offset)
        try:
            data = os.pread(part.file.fileno(), size, part.position + self._offset)
        except OSError as error:
            self.fail(error)
            return
        if not data:
            self._failed("the file of a slice is shorter than the slice")
            return
        self._offset += len(data)
        if self._offset == part.length:
            self._range_sent(part)
        self._transport.write(data)

    def close(self) -> None:
        """Drop the answers that were not written: the connection is closed."""
        self._budget.give(self._counted + self._buffered)
        self._counted = self._buffered = 0
        release(self._queue)
        self._queue.clear()
        self._range = None
        self._waits_for_records = False
        self._room.forget(self._descriptor)


def _set_options(transport: asyncio.Transport) -> None:
    """Set the options of the connection's socket, as far as the system knows them."""
    connected = transport.get_extra_info("socket")
    ours, theirs = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ours and theirs and ours[0] == theirs[0]:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
