"""Numbers of HTTP/2, and frames as bytes (RFC 9113, sections 4, 6 and 7)."""

from __future__ import annotations

import enum
from struct import Struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9

# Types of frames.
DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

# Flags of frames.
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

# Parameters of SETTINGS.
HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

#: The windows of a connection and of its streams before anybody has changed them.
FIRST_WINDOW: Final = 65_535
WINDOW_MAX: Final = 0x7FFFFFFF
#: The longest frames that a peer accepts before its SETTINGS allow others, and that it may allow.
FIRST_FRAME_BYTES_MAX: Final = 16_384
FRAME_BYTES_MAX: Final = 0xFFFFFF
STREAM_ID_MAX: Final = 0x7FFFFFFF

#: A frame's head: its length and type in one word, its flags, its stream.
HEAD: Final = Struct(">IBI")
#: The head of a DATA frame and that of the gRPC message in it: not compressed, its length.
MESSAGE_HEAD: Final = Struct(">IBIBI")
SETTING: Final = Struct(">HI")
U32: Final = Struct(">I")


class ErrorCode(enum.IntEnum):
    """The codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class PeerError(Exception):
    """The peer broke the rules of the connection, which ends with a GOAWAY of this code."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes | bytearray | memoryview = b"") -> bytes:
    return HEAD.pack(len(payload) << 8 | kind, flags, stream_id) + payload


def settings(**values: int) -> bytes:
    """Return a SETTINGS frame with these parameters, `initial_window_size=1000` for example."""
    numbers = globals()
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(numbers[name.upper()], value) for name, value in values.items()))


def window_update(stream_id: int, count: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, U32.pack(count))


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream_id, U32.pack(code))


def goaway(last_stream_id: int, code: ErrorCode, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, U32.pack(last_stream_id) + U32.pack(code) + text.encode()[:200])


def without_padding(payload: memoryview, flags: int) -> memoryview:
    """Return the payload of a DATA or HEADERS frame without its padding.

    Raises:
        PeerError: the padding is longer than the frame.
    """
    if not flags & PADDED:
        return payload
    if not len(payload) or payload[0] >= len(payload):
        raise PeerError(ErrorCode.PROTOCOL_ERROR, "more padding than frame")
    return payload[1 : len(payload) - payload[0]]
