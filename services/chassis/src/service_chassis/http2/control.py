"""Frames other than DATA: headers of calls, settings, windows, resets, pings and the end of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from service_chassis.grpc_status import Status
from service_chassis.http2 import frames
from service_chassis.http2.frames import ErrorCode, PeerError, frame, rst_stream
from service_chassis.http2.headers import Fields, HeaderDecoder, fault_of_trailers
from service_chassis.http2.limits import CHANGED_WINDOWS, EXPLAINED_MAX, RAPID_S

if TYPE_CHECKING:
    from service_chassis.http2.connection import Connection
    from service_chassis.http2.stream import Stream

#: Lengths of frames that have one length only.
_LENGTHS: Final = {frames.PRIORITY: 5, frames.RST_STREAM: 4, frames.PING: 8, frames.WINDOW_UPDATE: 4}
#: Frames of the connection, and frames of one stream.
_OF_CONNECTION: Final = frozenset((frames.SETTINGS, frames.PING, frames.GOAWAY))
_OF_STREAM: Final = frozenset(
    (frames.DATA, frames.HEADERS, frames.PRIORITY, frames.RST_STREAM, frames.PUSH_PROMISE, frames.CONTINUATION)
)
_STATUS_OF_RESET: Final = {
    ErrorCode.CANCEL: Status.CANCELLED,
    ErrorCode.REFUSED_STREAM: Status.UNAVAILABLE,
    ErrorCode.ENHANCE_YOUR_CALM: Status.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: Status.PERMISSION_DENIED,
}


class _Block:
    """A block of header fields that has not come as a whole."""

    def __init__(self, stream_id: int, flags: int, first: memoryview) -> None:
        self.stream_id, self.flags = stream_id, flags
        self.data = bytearray(first)
        self.continuations = 0


class ControlFrames:
    """The processor of one connection's frames."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._decoder = HeaderDecoder(connection.limits.header_list_bytes)
        self._block: _Block | None = None
        self._settings_have_come = False
        self._takers = {
            frames.HEADERS: self._take_headers,
            frames.PRIORITY: self._take_priority,
            frames.RST_STREAM: self._take_reset,
            frames.SETTINGS: self._take_settings,
            frames.PING: self._take_ping,
            frames.GOAWAY: self._take_goaway,
            frames.WINDOW_UPDATE: self._take_window_update,
            frames.CONTINUATION: self._take_continuation,
        }

    @property
    def block_is_open(self) -> bool:
        """Whether the next frame has to be a CONTINUATION."""
        return self._block is not None

    def take(self, kind: int, flags: int, stream_id: int, payload: memoryview) -> None:
        """Process one frame.

        Raises:
            PeerError: it breaks the rules.
        """
        if kind == frames.HEADERS and stream_id and self._block is None and self._settings_have_come:  # most of them
            self._take_headers(flags, stream_id, payload)
            return
        if self._block is not None and (kind != frames.CONTINUATION or stream_id != self._block.stream_id):
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "a block of headers is interrupted")
        if not self._settings_have_come and (kind != frames.SETTINGS or flags & frames.ACK):
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if stream_id != 0 if kind in _OF_CONNECTION else stream_id == 0 and kind in _OF_STREAM:
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "a frame on a wrong stream")
        if len(payload) != _LENGTHS.get(kind, len(payload)):
            raise PeerError(ErrorCode.FRAME_SIZE_ERROR, "a frame of a wrong length")
        if kind == frames.PUSH_PROMISE:
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE")
        take = self._takers.get(kind)
        if take is not None:
            take(flags, stream_id, payload)
        else:
            self._connection.floods.count("OTHER")

    # -- headers -----------------------------------------------------------------------------------------------------

    def _take_headers(self, flags: int, stream_id: int, payload: memoryview) -> None:
        if flags & frames.PADDED:
            payload = frames.without_padding(payload, flags)
        if flags & frames.HAS_PRIORITY:
            if len(payload) < 5:
                raise PeerError(ErrorCode.FRAME_SIZE_ERROR, "a frame of a wrong length")
            self._check_priority(stream_id, payload)
            payload = payload[5:]
        self._check_block_bytes(len(payload))
        if flags & frames.END_HEADERS:
            self._take_fields(stream_id, flags, payload.tobytes())
        else:
            self._block = _Block(stream_id, flags, payload)

    def _take_continuation(self, flags: int, _stream_id: int, payload: memoryview) -> None:
        block = self._block
        if block is None:
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        block.continuations += 1
        if block.continuations > self._connection.limits.continuations:  # mutant: continuations-bounded
            raise PeerError(ErrorCode.ENHANCE_YOUR_CALM, "a flood of CONTINUATION")
        self._check_block_bytes(len(block.data) + len(payload))
        block.data += payload
        if flags & frames.END_HEADERS:
            self._block = None
            self._take_fields(block.stream_id, block.flags, bytes(block.data))

    def _check_block_bytes(self, count: int) -> None:
        if count > self._connection.limits.header_list_bytes:
            raise PeerError(ErrorCode.ENHANCE_YOUR_CALM, "too many header fields")

    def _take_fields(self, stream_id: int, flags: int, block: bytes) -> None:
        fields = self._decoder.decode(block)
        connection = self._connection
        stream = connection.streams.get(stream_id)
        ends = bool(flags & frames.END_STREAM)
        if stream is not None:
            if not connection.is_client and not self._are_trailers(stream, fields, ends=ends):
                return
            stream.on_headers(fields, ends=ends)
        elif connection.is_client:
            if stream_id > connection.last_id or not stream_id & 1:
                raise PeerError(ErrorCode.PROTOCOL_ERROR, "HEADERS of a call that was not begun")
        else:
            self._begin_call(stream_id, fields, ends=ends)

    def _are_trailers(self, stream: Stream, fields: Fields, *, ends: bool) -> bool:
        """Return whether further fields of a request may come; if not, the call has ended."""
        if stream.half_closed:
            code, text = ErrorCode.STREAM_CLOSED, "HEADERS after the last message"
        elif not ends:
            code, text = ErrorCode.PROTOCOL_ERROR, "HEADERS between messages"
        elif (fault := fault_of_trailers(fields)) is not None:
            code, text = ErrorCode.PROTOCOL_ERROR, fault
        else:
            return True
        self._connection.count_made_reset()
        self._connection.reset(stream, code)
        stream.on_lost(Status.INTERNAL, text)
        return False

    def _begin_call(self, stream_id: int, fields: Fields, *, ends: bool) -> None:
        connection = self._connection
        if not stream_id & 1:
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "a client's stream has an even number")
        if stream_id <= connection.last_id:
            code = ErrorCode.STREAM_CLOSED if stream_id in connection.ended else ErrorCode.PROTOCOL_ERROR
            raise PeerError(code, "HEADERS on a stream that has ended")
        connection.last_id = stream_id
        if fields.fault_of_request is not None:
            self._refuse(stream_id, ErrorCode.PROTOCOL_ERROR)
        elif connection.is_leaving or len(connection.streams) >= connection.limits.streams:  # mutant: streams-bounded
            self._refuse(stream_id, ErrorCode.REFUSED_STREAM)
        elif connection.accept is not None:
            stream = connection.accept(connection, stream_id)
            connection.add(stream)
            stream.on_headers(fields, ends=ends)

    def _refuse(self, stream_id: int, code: ErrorCode) -> None:
        self._connection.count_made_reset()
        self._connection.counts.resets_sent += 1
        self._connection.write(rst_stream(stream_id, code))

    # -- frames of a stream ------------------------------------------------------------------------------------------

    def take_late_data(self, stream_id: int) -> None:
        """Process DATA of a stream that is not open. It may have left before the peer knew that the stream ended."""
        self._check_not_idle(stream_id)
        # A client that had ended it itself. A client's own end says nothing of its server.
        if self._connection.ended.get(stream_id) and not self._connection.is_client:
            self._refuse(stream_id, ErrorCode.STREAM_CLOSED)

    def _check_not_idle(self, stream_id: int) -> None:
        if stream_id > self._connection.last_id or not stream_id & 1:
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "a frame on an idle stream")

    def _take_priority(self, _flags: int, stream_id: int, payload: memoryview) -> None:
        self._connection.floods.count("OTHER")
        self._check_priority(stream_id, payload)

    def _check_priority(self, stream_id: int, payload: memoryview) -> None:
        if int.from_bytes(payload[:4], "big") & frames.STREAM_ID_MAX == stream_id:
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")

    def _take_reset(self, _flags: int, stream_id: int, payload: memoryview) -> None:
        self._check_not_idle(stream_id)
        connection = self._connection
        connection.counts.resets_received += 1
        stream = connection.streams.get(stream_id)
        if stream is None or connection.loop.time() - stream.opened_at < RAPID_S:
            connection.floods.count("RST_STREAM")
        if stream is None:
            return
        (code,) = frames.U32.unpack(payload)
        connection.forget(stream)
        stream.was_refused = code == ErrorCode.REFUSED_STREAM
        stream.on_lost(_STATUS_OF_RESET.get(code, Status.INTERNAL), f"RST_STREAM with code {code}")

    def _take_window_update(self, _flags: int, stream_id: int, payload: memoryview) -> None:
        connection = self._connection
        self._count("WINDOW_UPDATE")
        grown = int.from_bytes(payload, "big") & frames.WINDOW_MAX
        code = ErrorCode.FLOW_CONTROL_ERROR if grown else ErrorCode.PROTOCOL_ERROR
        if stream_id == 0:
            connection.window += grown
            if not grown or connection.window > frames.WINDOW_MAX:
                raise PeerError(code, "a window that cannot be")
            connection.pump_waiting()
            return
        self._check_not_idle(stream_id)
        stream = connection.streams.get(stream_id)
        if stream is None:
            return
        stream.window += grown
        if not grown or stream.window > frames.WINDOW_MAX:
            connection.count_made_reset()
            connection.reset(stream, code)
            stream.on_lost(Status.INTERNAL, "a window that cannot be")
        else:
            stream.go_on()  # mutant: grown-window-wakes

    def _count(self, name: str) -> None:
        """Count a frame that a peer sends because of what it has received, unless that explains it."""
        connection = self._connection
        if connection.frames_explained > 0:
            connection.frames_explained = min(connection.frames_explained, EXPLAINED_MAX) - 1
        else:
            connection.floods.count(name)

    # -- frames of the connection ------------------------------------------------------------------------------------

    def _take_settings(self, flags: int, _stream_id: int, payload: memoryview) -> None:
        connection = self._connection
        if len(payload) % 6 or (flags & frames.ACK and len(payload)):
            raise PeerError(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong length")
        connection.floods.count("SETTINGS")
        if flags & frames.ACK:
            return
        if len(payload) > 6 * 64:
            raise PeerError(ErrorCode.ENHANCE_YOUR_CALM, "too many SETTINGS")
        self._settings_have_come = True
        before = connection.first_window
        for name, value in frames.SETTING.iter_unpack(payload):
            self._apply_setting(name, value)
        connection.write(frame(frames.SETTINGS, frames.ACK, 0))
        if not connection.settled.done():
            connection.settled.set_result(None)
        if connection.first_window != before:
            connection.floods.count("SETTINGS", len(connection.streams) // CHANGED_WINDOWS)
            self._change_windows(connection.first_window - before)
        connection.on_slot()

    def _apply_setting(self, name: int, value: int) -> None:
        connection = self._connection
        if name == frames.ENABLE_PUSH and (value > 1 or (connection.is_client and value)):
            raise PeerError(ErrorCode.PROTOCOL_ERROR, "SETTINGS with a value that cannot be")
        if name == frames.INITIAL_WINDOW_SIZE:
            if value > frames.WINDOW_MAX:
                raise PeerError(ErrorCode.FLOW_CONTROL_ERROR, "a window that cannot be")
            connection.first_window = value
        elif name == frames.MAX_FRAME_SIZE:
            if not frames.FIRST_FRAME_BYTES_MAX <= value <= frames.FRAME_BYTES_MAX:
                raise PeerError(ErrorCode.PROTOCOL_ERROR, "SETTINGS with a value that cannot be")
            connection.frame_bytes_max = min(value, connection.sent_frame_bytes_max)
        elif name == frames.MAX_CONCURRENT_STREAMS:
            connection.peer_streams_max = value

    def _change_windows(self, difference: int) -> None:
        """Change the windows of all streams, then wake those that wait."""
        connection = self._connection
        streams = list(connection.streams.values())
        for stream in streams:
            stream.window += difference
            if stream.window > frames.WINDOW_MAX:
                raise PeerError(ErrorCode.FLOW_CONTROL_ERROR, "a window that cannot be")
        for stream in streams:
            stream.go_on()  # mutant: changed-settings-wake

    def _take_ping(self, flags: int, _stream_id: int, payload: memoryview) -> None:
        self._count("PING")
        if not flags & frames.ACK:
            self._connection.write(frame(frames.PING, frames.ACK, 0, payload))

    def _take_goaway(self, _flags: int, _stream_id: int, payload: memoryview) -> None:
        if len(payload) < 8:
            raise PeerError(ErrorCode.FRAME_SIZE_ERROR, "a frame of a wrong length")
        connection = self._connection
        connection.floods.count("OTHER")
        connection.is_leaving = True
        last_id, code = (int.from_bytes(payload[at : at + 4], "big") for at in (0, 4))
        if connection.is_client:
            reason = payload[8:208].tobytes().decode(errors="replace")
            for stream in [each for each in connection.streams.values() if each.id > last_id & frames.STREAM_ID_MAX]:
                connection.forget(stream)
                stream.was_refused = code == ErrorCode.NO_ERROR
                stream.on_lost(Status.UNAVAILABLE, f"GOAWAY with code {code} {reason}".strip())
        connection.on_slot()
        if not connection.streams and not connection.is_lost:
            connection.transport.close()
