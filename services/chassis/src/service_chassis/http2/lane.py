"""A lane: the client's end of a connection for one call at a time, whose messages' bytes go on to another socket.

The bytes go from socket to socket through a pipe (pipes.py) and never enter Python. Nothing else travels on the
connection. So TCP slows the server down for a slow client, and no small answer waits behind the records. The server
sees an ordinary gRPC call. Padding, compression and CONTINUATION are refused, as no server of ours sends them. Bytes
that break the rules end the lane.

    state       what comes next                     who is called when it has come
    IDLE        PING, GOAWAY, the end               -
    ASKED       the first HEADERS                   `on_begin`; or `on_refused`, if the call ends instead
    SENDING     bytes of messages                   the reader that waits, if one does
    ENDING      the last HEADERS                    the owner's `on_free`
    CLOSED                                          the owner's `on_closed`, once

**Whoever is told to wait is woken.** `_has_to_watch` states when the socket is watched: in IDLE, ASKED and ENDING
always, in SENDING while a reader waits. `_watch` is the one place where that begins. SocketRoom then calls `has_room`
for any bytes and for the end. `close` calls the reader, or `on_refused`. There remains a server that sends nothing: the
owner closes a lane that `waits_since` too long ago.
"""

from __future__ import annotations

import enum
import errno
import socket
from collections.abc import Callable
from typing import Final, Protocol

from service_chassis.grpc_status import Status
from service_chassis.http2 import frames, headers
from service_chassis.http2.frames import DATA, HEADERS, PREFACE, U32, PeerError, frame
from service_chassis.http2.lane_frames import CONTROL_BYTES_MAX, LaneError, LaneFrames
from service_chassis.http2.limits import TransportCounts
from service_chassis.http2.pipes import MemoryPipe, Pipe
from service_chassis.socket_room import Sent, SocketRoom

#: Most bytes that a pipe is asked to take at once.
_FILL_BYTES: Final = 1 << 20
#: Most bytes of a request: it fits any socket's buffer, and one frame for any server.
REQUEST_BYTES_MAX: Final = 16_000
#: The reason of a lane that is closed because nobody wants the rest of its answer.
UNWANTED: Final = "the rest of an answer was not wanted"
#: Received bytes that are given back to the connection's window with the next call.
_GIVE_BACK_BYTES: Final = 1 << 29
#: The first bytes of a lane: its windows are as large as can be.
GREETING: Final = (
    PREFACE
    + frames.settings(
        header_table_size=0,
        enable_push=0,
        initial_window_size=frames.WINDOW_MAX,
        max_frame_size=frames.FRAME_BYTES_MAX,
        max_header_list_size=CONTROL_BYTES_MAX,
    )
    + frames.window_update(0, frames.WINDOW_MAX - frames.FIRST_WINDOW)
)


class State(enum.Enum):
    """The states of a lane: see the module."""

    IDLE = enum.auto()
    ASKED = enum.auto()
    SENDING = enum.auto()
    ENDING = enum.auto()
    CLOSED = enum.auto()


class Reader(Protocol):
    """A mover of the bytes of a call."""

    def has_records(self) -> None:
        """Go on: bytes have come, or the lane is closed."""
        ...

    def fail(self, error: Exception) -> None:
        """Close: `has_records` has raised this error."""
        ...


class LaneOwner(Protocol):
    """The owner of lanes, which keeps the free ones."""

    def clock(self) -> float:
        """Return the time in seconds."""
        ...

    def on_free(self, lane: Lane) -> None:
        """Keep a lane whose call has ended."""
        ...

    def on_closed(self, lane: Lane) -> None:
        """Forget a lane."""
        ...


class Lane:
    """One lane. `connected` is a socket that does not block, `room` watches for bytes to read."""

    def __init__(
        self,
        connected: socket.socket,
        pipe: Pipe,
        room: SocketRoom,
        counts: TransportCounts,
        owner: LaneOwner,
        prefix: Callable[[int], bytes],
    ) -> None:
        self._socket = connected
        self._descriptor = connected.fileno()
        self._pipe = pipe
        self._room = room
        self._counts = counts
        self._owner = owner
        self._frames = LaneFrames(connected, counts, prefix, self._take_control)
        self._decoder = headers.HeaderDecoder(CONTROL_BYTES_MAX)
        self.state = State.IDLE
        #: The reason why the lane is closed; empty before that.
        self.end_reason = ""
        #: The owner's time since when the lane is idle, or waits for bytes of the server.
        self.waits_since = owner.clock()
        self._is_watched = False
        self._on_begin: Callable[[], None] = _nothing
        self._on_refused: Callable[[Status | None, str], None] = _ignore
        self._reader: Reader | None = None
        self._stream_id = -1
        self._is_leaving = False
        #: Bytes that the server still accepts: of the connection, and of a new call.
        self._window = self._first_window = frames.FIRST_WINDOW
        #: Bytes of the answer that were not moved.
        self._unmoved = 0
        self._greeting = GREETING
        counts.connections += 1

    # -- calls -------------------------------------------------------------------------------------------------------

    def ask(
        self,
        block: bytes,
        message: bytes,
        size: int,
        on_begin: Callable[[], None],
        on_refused: Callable[[Status | None, str], None],
    ) -> None:
        """Make a call of an idle lane. One of the functions is called, later.

        Args:
            block: the header fields.
            size: the bytes of all messages of the answer together.
            on_begin: the server has promised the answer.
            on_refused: the call has ended, with a status; None if the lane is closed.

        Raises:
            LaneError: the lane is closed.
        """
        assert self.state is State.IDLE
        whole = len(message) + 5
        if whole > min(self._window, self._first_window) or len(message) > REQUEST_BYTES_MAX:
            self.close("the server has no room for a request")
            raise LaneError(self.end_reason)
        self._stream_id += 2
        self._window -= whole
        self._unmoved = size
        self._frames.expect(size)
        parts = [self._greeting]
        self._greeting = b""
        if self._frames.given >= _GIVE_BACK_BYTES:
            parts.append(frames.window_update(0, self._frames.given))
            self._frames.given = 0
        parts.append(frame(HEADERS, frames.END_HEADERS, self._stream_id, block))
        parts.append(frame(DATA, frames.END_STREAM, self._stream_id, b"\0" + U32.pack(len(message)) + message))
        self._counts.streams += 1
        try:
            self._send(b"".join(parts))
        except LaneError as error:
            self.close(str(error))
            raise
        self.state = State.ASKED
        self._on_begin, self._on_refused = on_begin, on_refused
        self._watch()

    def move(self, to: int, most: int) -> int:
        """Move at most `most` of the answer's bytes to a socket, and return how many.

        If it is fewer, `is_dry` tells whether bytes are missing, for which the caller may `wait`. Otherwise it is room
        in the socket.

        Raises:
            LaneError: the lane is closed.
            OSError: the other socket has failed.
        """
        moved, pipe = 0, self._pipe
        while moved < most:
            if not pipe.held:
                if not self._next(self._fill):
                    break
                pipe = self._pipe
            count = min(pipe.held, most - moved)
            try:
                sent = pipe.drain(to, count, more=self._unmoved > count)
            except BlockingIOError:
                break
            moved += sent
            self._unmoved -= sent
        return moved

    def receive(self, into: memoryview) -> int:
        """Copy the answer's next bytes into memory, as many as have come and fit. `move` must not have been called.

        Raises:
            LaneError: the lane is closed.
        """
        got = self._next(lambda ready: self._socket.recv_into(into, min(ready, len(into))))
        self._unmoved -= got
        return got

    @property
    def is_dry(self) -> bool:
        """Whether no byte of the answer is here that could be moved."""
        return not self._pipe.held

    def _next(self, take: Callable[[int], int]) -> int:
        """Have `take` take at most so many of the next bytes; return how many, 0 if none has come."""
        if self.state is not State.SENDING:
            raise LaneError(self.end_reason or "no answer is on its way")
        try:
            if not self._frames.advance():
                if self.end_reason:
                    raise LaneError(self.end_reason)
                return 0
            got = take(self._frames.ready)
            if not got:
                raise LaneError("the server closed the connection")
        except BlockingIOError:
            return 0
        except (PeerError, OSError) as error:
            self.close(_reason(error))
            raise LaneError(self.end_reason) from error
        self._frames.took(got)
        return got

    def _fill(self, count: int) -> int:
        """Take bytes of the socket into the empty pipe; return how many."""
        count = min(count, _FILL_BYTES)
        try:
            return self._pipe.fill(self._descriptor, count)
        except OSError as error:
            if error.errno != errno.EINVAL or isinstance(self._pipe, MemoryPipe):
                raise
        self._pipe.close()  # this kind of socket has no splice
        self._pipe = MemoryPipe()
        return self._pipe.fill(self._descriptor, count)

    def wait(self, reader: Reader) -> None:
        """Have the reader called, later, when bytes have come, or the lane is closed."""
        self._reader = reader
        self._watch()

    def release(self) -> None:
        """Note that nobody wants more of the answer. A lane with bytes that were not moved is closed."""
        self._reader = None
        if self.state is State.SENDING:
            if self._unmoved:
                self.close(UNWANTED)
            else:
                self.state = State.ENDING
                self._process()
                self._watch()

    def close(self, reason: str) -> None:
        """End the lane, and call the reader that waits for it. Idempotent."""
        if self.state is State.CLOSED:
            return
        was_asked, self.state, self.end_reason = self.state is State.ASKED, State.CLOSED, reason
        self._room.forget(self._descriptor)
        self._is_watched = False
        self._socket.close()
        self._pipe.close()
        self._owner.on_closed(self)
        reader, self._reader = self._reader, None
        _, on_refused = self._end_wait()
        if was_asked:
            on_refused(None, reason)
        elif reader is not None:
            _call(reader)  # mutant: reader-of-a-lost-lane-woken

    # -- SocketRoom's waiter -----------------------------------------------------------------------------------------

    @property
    def _has_to_watch(self) -> bool:
        """Whether the socket has to be watched: see the module."""
        return self.state is not State.CLOSED and (self.state is not State.SENDING or self._reader is not None)

    @property
    def is_waiting(self) -> bool:
        """Whether somebody waits for the server."""
        return self._has_to_watch and self.state is not State.IDLE

    def _watch(self) -> None:
        """Watch the socket, if it has to be watched."""
        self.waits_since = self._owner.clock()
        if self._has_to_watch and not self._is_watched:
            self._is_watched = True
            self._room.wait(self._descriptor, self)

    def has_room(self) -> Sent:
        """Process what has come, and call the reader that waits for it."""
        if self.state is State.SENDING:
            reader, self._reader = self._reader, None  # it waits again if it has to
            if reader is not None:
                _call(reader)
        else:
            self._process()
        if self._has_to_watch:
            self._watch()  # it is watched; the time is another one
            return Sent.NOTHING
        self._is_watched = False
        return Sent.ALL

    def fail(self, error: Exception) -> None:
        """Close: `has_room` has raised this error."""
        self.close(repr(error))

    def check_invariants(self) -> None:
        """Fail if somebody waits whom nothing wakes."""
        assert not self._has_to_watch or self._is_watched, self.state
        assert (self.state is State.CLOSED) == (self._socket.fileno() < 0)

    def _process(self) -> None:
        """Process all frames that have come, up to bytes of messages."""
        try:
            self._frames.advance()
        except (PeerError, OSError) as error:
            self.close(_reason(error))

    # -- frames other than DATA --------------------------------------------------------------------------------------

    def _take_control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> bool:
        """Process a frame; return whether to go on with the next one."""
        if kind == HEADERS:
            return self._take_headers(flags, stream_id, payload)
        if kind == frames.SETTINGS:
            if not flags & frames.ACK:
                self._take_settings(payload)
        elif kind == frames.PING:
            if not flags & frames.ACK:
                self._send(frame(frames.PING, frames.ACK, 0, payload))
        elif kind == frames.WINDOW_UPDATE:
            if stream_id == 0:
                self._window += int.from_bytes(payload[:4], "big") & frames.WINDOW_MAX
        elif kind == frames.GOAWAY:
            self._is_leaving = True
            if self.state is State.IDLE:
                self.close("the server is leaving")
        elif kind == frames.RST_STREAM:
            if stream_id == self._stream_id and self.state is not State.IDLE:
                raise LaneError("the server has reset the call")
        elif kind in (frames.PUSH_PROMISE, frames.CONTINUATION):
            raise LaneError(f"a frame of type {kind}")
        return self.state is not State.CLOSED

    def _take_settings(self, payload: bytes) -> None:
        if len(payload) % frames.SETTING.size:
            raise LaneError("SETTINGS of a wrong length")
        for name, value in frames.SETTING.iter_unpack(payload):
            if name == frames.INITIAL_WINDOW_SIZE:
                self._first_window = value
        self._send(frame(frames.SETTINGS, frames.ACK, 0))

    def _take_headers(self, flags: int, stream_id: int, payload: bytes) -> bool:
        if stream_id != self._stream_id or flags & ~frames.END_STREAM != frames.END_HEADERS:
            raise LaneError("HEADERS of another call, in several frames, or with flags")
        fields = dict(self._decoder.decode(payload))
        if flags & frames.END_STREAM:
            self._end_call(Status.of(fields.get("grpc-status", "")), headers.unescaped(fields.get("grpc-message", "")))
        elif self.state is not State.ASKED:
            raise LaneError("HEADERS between messages")
        elif fields.get(":status") != "200" or not fields.get("content-type", "").startswith("application/grpc"):
            raise LaneError(f"the answer is HTTP {fields.get(':status', '')[:20]}, not gRPC")
        else:
            self.state = State.SENDING
            self._frames.stream_id = stream_id
            on_begin, _ = self._end_wait()
            on_begin()
            return False  # mutant: answer-goes-on-by-itself
        return self.state is not State.CLOSED

    def _end_call(self, status: Status, details: str) -> None:
        was_asked = self.state is State.ASKED
        is_right = status is not Status.OK if was_asked else status is Status.OK and self._frames.is_whole
        if not is_right or self.state not in (State.ASKED, State.ENDING):
            raise LaneError(f"the call has ended too early: {status.name} {details[:200]}".rstrip())
        _, on_refused = self._end_wait()
        self.state = State.IDLE
        self._frames.stream_id = 0
        if self._is_leaving:
            self.close("the server is leaving")
        else:
            self._owner.on_free(self)
        if was_asked:
            on_refused(status, details)

    def _end_wait(self) -> tuple[Callable[[], None], Callable[[Status | None, str], None]]:
        """Return the functions of the call that is asked for, of which one is to be called now."""
        both = self._on_begin, self._on_refused
        self._on_begin, self._on_refused = _nothing, _ignore
        return both

    def _send(self, data: bytes) -> None:
        try:
            sent = self._socket.send(data)
        except OSError as error:
            raise LaneError(f"not sent: {_reason(error)}") from error
        if sent != len(data):
            raise LaneError("the server does not read")
        self._counts.frames_sent += 1
        self._counts.bytes_sent += sent


def _call(reader: Reader) -> None:
    try:
        reader.has_records()
    except Exception as error:  # of one reader
        reader.fail(error)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _nothing() -> None:
    """Do nothing: no call waits for its answer."""


def _ignore(_status: Status | None, _details: str) -> None:
    """Do nothing: no call waits for its answer."""
