"""From the bytes of one connection to frames, each of which is one request.

    frame = length i32, then as many bytes; a length below 8 (no header fits) or above the limit ends the connection

All connections read into one shared buffer, so an idle one holds no memory. The receiver of a complete frame copies it
out of the buffer (`FrameReceiver.start`). A frame longer than SMALL_FRAME_BYTES has a separate buffer
(`long_request`).

A frame that may not start yet is held, with all that arrived after it. The receiver pauses the reading for that reason,
and calls `go_on` when the reason has ended. The reader itself pauses for want of memory, and after a full buffer.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Final, Protocol

from gateway_svc.clients.long_request import FULL_READ_BYTES, LongRequest
from gateway_svc.clients.reading import Pause, Reading
from gateway_svc.errors import RequestRefused
from gateway_svc.memory_budget import MemoryBudget

#: Length from which on a frame has a separate buffer, less one.
SMALL_FRAME_BYTES: Final = 16 * 1024
#: API key, version and correlation id, which every request has.
_FRAME_BYTES_MIN: Final = 8

_length: Final = Struct(">i").unpack_from


class FrameReceiver(Protocol):
    """The connection, as its frame reader uses it."""

    def admits(self, store: bytes | bytearray, begin: int, size: int) -> bool:
        """Return whether the frame of `size` bytes at `begin` may start; if not, pause the reading until it may."""
        ...

    def check_long(self, start: bytes | memoryview, size: int) -> None:
        """Check a frame of `size` bytes by the first 8 of them, before the rest is received.

        Raises:
            RequestRefused: no such request is served.
        """
        ...

    def start(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:
        """Start the frame between `begin` and `frame_end`, and maybe others up to `end`; return where the last ends.

        Raises:
            RequestRefused: the frame is not a request that can be answered.
        """
        ...


class FrameReader:
    """The receiving half of one connection, which owns it. `close` must follow."""

    __slots__ = (
        "_at",
        "_budget",
        "_limit",
        "_long",
        "_loop",
        "_reading",
        "_receiver",
        "_rest",
        "_shared",
        "_view",
        "holds",
        "started_at",
    )

    def __init__(
        self,
        receiver: FrameReceiver,
        reading: Reading,
        shared: memoryview,
        budget: MemoryBudget,
        limit: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Read frames of up to `limit` bytes.

        Args:
            receiver: starts the frames.
            reading: paused while frames wait.
            shared: view of a bytearray that is filled and emptied within one callback.
            budget: the memory of long frames; reading pauses while it is spent.
            limit: bytes of one frame at most.
            loop: the event loop of the connection.
        """
        self._receiver = receiver
        self._reading = reading
        self._view = shared
        self._shared: bytearray = shared.obj  # type: ignore[assignment]
        self._budget = budget
        self._limit = limit
        self._loop = loop
        #: Bytes that arrived and have not started, from position `_at` on.
        self._rest: bytes = b""
        self._at = 0
        #: The long frame that is being received, or is held.
        self._long: LongRequest | None = None
        #: Whether a complete frame has arrived that may not start yet.
        self.holds = False
        #: The event loop's time at the first byte of the incomplete frame; None without one, and while frames are held.
        #: It runs on while reading is paused for want of memory: a client that fills the memory cannot keep it.
        self.started_at: float | None = None

    @property
    def is_incomplete(self) -> bool:
        """Whether a part of a frame has arrived and the rest has not."""
        if self._long is not None:
            return not self._long.whole
        return bool(self._rest) and not self.holds

    @property
    def memory_held(self) -> int:
        """Bytes of the budget that frames hold."""
        return 0 if self._long is None else self._long.memory_held

    def room(self) -> memoryview:
        """Return where to receive more bytes; `received` must follow."""
        if self._long is not None:
            return self._long.room()
        shared = self._view
        kept = len(self._rest)
        if kept:
            shared[:kept] = self._rest
        elif not self._budget.full:
            return shared
        return shared[kept : kept + FULL_READ_BYTES] if self._budget.full else shared[kept:]

    def received(self, count: int, now: float) -> None:
        """Start the frames that are complete with the `count` bytes that were received. `now`: the event loop's time.

        Raises:
            RequestRefused: a length is wrong, or the receiver refuses a frame.
        """
        if self._long is not None:
            self._receive_long(self._long, count)
            return
        end = len(self._rest) + count
        self._start(self._shared, 0, end, now)
        if end == len(self._shared):
            # libuv would go on as long as a read fills the buffer, while other connections wait.
            self._reading.pause(Pause.TURN)
            self._loop.call_soon(self._reading.resume, Pause.TURN)

    def go_on(self, now: float) -> bool:
        """Start the frames that are held, as far as they may start; return whether any did.

        Raises:
            RequestRefused: as `received`.
        """
        if self._long is not None:
            return self._long.whole and self._start_long(self._long)
        return self._start(self._rest, self._at, len(self._rest), now)

    def _start(self, store: bytes | bytearray, position: int, end: int, now: float) -> bool:
        """Start the frames between two positions, as far as they are complete and may start; keep the rest."""
        first = position
        receiver, reading = self._receiver, self._reading
        while end - position >= 4 and not reading.closed:
            (size,) = _length(store, position)
            if not _FRAME_BYTES_MIN <= size <= self._limit:
                raise RequestRefused("frame_length", f"a length of {size}")
            begin = position + 4
            if size > end - begin:
                break
            if not receiver.admits(store, begin, size):
                self._hold(store, position, end)
                return position > first
            position = receiver.start(store, begin, begin + size, end)
        self.holds = False
        if position == end or reading.closed:
            self._rest, self._at = b"", 0
            self.started_at = None
        else:
            self._keep(store, position, end, now, new=position > first)
        if self._budget.full and not reading.closed:
            self._await_memory()
        return position > first

    def _hold(self, store: bytes | bytearray, position: int, end: int) -> None:
        if store is not self._rest:
            self._rest, position = bytes(memoryview(store)[position:end]), 0
        self._at = position
        self.holds = True
        self.started_at = None

    def _keep(self, store: bytes | bytearray, position: int, end: int, now: float, *, new: bool) -> None:
        """Keep the begin of an incomplete frame. `new`: its first byte has arrived just now."""
        self._at = 0
        if new or self.started_at is None:
            self.started_at = now
        data = memoryview(store)[position:end]
        if len(data) >= 4 + _FRAME_BYTES_MIN:
            size = int.from_bytes(data[:4], "big", signed=True)
            if size > SMALL_FRAME_BYTES:
                self._receiver.check_long(data[4 : 4 + _FRAME_BYTES_MIN], size)
                self._rest = b""
                self._long = LongRequest(size, data[4:], self._budget, self)
                return
        self._rest = bytes(data)

    def _receive_long(self, request: LongRequest, count: int) -> None:
        request.received += count
        if request.pause_due:
            request.pause_due = False
            self._await_memory()
        if request.whole:
            self._start_long(request)

    def _start_long(self, request: LongRequest) -> bool:
        buffer = request.buffer
        self.started_at = None
        self.holds = not self._receiver.admits(buffer, 0, len(buffer))
        if self.holds:
            return False
        self._drop_long()
        self._receiver.start(buffer, 0, len(buffer), len(buffer))
        return True

    def _await_memory(self) -> None:
        self._reading.pause(Pause.MEMORY)
        self._budget.wait(self, self._has_memory)

    def _has_memory(self) -> None:
        self._reading.resume(Pause.MEMORY)

    def _drop_long(self) -> None:
        if self._long is not None:
            request, self._long = self._long, None
            request.drop()

    def close(self) -> None:
        """Give back the memory of frames that have not started."""
        self._drop_long()
        self._rest = b""
        self.holds = False
        self._budget.forget(self)
