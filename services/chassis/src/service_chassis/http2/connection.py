"""One connection: its streams, the turns in which they send, and its end. `reader` and `control` process frames.

A broken frame, a flood or too many bytes end the connection: GOAWAY with the reason, then close. Every call on it ends
with UNAVAILABLE, or INTERNAL on the side that found the fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from service_chassis.grpc_status import Status
from service_chassis.http2 import frames
from service_chassis.http2.file_sender import FileSender
from service_chassis.http2.frames import (
    DATA,
    HEAD_BYTES,
    MESSAGE_HEAD,
    PREFACE,
    ErrorCode,
    PeerError,
    goaway,
    rst_stream,
)
from service_chassis.http2.keepalive import Keepalive
from service_chassis.http2.limits import EXPLAINED_A_FRAME, FloodMeter, Limits, TransportCounts
from service_chassis.http2.reader import READ_BYTES, FrameReader
from service_chassis.http2.stream import Stream
from service_chassis.socket_room import SocketRoom

#: The longest DATA frame that is sent: other streams have their turn between two.
SENT_FRAME_BYTES_MAX: Final = (4 << 20) + (64 << 10)
#: Bytes in the transport from which on streams wait.
_FULL_BYTES: Final = 4 << 20
#: Seconds in which a peer may read why its connection has ended.
_LINGER_S: Final = 1.0
#: The most streams that are pumped, or that end with their connection, in one turn of the event loop.
STREAMS_A_TURN: Final = 200
#: Calls that have ended, whose late frames are told from those of calls that never began.
_ENDED_KEPT: Final = 256


class Connection(asyncio.BufferedProtocol):
    """One end of a connection. Its server or channel owns it.

    The client begins the calls. At a server, `accept` returns the stream of a call that the peer begins. All
    connections of an owner share `limits`, `counts` and `room`, without which no files are sent. `admit` is
    asked once the connection is there, its encryption included, and returns why it is refused.
    """

    def __init__(
        self,
        *,
        is_client: bool,
        limits: Limits,
        counts: TransportCounts,
        accept: Callable[[Connection, int], Stream] | None = None,
        room: SocketRoom | None = None,
        admit: Callable[[Connection], str | None] = lambda _connection: None,
    ) -> None:
        self.is_client = is_client
        self.limits, self.counts = limits, counts
        self.accept = accept
        self._admit = admit
        self.loop = asyncio.get_running_loop()
        self.transport: Any = None
        self.streams: dict[int, Stream] = {}
        #: Streams that wait for the connection's window or its socket, the next one first.
        self.waiting: OrderedDict[int, Stream] = OrderedDict()
        #: Streams that have ended, and whether their peer had sent its last message: the latest ones.
        self.ended: dict[int, bool] = {}
        #: The limits of the peer: bytes of the connection, of a new stream, of a frame; calls at the same time.
        self.window = self.first_window = frames.FIRST_WINDOW
        self.frame_bytes_max = frames.FIRST_FRAME_BYTES_MAX
        self.sent_frame_bytes_max = SENT_FRAME_BYTES_MAX
        self.peer_streams_max = frames.STREAM_ID_MAX
        #: Whether the socket takes no more, the connection has ended, and no more calls may begin.
        self.is_full = self.is_lost = self.is_leaving = False
        #: The last stream id that was used.
        self.last_id = -1 if is_client else 0
        #: Bytes of messages: received in part or unread, and waiting to be sent.
        self.held_bytes = self.queued_bytes = 0
        #: Frames of WINDOW_UPDATE and PING that the sent frames of DATA explain.
        self.frames_explained = 0
        self.floods = FloodMeter(limits.floods)
        #: Done when the peer's SETTINGS have come, and when the connection and all its calls have ended.
        self.settled: asyncio.Future[None] = self.loop.create_future()
        self.lost: asyncio.Future[None] = self.loop.create_future()
        #: Called when a call ends, or the peer allows more of them.
        self.on_slot: Callable[[], None] = _nothing
        self.end_reason = ""
        self._keepalive = Keepalive(self)
        self._reader = FrameReader(self)
        self._is_pumping = False
        self._room = room
        self._has_pauses = True
        #: The sender of files, once one was sent.
        self.files: FileSender | None = None

    # -- the transport -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.is_lost:
            transport.abort()
            return
        self.counts.connections += 1
        self.restore_write_limits()
        here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        if isinstance(here, tuple) and isinstance(there, tuple) and here[0] == there[0]:
            self.send_without_pauses()
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self._end(Status.UNAVAILABLE, "the peer did not agree to h2")
            transport.abort()
            return
        if (reason := self._admit(self)) is not None:
            self.abort(reason)
            return
        ours: dict[str, int] = {"enable_push": 0} if self.is_client else {"max_concurrent_streams": self.limits.streams}
        greeting = frames.settings(
            header_table_size=0,
            initial_window_size=self.limits.stream_window,
            max_frame_size=frames.FRAME_BYTES_MAX,
            max_header_list_size=self.limits.header_list_bytes,
            **ours,
        )
        self.write((PREFACE if self.is_client else b"") + greeting)
        if (more := self.limits.connection_window - frames.FIRST_WINDOW) > 0:
            self.write(frames.window_update(0, more))
        self._keepalive.start()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(Status.UNAVAILABLE, f"connection lost: {error}" if error else "the peer closed the connection")

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        if self.files is not None and self.files.is_busy:
            self.files.drained()
            return
        self.is_full = False
        self.pump_waiting()  # mutant: drained-socket-wakes

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_lost:
            return
        self.counts.bytes_received += nbytes
        self._keepalive.has_received = True
        try:
            self._reader.take(nbytes)
        except PeerError as error:
            self.fail(error.code, str(error))

    # -- sending -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes, count: int = 1) -> None:
        """Send `count` frames that wait for no window. A peer that reads none of them loses the connection."""
        if self.is_lost:
            return
        if self.files is not None and self.files.is_busy:
            if not self.files.hold(data, count):
                self.abort("the peer does not read")
            return
        self.counts.frames_sent += count
        self.counts.bytes_sent += len(data)
        self.transport.write(data)
        if self.is_full and self.transport.get_write_buffer_size() > self.limits.queued_bytes:
            self.fail(ErrorCode.ENHANCE_YOUR_CALM, "the peer does not read")

    def count_sent(self, size: int) -> None:
        """Count a frame of DATA with `size` bytes that is sent without `write`."""
        self.counts.frames_sent += 1
        self.counts.bytes_sent += HEAD_BYTES + size
        self.frames_explained += EXPLAINED_A_FRAME

    @property
    def is_behind(self) -> bool:
        """Whether more bytes wait than may: a message that nobody asked room for ends its call."""
        return self.queued_bytes > self.limits.queued_bytes

    def wait(self, stream: Stream) -> None:
        """Have a stream wait for the connection's window and its socket."""
        self.waiting[stream.id] = stream

    def pump_waiting(self) -> None:
        """Let the streams that wait send, a frame each in turns: the first ones now, more in the next turns."""
        if not self._is_pumping:  # else `_pump` goes on
            self._is_pumping = True
            self._pump()

    def _pump(self) -> None:
        goes_on = False
        try:
            for _ in range(STREAMS_A_TURN):
                if not self.waiting or self.window <= 0 or self.is_full:
                    return
                self.waiting.popitem(last=False)[1].pump()
            goes_on = True
            self.loop.call_soon(self._pump)  # mutant: pumping-goes-on
        finally:
            self._is_pumping = goes_on

    def send_file(
        self, stream: Stream, first: bytes, prefix: bytes, place: tuple[int, int, int], done: Callable[[], None]
    ) -> bool:
        """Send the message of `prefix` and a range of a file, after the frames in `first`; return False if that is not
        possible now. `done` is called once, later: the range has left, or the connection has ended.

        Args:
            place: descriptor, position and length.
        """
        whole = len(prefix) + place[2] + 5
        if (
            self._room is None
            or not hasattr(os, "sendfile")
            or self.transport.get_extra_info("ssl_object") is not None
            or whole > min(stream.window, self.window, self.frame_bytes_max)
            or self.is_full
            or not stream.is_open
            or stream.is_queued
        ):
            return False
        if self.files is None:
            self.files = FileSender(self, self._room)
        head = MESSAGE_HEAD.pack(whole << 8 | DATA, 0, stream.id, 0, whole - 5) + prefix
        self.files.send(first + head, *place, done)
        stream.window -= whole
        self.window -= whole
        self.count_sent(whole - place[2])
        return True

    def restore_write_limits(self) -> None:
        """Have the transport report that it is full at its usual limit."""
        self.transport.set_write_buffer_limits(high=_FULL_BYTES)

    def send_without_pauses(self) -> None:
        """Have the system send without pauses, which BBR would make: the peer is on this machine. Idempotent."""
        if not self._has_pauses:
            return
        self._has_pauses = False
        with contextlib.suppress(OSError, AttributeError):  # other sockets and systems, and kernels without it
            self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")

    def is_unread(self) -> bool:
        """Return whether a sent file is on its way to the peer, which answers no PING before it has read it."""
        return self.files is not None and self.files.is_unread()

    def hold(self, stream: Stream, size: int) -> None:
        """Count received bytes that stay here. Too many end the connection: no well-meaning peer sends as many."""
        self.held_bytes += size
        if self.held_bytes > self.limits.held_bytes + stream.message_bytes_max:
            self.fail(ErrorCode.ENHANCE_YOUR_CALM, "too many bytes of unfinished messages")

    # -- streams -----------------------------------------------------------------------------------------------------

    def add(self, stream: Stream) -> None:
        self.streams[stream.id] = stream
        self.counts.streams += 1

    @property
    def has_slot(self) -> bool:
        """Whether the peer allows one more call."""
        return len(self.streams) < self.peer_streams_max and not self.is_lost

    def forget(self, stream: Stream) -> None:
        """End a stream on this side. Idempotent."""
        if self.streams.pop(stream.id, None) is None:
            return
        self.waiting.pop(stream.id, None)
        if len(self.ended) >= _ENDED_KEPT:
            del self.ended[next(iter(self.ended))]
        self.ended[stream.id] = stream.half_closed
        stream.end()
        self.on_slot()
        if self.is_leaving and not self.streams and not self.is_lost:
            self.transport.close()

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """End a stream with RST_STREAM, if it is open."""
        if stream.is_open:
            self.counts.resets_sent += 1
            self.write(rst_stream(stream.id, code))
            self.forget(stream)

    def count_made_reset(self) -> None:
        """Count a reset that the peer's frames have made us send."""
        self.floods.count("RST_STREAM")

    # -- the end -----------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Begin no more calls, and close the connection after the last one."""
        if self.is_lost or self.transport is None:
            return
        if not self.is_leaving:
            self.is_leaving = True
            self.write(goaway(0 if self.is_client else self.last_id, ErrorCode.NO_ERROR))
        if not self.streams:
            self.transport.close()

    def fail(self, code: ErrorCode, reason: str) -> None:
        """End the connection because of what the peer sent."""
        if self.is_lost:
            return
        if code is ErrorCode.ENHANCE_YOUR_CALM:
            self.counts.floods += 1
        if self.files is not None and self.files.is_busy:
            self.abort(reason)  # a GOAWAY would be a part of the file
            return
        last = goaway(0 if self.is_client else self.last_id, code, reason)
        self.counts.frames_sent += 1
        self.counts.bytes_sent += len(last)
        self.transport.write(last)
        self._end(Status.INTERNAL, reason)
        if self.transport.get_write_buffer_size() > READ_BYTES:
            self.transport.abort()  # a peer that does not read
        elif self.transport.can_write_eof():
            # Bytes that nobody has read would make the system reset the connection, and the peer lose the GOAWAY.
            self.transport.write_eof()
            self.loop.call_later(_LINGER_S, self.transport.abort)
        else:
            self.transport.close()

    def abort(self, reason: str) -> None:
        """End the connection at once."""
        self._end(Status.UNAVAILABLE, reason)
        if self.transport is not None:
            self.transport.abort()

    def _end(self, status: Status, reason: str) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self.end_reason = reason
        self._keepalive.stop()
        if self.files is not None:
            self.files.close()
        streams = deque(self.streams.values())
        self.streams.clear()
        self.waiting.clear()
        for stream in streams:
            stream.is_open = False
        if not self.settled.done():
            self.settled.set_result(None)
        self._end_streams(streams, status, reason)
        self.on_slot()

    def _end_streams(self, streams: deque[Stream], status: Status, reason: str) -> None:
        """Tell streams of the connection's end: the first ones now, more in the next turns."""
        for _ in range(min(STREAMS_A_TURN, len(streams))):
            stream = streams.popleft()
            stream.end()
            stream.on_lost(status, reason)
        if streams:
            self.loop.call_soon(self._end_streams, streams, status, reason)  # mutant: all-streams-end
        elif not self.lost.done():
            self.lost.set_result(None)

    def check_invariants(self) -> None:
        """Fail if a stream waits that could send, or that nothing wakes."""
        assert not self.waiting or self.window <= 0 or self.is_full or self._is_pumping
        for stream in self.streams.values():
            stream.check_invariants()
        assert self.held_bytes >= 0 <= self.queued_bytes
        if not self.streams and self.is_lost == self.lost.done():
            assert (self.held_bytes, self.queued_bytes) == (0, 0)


def _nothing() -> None:
    """Do nothing, as the `on_slot` of a connection on which nobody waits."""
