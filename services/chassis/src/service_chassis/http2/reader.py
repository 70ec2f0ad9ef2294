"""Bytes of a connection as frames. DATA is processed here, other frames in `control`.

A frame is processed where it lies in the buffer. A DATA frame that is longer than the buffer is received into memory of
its own. The buffer is small, and FRAMES_A_TURN of other frames are processed in one turn of the event loop: calls that
begin cost most. The rest waits in the buffer for the next turn, and reading is paused until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from service_chassis.grpc_status import Status
from service_chassis.http2 import frames
from service_chassis.http2.control import ControlFrames
from service_chassis.http2.frames import DATA, HEAD, PREFACE, ErrorCode, PeerError
from service_chassis.http2.limits import TINY_BYTES

if TYPE_CHECKING:
    from service_chassis.http2.connection import Connection
    from service_chassis.http2.stream import Stream

#: Length of the buffer. A message of more bytes has memory of its own.
READ_BYTES: Final = 64 << 10
#: The most frames other than DATA that are processed in one turn of the event loop.
FRAMES_A_TURN: Final = 200


class _LongFrame:
    """A DATA frame that is being received into memory of its own. `is_message`: it is one message, without its head."""

    __slots__ = ("at", "flags", "is_message", "length", "stream_id", "view")

    def __init__(self, stream_id: int, flags: int, length: int, *, is_message: bool) -> None:
        self.stream_id, self.flags, self.length, self.is_message = stream_id, flags, length, is_message
        self.view = memoryview(bytearray(length - 5 if is_message else length))
        self.at = 0


class FrameReader:
    """The reader of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._control = ControlFrames(connection)
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._have = 0
        self._long: _LongFrame | None = None
        self._preface_due = not connection.is_client
        #: Received bytes that were not given back to the connection's window.
        self._given = 0

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes."""
        if self._long is not None:
            return self._long.view[self._long.at :]
        return self._view[self._have :] if self._have else self._view

    def take(self, count: int) -> None:
        """Process bytes that have come into that memory.

        Raises:
            PeerError: they break the rules of the connection.
        """
        if self._long is not None:
            self._long.at += count
            if self._long.at == len(self._long.view):
                self._take_long(self._long)
        else:
            self._take_buffer(self._have + count)

    def _take_buffer(self, have: int) -> None:
        """Process the frames that are whole in the first `have` bytes of the buffer."""
        view, buffer, position = self._view, self._buffer, 0
        if self._preface_due:
            position = self._take_preface(have)
        connection = self._connection
        left = FRAMES_A_TURN
        streams, counts = connection.streams, connection.counts
        while have - position >= 9 and not self._preface_due:
            word, flags, stream_id = HEAD.unpack_from(buffer, position)
            length = word >> 8
            begin = position + 9
            end = begin + length
            if end > have:
                if length > READ_BYTES - 9 and self._begin_long(word & 255, flags, stream_id, begin, length, have):
                    return
                break
            position = end
            counts.frames_received += 1
            if word & 255 or self._control.block_is_open:
                self._control.take(word & 255, flags, stream_id & frames.STREAM_ID_MAX, view[begin:end])
                left -= 1
                if not left and not connection.is_lost:  # mutant: frames-of-a-turn-bounded
                    connection.transport.pause_reading()
                    connection.loop.call_soon(self.go_on)
                    break
            else:
                self._given += length
                stream = streams.get(stream_id)
                if (
                    stream is not None
                    and length >= 5
                    and flags & ~1 == 0
                    and buffer[begin] == 0
                    and int.from_bytes(buffer[begin + 1 : begin + 5], "big") == length - 5
                    and length - 5 <= stream.message_bytes_max
                    and stream.is_between_messages
                    and not stream.half_closed
                ):
                    stream.deliver(view[begin + 5 : end])
                    if stream.is_open:
                        stream.give(length)
                        if flags:
                            stream.on_last_message()
                else:
                    self._take_data(stream_id & frames.STREAM_ID_MAX, flags, view[begin:end])
            if connection.is_lost:
                return
        self._give_back()
        rest = have - position
        if rest and position:
            view[:rest] = view[position:have]
        self._have = rest

    def go_on(self) -> None:
        """Process the frames that were left for this turn."""
        connection = self._connection
        if connection.is_lost or connection.transport.is_closing():
            return
        connection.transport.resume_reading()
        try:
            self._take_buffer(self._have)
        except PeerError as error:
            connection.fail(error.code, str(error))

    def _give_back(self) -> None:
        if self._given >= self._connection.limits.connection_window // 2:
            self._connection.write(frames.window_update(0, self._given))
            self._given = 0

    def _take_preface(self, have: int) -> int:
        count = min(have, len(PREFACE))
        if self._buffer[:count] != PREFACE[:count]:
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "no preface of HTTP/2")
        if have < len(PREFACE):
            return 0
        self._preface_due = False
        return len(PREFACE)

    def _take_data(self, stream_id: int, flags: int, payload: memoryview) -> None:
        """Process a DATA frame that is not exactly one message of an open stream."""
        data = frames.without_padding(payload, flags)
        ends = flags & frames.END_STREAM
        stream = self._connection.streams.get(stream_id)
        if stream is None:
            if not (len(data) or (ends and stream_id in self._connection.ended)):
                self._connection.floods.count("DATA")
            self._control.take_late_data(stream_id)
            return
        if stream.half_closed:
            self._connection.count_made_reset()
            self._connection.reset(stream, ErrorCode.STREAM_CLOSED)
            stream.on_lost(Status.INTERNAL, "DATA after the last message")
            return
        if len(data):
            stream.received(data)
        if not ends and (not len(data) or (len(data) < TINY_BYTES and not stream.is_between_messages)):
            self._connection.floods.count("DATA")
        if stream.is_open:
            stream.give(len(payload))
            if ends:
                self._end_messages(stream)

    def _end_messages(self, stream: Stream) -> None:
        if stream.is_between_messages:
            stream.on_last_message()
        else:
            stream.fail(Status.INTERNAL, "the last message is cut off")

    def _begin_long(self, kind: int, flags: int, stream_id: int, begin: int, length: int, have: int) -> bool:
        """Receive a frame that is longer than the buffer into memory of its own; False until its message head is here.

        Raises:
            PeerError: it is not DATA. No other frame may be as long.
        """
        if kind != DATA or self._control.block_is_open:
            raise PeerError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
        if have - begin < 6:
            return False
        stream = self._connection.streams.get(stream_id)
        size = int.from_bytes(self._buffer[begin + 1 : begin + 5], "big")
        is_message = (
            stream is not None
            and not flags & frames.PADDED
            and self._buffer[begin] == 0
            and size == length - 5
            and size <= stream.message_bytes_max
            and stream.is_between_messages
            and not stream.half_closed
        )
        self._connection.counts.frames_received += 1
        self._given += length
        self._long = long = _LongFrame(stream_id & frames.STREAM_ID_MAX, flags, length, is_message=is_message)
        begin += 5 if is_message else 0
        long.at = have - begin
        long.view[: long.at] = self._view[begin:have]
        self._have = 0
        return True

    def _take_long(self, long: _LongFrame) -> None:
        self._long = None
        stream = self._connection.streams.get(long.stream_id)
        if not long.is_message:
            self._take_data(long.stream_id, long.flags, long.view)
        elif stream is not None:
            stream.deliver(long.view)
            if stream.is_open:
                stream.give(long.length)
                if long.flags & frames.END_STREAM:
                    stream.on_last_message()
        self._give_back()
