"""The bytes of a lane as frames, read no further than to the next byte that is not ours.

A message has one field of bytes, so its length tells the length of the prefix before them. The bytes of all messages of
a call together are known before. A message may span several frames, and a frame may hold several messages:

    frame head │ message head │ prefix │ bytes … │ frame head │ bytes … │ message head │ prefix │ bytes …
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from service_chassis.http2 import frames
from service_chassis.http2.frames import DATA, HEAD, HEAD_BYTES
from service_chassis.http2.limits import TransportCounts

#: Most bytes of a frame other than DATA, and of its fields when decoded.
CONTROL_BYTES_MAX: Final = 16_384
#: Most frames without bytes of messages during one call, or between two.
_CONTROL_FRAMES_MAX: Final = 1_000
_MESSAGE_HEAD_BYTES: Final = 5
_PREFIX_BYTES_MAX: Final = 6


class LaneError(ConnectionError):
    """The lane is closed, with the reason as its text: the rest of its bytes will not come."""


class LaneFrames:
    """The frames of one lane. `control` gets those other than DATA: type, flags, stream and payload. It returns whether
    to go on: not if the lane is closed, or an answer has begun, whose receiver goes on by itself.

    `prefix` returns the bytes in a message before so many bytes of its one field.
    """

    def __init__(
        self,
        connected: socket.socket,
        counts: TransportCounts,
        prefix: Callable[[int], bytes],
        control: Callable[[int, int, int, bytes], bool],
    ) -> None:
        self._socket = connected
        self._counts = counts
        self._prefix = prefix
        self._control = control
        #: The stream whose messages may come; 0 if none may.
        self.stream_id = 0
        #: Bytes that the heads of messages have not announced yet.
        self.unannounced = 0
        #: Bytes of the DATA frame that have not come, and of the message.
        self._frame_left = self._message_left = 0
        #: Bytes of DATA that were not given back to the connection's window.
        self.given = 0
        self._control_count = 0
        #: A frame's head, or the payload of a frame other than DATA, as far as it has come, and that frame's head.
        self._got = bytearray()
        self._frame: tuple[int, int, int, int] | None = None
        #: The head and the prefix of the next message, as far as they have come.
        self._message_head = bytearray()

    @property
    def ready(self) -> int:
        """The bytes of a message that come next, without a head in between."""
        return min(self._frame_left, self._message_left)

    @property
    def is_whole(self) -> bool:
        """Whether all messages have come to their end."""
        return not (self.unannounced or self._message_left or self._frame_left or self._message_head)

    def expect(self, size: int) -> None:
        """Begin a call whose messages have `size` bytes together."""
        self.unannounced = size
        self._control_count = 0

    def took(self, count: int) -> None:
        """Note that so many of the `ready` bytes were taken out of the socket."""
        self._frame_left -= count
        self._message_left -= count
        self._counts.bytes_received += count

    def advance(self) -> bool:
        """Process frames until bytes of a message come next (True), or nothing more has come (False).

        Raises:
            OSError, PeerError: the lane is broken.
        """
        while not self._frame_left or not self._message_left:
            if not (self._take_message_head() if self._frame_left else self._take_frame()):
                return False
        return True

    def _receive(self, into: bytearray, count: int) -> bool:
        """Append bytes of the socket until there are `count`; return False if they have not come."""
        while len(into) < count:
            try:
                got = self._socket.recv(count - len(into))
            except BlockingIOError:
                return False
            if not got:
                raise LaneError("the server closed the connection")
            into += got
            self._counts.bytes_received += len(got)
        return True

    def _take_frame(self) -> bool:
        """Process a frame, or the head of DATA; return False if it has not come in full, or `control` returns it."""
        if self._frame is None:
            if not self._receive(self._got, HEAD_BYTES):
                return False
            word, flags, stream_id = HEAD.unpack(self._got)
            self._got.clear()
            self._counts.frames_received += 1
            kind, length = word & 255, word >> 8
            if kind != DATA or not length:
                self._control_count += 1  # mutant: lane-frames-bounded
            if self._control_count > _CONTROL_FRAMES_MAX or (kind != DATA and length > CONTROL_BYTES_MAX):
                raise LaneError("a frame that is too long, or too many of them")
            if kind == DATA:
                self._begin_data(flags, stream_id, length)
                return True
            self._frame = kind, flags, stream_id & frames.STREAM_ID_MAX, length
        kind, flags, stream_id, length = self._frame
        if not self._receive(self._got, length):
            return False
        payload, self._frame = bytes(self._got), None
        self._got.clear()
        return self._control(kind, flags, stream_id, payload)

    def _begin_data(self, flags: int, stream_id: int, length: int) -> None:
        if not self.stream_id or stream_id != self.stream_id or flags:
            raise LaneError("DATA where none can be, or with flags")
        self.given += length
        self._frame_left = length

    def _take_message_head(self) -> bool:
        """Read on in the head of a message; return False if nothing more of it has come."""
        head = self._message_head
        while missing := self._missing_of_head():
            if not self._frame_left:
                return True  # the rest is in the next frame
            before = len(head)
            has_come = self._receive(head, before + min(missing, self._frame_left))
            self._frame_left -= len(head) - before
            if not has_come:
                return False
        self._begin_message()
        return True

    def _missing_of_head(self) -> int:
        have = len(self._message_head)
        if have < _MESSAGE_HEAD_BYTES:
            return _MESSAGE_HEAD_BYTES - have
        return _MESSAGE_HEAD_BYTES + self._prefix_length(int.from_bytes(self._message_head[1:5], "big")) - have

    def _prefix_length(self, size: int) -> int:
        """Return the length of the prefix in a message of this size."""
        if not size:
            return 0  # a field without bytes is left out
        for length in range(2, _PREFIX_BYTES_MAX + 1):
            if size >= length and len(self._prefix(size - length)) == length:
                return length
        raise LaneError(f"a message of {size} bytes")

    def _begin_message(self) -> None:
        head = self._message_head
        size = int.from_bytes(head[1:5], "big") - (len(head) - _MESSAGE_HEAD_BYTES)
        if head[0] or (len(head) > _MESSAGE_HEAD_BYTES and head[_MESSAGE_HEAD_BYTES:] != self._prefix(size)):
            raise LaneError("a message that is compressed, or has other fields")
        if size > self.unannounced:  # mutant: lane-message-bounded
            raise LaneError(f"{size - self.unannounced} bytes too many")
        self.unannounced -= size
        self._message_left = size
        head.clear()
