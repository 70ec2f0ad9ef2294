"""Writes one connection's answers to its wire, which never keeps more of them than one write.

Small parts are joined into one write, and large ones are written `WRITE_BYTES` at a time. Ranges of files are sent by
sendfile, those of lanes by splice. While the client does not read, parts wait in the queue by reference. So a slow
client costs the memory of one answer, and none for files.

**Whoever is told to wait is woken.** A queue that is not empty waits for one thing at a time. `_pump` goes on after it:

    the transport's bytes have to leave     from `pause` to `resume`
    the socket has no room                  `has_room`, from SocketRoom
    storage has to send records             `has_records`, from the lane

Without a `wire.Mover`, as under TLS, ranges are read into memory, WRITE_BYTES at a time, and written.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence

from service_chassis import logs
from service_chassis.socket_room import Sent

from gateway_svc.clients.pipeline import release
from gateway_svc.clients.slices import MOVED, FileRange, LaneRange, Part
from gateway_svc.clients.wire import Mover, Wire
from gateway_svc.memory_budget import MemoryBudget

_ALL, _SOME, _NOTHING = Sent.ALL, Sent.SOME, Sent.NOTHING

#: Most bytes in one write to the wire, which keeps the bytes that the socket does not accept at once.
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
        "_drained",
        "_failed",
        "_mover",
        "_offset",
        "_overfull",
        "_paused",
        "_queue",
        "_range",
        "_sends_files",
        "_waits_for_records",
        "_waits_for_room",
        "_wire",
        "moves",
    )

    def __init__(
        self,
        wire: Wire,
        budget: MemoryBudget,
        *,
        drained: Callable[[], None],
        failed: Callable[[str], None],
        overfull: Callable[[], None],
    ) -> None:
        self._wire = wire
        self._budget = budget
        self._drained = drained
        self._failed = failed
        self._overfull = overfull
        self._queue: deque[Part] = deque()
        #: Bytes of the first part that were written already.
        self._offset = 0
        #: Bytes of queued parts, and of those that the wire keeps, that are counted in the budget.
        self._counted = self._buffered = 0
        self._paused = False
        self._mover = wire.mover
        #: Whether the system sends ranges of files: not from every volume.
        self._sends_files = True
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
                    self._wire.write(part)  # type: ignore[arg-type]
                    return
                mover = self._mover
                if mover is not None and type(parts[1]) in MOVED and mover.write_now(part):  # type: ignore[arg-type]
                    parts = parts[1:]
        size = sum([len(part) for part in parts if type(part) not in MOVED])
        if size:
            self._budget.take(size)
            self._counted += size
        self._queue.extend(parts)
        self._pump()
        if self._counted and self._budget.full:
            self._overfull()

    def pause(self) -> None:
        self._paused = True
        self.count_buffered()

    def count_buffered(self) -> None:
        """Count the bytes that the wire keeps: up to 64 KB that the client has not read, or one write."""
        buffered = self._wire.unwritten()  # mutant: transport-bytes-counted
        change = buffered - self._buffered
        if change:
            self._buffered = buffered
            (self._budget.take if change > 0 else self._budget.give)(abs(change))

    def resume(self) -> None:
        self._paused = False
        self.count_buffered()
        self.moves += 1
        self._pump()
        if not self.busy:
            self._drained()

    def _pump(self) -> None:
        queue = self._queue
        while queue and not self._paused and not self._waits and not self._wire.is_closing():
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
        self._wire.write(b"".join(batch))

    def _write_large(self, part: Part) -> None:
        view = memoryview(part)  # type: ignore[arg-type]
        start, self._offset = self._offset, self._offset + WRITE_BYTES
        if self._offset >= len(view):
            self._done_with_first()
        self._wire.write(view[start : start + WRITE_BYTES])

    def _done_with_first(self) -> None:
        size = len(self._queue.popleft())
        self._offset = 0
        if self._counted:  # else the connection is closed
            self._counted -= size
            self._budget.give(size)

    def _send_range(self, part: FileRange | LaneRange) -> None:
        """Send as much as there is and the socket accepts; the rest follows when one of both has changed."""
        mover = self._mover
        if mover is None or (type(part) is FileRange and not self._sends_files):
            self._write_range(part)
            return
        if not mover.is_writable():
            # The wire keeps bytes from before: it calls `pause` now, and `resume` when it has sent them.
            mover.pause_until_written()
            return
        self._send_some(part, mover)
        if part is self._range and not self._waits:
            self._waits_for_room = True
            mover.wait_for_room(self)

    def _send_some(self, part: FileRange | LaneRange, mover: Mover) -> Sent:
        """Try once to send the rest of a range."""
        return self._sendfile(part, mover) if isinstance(part, FileRange) else self._splice(part, mover)

    def _splice(self, part: LaneRange, mover: Mover) -> Sent:
        """Move what storage has sent to the socket. If more has to come first, `has_records` is called then."""
        left = part.length - self._offset
        try:
            moved = mover.splice(part.answer, min(left, SENDFILE_BYTES_MAX))
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
        if not self.busy and not self._wire.is_closing():
            self._drained()

    def _sendfile(self, part: FileRange, mover: Mover) -> Sent:
        offset = self._offset
        left = part.length - offset
        position = part.position + offset
        try:
            sent = mover.send_file(part.file.descriptor, position, min(left, SENDFILE_BYTES_MAX))
        except BlockingIOError:
            self._range = part
            return _NOTHING
        except OSError as error:
            self._range = None
            if isinstance(error, ConnectionError):
                self._failed(f"connection lost: {error.strerror}")
            else:
                self._sends_files = False
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
        part, mover = self._range, self._mover
        self.moves += 1
        if part is not None and mover is not None and not self._wire.is_closing():
            sent = self._send_some(part, mover)
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

    def _write_range(self, part: FileRange | LaneRange) -> None:
        """Read a part of a range into memory and write it like other bytes."""
        view = self._wire.borrow(min(WRITE_BYTES, part.length - self._offset))
        count = self._read_file(part, view) if isinstance(part, FileRange) else self._read_lane(part, view)
        if not count:
            return
        self._offset += count
        if self._offset == part.length:
            self._range_sent(part)
        self._wire.write(view[:count])

    def _read_file(self, part: FileRange, view: memoryview) -> int:
        """Fill the view, as far as the file goes; return 0 if the answer has failed."""
        try:
            count = os.preadv(part.file.descriptor, (view,), part.position + self._offset)
        except OSError as error:
            self.fail(error)
            return 0
        if not count:
            self._failed("the file of a slice is shorter than the slice")
        return count

    def _read_lane(self, part: LaneRange, view: memoryview) -> int:
        """Fill the view with the records that have come; return 0 if none has, or the answer has failed."""
        count = 0
        try:
            while count < len(view) and (got := part.answer.receive(view[count:])):
                count += got
        except OSError as error:
            self._failed(f"records were cut off: {error}")
            return 0
        if count:
            self.moves += 1
        else:
            self._waits_for_records = True
            part.answer.wait(self)
        return count

    def close(self) -> None:
        """Drop the answers that were not written: the connection is closed."""
        self._budget.give(self._counted + self._buffered)
        self._counted = self._buffered = 0
        release(self._queue)
        self._queue.clear()
        self._range = None
        self._waits_for_records = False
