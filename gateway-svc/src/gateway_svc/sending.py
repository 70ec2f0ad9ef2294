"""Writes one connection's answers to its socket, never holding more of them in the transport than one write.

Small parts leave joined in one write, large ones by `WRITE_BYTES`, ranges of files by sendfile. While the client does
not read, parts wait in the queue by reference: a slow client costs what its own answer holds in memory (nothing for
files).
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence

from gateway_svc.memory import MemoryBudget
from gateway_svc.slices import FileRange, Part
from gateway_svc.waiting import release

#: Most bytes given to the transport in one write, which copies what the socket does not take at once.
WRITE_BYTES = 512 * 1024
#: Parts from this size on are written by themselves instead of being joined.
_LARGE_BYTES = 64 * 1024
#: Parts from this size on are counted in the gateway's memory budget while they wait.
_COUNTED_BYTES = 4096


class AnswerWriter:
    """Owned by its connection. `drained` is called when all was written after something had to wait."""

    __slots__ = (
        "_budget",
        "_counted",
        "_drained",
        "_failed",
        "_loop",
        "_offset",
        "_paused",
        "_queue",
        "_sendfile_works",
        "_socket",
        "_transport",
        "_waits_for_room",
        "_watched",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        budget: MemoryBudget,
        *,
        drained: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._transport = transport
        self._socket = transport.get_extra_info("socket")
        self._loop = loop
        self._budget = budget
        self._drained = drained
        self._failed = failed
        self._queue: deque[Part] = deque()
        #: Bytes of the first part that were written already.
        self._offset = 0
        #: Bytes of queued parts that are counted in the budget.
        self._counted = 0
        self._paused = False
        self._sendfile_works = True
        #: A descriptor of the socket of our own while room is waited for; -1 otherwise.
        self._watched = -1
        self._waits_for_room = False

    @property
    def busy(self) -> bool:
        """Whether answers wait to be written: no further request is started meanwhile."""
        return self._paused or bool(self._queue)

    def send(self, parts: Sequence[Part]) -> None:
        if len(parts) == 1 and not self._queue and not self._paused:
            part = parts[0]
            if type(part) is not FileRange and len(part) < _LARGE_BYTES:
                self._transport.write(part)  # type: ignore[arg-type]
                return
        for part in parts:
            size = len(part)
            if size >= _COUNTED_BYTES and type(part) is not FileRange:
                self._budget.take(size)
                self._counted += size
        self._queue.extend(parts)
        self._pump()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._transport.set_write_buffer_limits()
        self._pump()
        if not self.busy:
            self._drained()

    def _pump(self) -> None:
        queue = self._queue
        while queue and not self._paused and not self._waits_for_room and not self._transport.is_closing():
            part = queue[0]
            if type(part) is FileRange:
                self._send_range(part)
            elif len(part) >= _LARGE_BYTES:
                self._write_large(part)
            else:
                self._write_small()

    def _write_small(self) -> None:
        batch: list[bytes | memoryview] = []
        size = 0
        queue = self._queue
        while queue and size < WRITE_BYTES:
            part = queue[0]
            if type(part) is FileRange or len(part) >= _LARGE_BYTES:
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
        if size >= _COUNTED_BYTES and self._counted:
            counted = min(size, self._counted)
            self._counted -= counted
            self._budget.give(counted)

    def _send_range(self, part: FileRange) -> None:
        """As much as the socket takes at once; what is left goes when the socket has room again."""
        if not self._sendfile_works:
            self._write_range_bytes(part)
            return
        if self._transport.get_write_buffer_size():
            # What goes before is still with the transport: it calls `pause` now, and `resume` when it has sent all.
            self._transport.set_write_buffer_limits(high=0)
            return
        try:
            sent = os.sendfile(
                self._socket.fileno(), part.file.descriptor, part.position + self._offset, part.length - self._offset
            )
        except BlockingIOError:
            self._wait_for_room()
            return
        except ConnectionError as error:
            self._failed(f"connection lost: {error.strerror}")
            return
        except OSError:
            self._sendfile_works = False
            return
        if not sent:
            self._failed("the file of a slice is shorter than the slice")
            return
        self._offset += sent
        if self._offset == part.length:
            self._range_sent(part)
        else:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        """asyncio keeps a transport's own descriptor to itself: a second one of the same socket is watched."""
        if self._watched < 0:
            self._watched = os.dup(self._socket.fileno())
            self._loop.add_writer(self._watched, self._has_room)
        self._waits_for_room = True

    def _has_room(self) -> None:
        self._waits_for_room = False
        self._pump()
        if not self._waits_for_room:
            self._stop_watching()
            if not self.busy:
                self._drained()

    def _stop_watching(self) -> None:
        if self._watched >= 0:
            self._loop.remove_writer(self._watched)
            os.close(self._watched)
            self._watched = -1

    def _range_sent(self, part: FileRange) -> None:
        self._queue.popleft()
        self._offset = 0
        part.release()

    def _write_range_bytes(self, part: FileRange) -> None:
        """For volumes without sendfile: read here, written like any other bytes."""
        data = os.pread(part.file.fileno(), min(WRITE_BYTES, part.length - self._offset), part.position + self._offset)
        if not data:
            self._failed("the file of a slice is shorter than the slice")
            return
        self._offset += len(data)
        if self._offset == part.length:
            self._range_sent(part)
        self._transport.write(data)

    def close(self) -> None:
        """The connection is gone: what was not written is dropped."""
        self._budget.give(self._counted)
        self._counted = 0
        release(self._queue)
        self._queue.clear()
        self._stop_watching()
