"""From the bytes of one connection to frames, each of which is one request.

    frame = length i32, then as many bytes; a length below 8 (no header fits) or above the limit ends the connection

The token of a login may be shorter: of SaslHandshake version 0 it has no header.

All connections read into one shared buffer, so an idle one holds no memory. `Requests.start_requests` copies a complete
frame out of the buffer. A frame longer than SMALL_FRAME_BYTES has a separate buffer (`long_request`).

A frame that may not start yet is held, with all bytes after it. The gate pauses the reading for that reason, and the
connection calls `start_next_frames` when the reason has ended. The reader itself pauses while memory is short, and
after a full buffer.

`RequestMemory` counts all bytes that have arrived and not started. A connection is new until its first whole frame has
arrived, or its login has ended. New connections are read in short pieces, and share a small part of the memory.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Final, cast

from gateway_svc.clients.frame_gate import FrameGate
from gateway_svc.clients.long_request import LongRequest
from gateway_svc.clients.read_control import Pause, ReadControl
from gateway_svc.clients.resources import Requests
from gateway_svc.errors import RequestRefused
from gateway_svc.request_memory import SMALL_BYTES, RequestMemory, Share

#: The first two bytes of a client that speaks TLS: a handshake, of version 3.
_TLS_HANDSHAKE: Final = 0x1603
#: Length from which on a frame has a separate buffer, less one.
SMALL_FRAME_BYTES: Final = SMALL_BYTES
#: API key, version and correlation id, which every request has.
_FRAME_BYTES_MIN: Final = 8
#: Most bytes of one read of a new connection, and of any connection while memory is scarce.
NEW_CONNECTION_READ_BYTES: Final = 8 * 1024
SCARCE_READ_BYTES: Final = 4 * 1024
#: Bytes a second below which a request makes no progress, and the seconds that a faster one is ahead at most.
PROGRESS_BYTES_S: Final = 16 * 1024
_AHEAD_S: Final = 1.0

_length: Final = Struct(">i").unpack_from


class FrameReader:
    """The receiving half of one connection, which owns it. `close` must follow."""

    __slots__ = (
        "_at",
        "_due",
        "_gate",
        "_is_login",
        "_least",
        "_limit",
        "_long",
        "_loop",
        "_memory",
        "_paused_at",
        "_reading",
        "_requests",
        "_rest",
        "_share",
        "_shared",
        "_view",
        "holds",
        "is_new",
        "started_at",
    )

    def __init__(
        self,
        gate: FrameGate,
        reading: ReadControl,
        shared: memoryview,
        memory: RequestMemory,
        share: Share,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Wait for `serve`, which comes before the first byte.

        Args:
            gate: says whether a frame may start.
            reading: paused while frames wait.
            shared: view of a bytearray that is filled and emptied within one callback.
            memory: the memory of frames; reading pauses while it is spent.
            share: the part of the memory that the connection's address has.
            loop: the event loop of the connection.
        """
        self._gate = gate
        # `serve` sets these.
        self._requests: Requests = cast(Requests, None)
        self._is_login = False
        self._limit = self._least = 0
        self._reading = reading
        self._view = shared
        self._shared: bytearray = shared.obj  # type: ignore[assignment]
        self._memory = memory
        self._share = share
        self._loop = loop
        #: Bytes that arrived and have not started, from position `_at` on.
        self._rest: bytes = b""
        self._at = 0
        #: The long frame that is being received, or is held.
        self._long: LongRequest | None = None
        #: Whether a complete frame has arrived that may not start yet.
        self.holds = False
        #: The event loop's time at the first byte of the incomplete frame, without the time in which reading was paused
        #: because memory was short. None without an incomplete frame, and while frames are held.
        self.started_at: float | None = None
        #: The event loop's time at which reading was paused because memory was short; None while it is not.
        self._paused_at: float | None = None
        #: The event loop's time at which the next bytes of the incomplete frame are due, at PROGRESS_BYTES_S.
        self._due = 0.0
        #: Whether no whole frame has arrived yet, or the client's user is not known.
        self.is_new = True

    def serve(self, requests: Requests, limit: int) -> None:
        """Start the frames by `requests`, from the next one on. `limit`: bytes of one frame at most."""
        self._requests = requests
        self._is_login = requests.is_login
        self._gate.serve(is_login=requests.is_login)
        self._limit = limit
        self._least = 0 if requests.is_login else _FRAME_BYTES_MIN

    @property
    def is_incomplete(self) -> bool:
        """Whether a part of a frame has arrived and the rest has not."""
        if self._long is not None:
            return not self._long.whole
        return bool(self._rest) and not self.holds

    @property
    def memory_held(self) -> int:
        """Bytes that have arrived, or have room, and have not started."""
        return len(self._rest) if self._long is None else self._long.memory_held

    @property
    def is_read(self) -> bool:
        """Whether reading is not paused because memory is short."""
        return self._paused_at is None

    @property
    def arrived(self) -> int:
        """Bytes of the incomplete frame that have arrived."""
        return len(self._rest) if self._long is None else self._long.received

    @property
    def share(self) -> Share:
        """The share that `memory_held` counts under."""
        return self._share if self._long is None else self._long.share

    def stalled_s(self, now: float) -> float:
        """Return for how many seconds the bytes held here have made no progress; 0 without any, and while paused."""
        if self._paused_at is not None or not self.memory_held:
            return 0.0
        return max(0.0, now - self._due)

    def room(self) -> memoryview:
        """Return where to receive more bytes; `received` must follow."""
        if self._long is not None:
            return self._long.room()
        shared = self._view
        kept = len(self._rest)
        if kept:
            shared[:kept] = self._rest
        if self.is_new:
            return shared[kept : kept + NEW_CONNECTION_READ_BYTES]
        if self._memory.scarce:
            return shared[kept : kept + SCARCE_READ_BYTES]
        return shared[kept:] if kept else shared

    def received(self, count: int, now: float) -> None:
        """Start the frames that are complete with the `count` bytes that were received. `now`: the event loop's time.

        Raises:
            RequestRefused: a length is wrong, or a frame is not a request that is served.
        """
        if self._long is not None:
            self._receive_long(self._long, count, now)
            return
        end = len(self._rest) + count
        self._start_frames(self._shared, 0, end, now)
        if end == len(self._shared):  # mutant: read-fairness
            # libuv reads again as long as a read fills the buffer, while other connections wait.
            self._reading.pause(Pause.TURN)
            self._loop.call_soon(self._reading.resume, Pause.TURN)

    def start_next_frames(self, now: float) -> bool:
        """Start the held frames that may start; return whether any did.

        Raises:
            RequestRefused: as `received`.
        """
        if self._long is not None:
            return self._long.whole and self._start_long(self._long, now)
        return self._start_frames(self._rest, self._at, len(self._rest), now)

    def _start_frames(self, store: bytes | bytearray, position: int, end: int, now: float) -> bool:
        """Start the frames between two positions, as far as they are complete and may start; keep the rest."""
        first = position
        may_start, reading = self._gate.may_start, self._reading
        while end - position >= 4 and not reading.closed:
            (size,) = _length(store, position)
            if not self._least <= size <= self._limit:
                speaks_tls = size >> 16 == _TLS_HANDSHAKE
                raise RequestRefused("frame_length", f"a length of {size}" + ": the client speaks TLS" * speaks_tls)
            begin = position + 4
            if size > end - begin:
                break
            requests = self._requests  # a login that ends replaces them
            if not may_start(requests, store, begin, size):
                self._hold(store, position, end, now)
                return position > first
            position = requests.start_requests(store, begin, begin + size, end)
        self.holds = False
        if position > first:
            self.is_new = self._is_login  # mutant: unknown-client-is-new
        if position == end or reading.closed:
            if self._rest:
                self._set_rest(b"")
            self.started_at = None
        else:
            self._keep(store, position, end, now, new=position > first)
        if self._memory.scarce and self._long is None and not reading.closed:
            self._check_memory()
        return position > first

    def _set_rest(self, rest: bytes) -> None:
        before, self._rest, self._at = len(self._rest), rest, 0
        if rest:
            self._memory.take(self._share, len(rest))  # mutant: rest-of-request-counted
        if before:
            self._memory.give(self._share, before)  # mutant: rest-of-request-counted

    def _hold(self, store: bytes | bytearray, position: int, end: int, now: float) -> None:
        if store is self._rest:
            if position > self._at:
                self._at, self._due = position, now
        else:
            self._set_rest(bytes(memoryview(store)[position:end]))
            self._due = now
        self.holds = True
        self.started_at = None

    def _keep(self, store: bytes | bytearray, position: int, end: int, now: float, *, new: bool) -> None:
        """Keep the begin of an incomplete frame. `new`: its first byte has arrived just now."""
        if new or self.started_at is None:
            self.started_at, self._due = now, now + _AHEAD_S
        data = memoryview(store)[position:end]
        if len(data) >= 4 + _FRAME_BYTES_MIN:
            size = int.from_bytes(data[:4], "big", signed=True)
            if size > SMALL_FRAME_BYTES:
                self._requests.check_long(data[4 : 4 + _FRAME_BYTES_MIN], size)  # mutant: unserved-api-refused
                share = self._memory.new_connections if self.is_new else self._share
                self._long = LongRequest(size, data[4:], self._memory, share, self)
                self._set_rest(b"")
                self._check_room(self._long)
                return
        self._set_rest(bytes(data))

    def _receive_long(self, request: LongRequest, count: int, now: float) -> None:
        request.received += count
        self._due = min(self._due + count / PROGRESS_BYTES_S, now + _AHEAD_S)
        if request.whole:
            self._start_long(request, now)
        elif request.is_full and not request.grow():
            self._check_room(request)

    def _start_long(self, request: LongRequest, now: float) -> bool:
        buffer = request.buffer
        if not self.holds:
            self.started_at, self._due = None, now
        self.holds = not self._gate.may_start(self._requests, buffer, 0, len(buffer))
        if self.holds:
            return False
        self._long = None
        try:
            self._requests.start_requests(buffer, 0, len(buffer), len(buffer))
            self.is_new = self._is_login
        finally:
            request.drop()  # after it is counted as in service, so that no other connection is granted its bytes
        return True

    # -- memory ----------------------------------------------------------------------------------------------------

    def _check_memory(self) -> None:
        """Pause reading while the memory is used up. A connection that holds no memory is read all the same."""
        own = self._gate.bytes_in_service + self.memory_held
        if own and self._paused_at is None and self._memory.must_wait(own):
            self._pause()
            self._memory.wait(self, own, self._has_memory)

    def _check_room(self, request: LongRequest) -> None:
        """Pause reading until a long request whose buffer is full may grow."""
        if request.is_full and not self._reading.closed:
            self._pause()
            self._memory.wait_to_grow(self, request.share, request.wanted, self._granted)

    def _granted(self, count: int) -> None:
        if self._long is not None:
            self._long.granted(count)
        self._resume()

    def _has_memory(self) -> None:
        if self._long is None or not self._long.is_full:  # else it waits for room
            self._resume()

    def extend(self, seconds: float) -> None:
        """Give an incomplete or held frame more time: the connection was not read for so long."""
        self._due += seconds
        if self.started_at is not None:
            self.started_at += seconds

    def _pause(self) -> None:
        self._paused_at = self._loop.time()
        self._reading.pause(Pause.MEMORY)

    def _resume(self) -> None:
        if self._paused_at is not None:
            paused_s, self._paused_at = self._loop.time() - self._paused_at, None
            self.extend(paused_s)  # mutant: pause-stops-clock
        self._reading.resume(Pause.MEMORY)

    def _drop_long(self) -> None:
        if self._long is not None:
            request, self._long = self._long, None
            request.drop()

    def drop(self) -> None:
        """Forget the bytes that have not started: none of them will. Give their memory back."""
        self._drop_long()
        self._set_rest(b"")
        self.holds = False
        self.started_at = None
        self._memory.forget(self)

    def close(self) -> None:
        """End it: the connection is closed."""
        self.drop()
        self._gate, self._requests = cast(FrameGate, None), cast(Requests, None)
