"""The receiving side of a connection: a byte stream cut into frames, large ones without a copy.

Small frames are cut out of a buffer that is used again and again. A frame that does not fit into it is announced: it
gets a buffer of exactly its size with the next call of `buffer`, and the rest of it is received right there. Pure:
asyncio's BufferedProtocol calls `buffer` and `received`.
"""

from struct import Struct
from typing import Final

from protocol_lib.framing import FrameError

_LENGTH: Final = Struct(">i")
_BUFFER_BYTES: Final = 64 * 1024
#: A longer frame comes from no broker: `HTTP` is a length of 1.2 billion.
_LENGTH_MAX: Final = 1 << 30
#: Bytes of a frame above the limit that are received: the head of an answer, and of its first record batch.
_START_BYTES: Final = 4096


class FrameTooLargeError(FrameError):
    """A frame longer than the limit. `start` has its first bytes."""

    def __init__(self, size: int, start: bytes) -> None:
        super().__init__(f"a frame of {size} bytes")
        self.start = start


class FrameReceiver:
    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._shared = memoryview(bytearray(_BUFFER_BYTES))
        self._held = 0
        #: size of a large frame that has no buffer yet, else 0
        self.announced = 0
        #: buffer of a frame too large for the shared one
        self._own: memoryview | None = None
        self._own_held = 0

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes; never empty."""
        if self.announced:
            self._own = memoryview(bytearray(self.announced))
            self._own_held = self._held - _LENGTH.size
            self._own[: self._own_held] = self._shared[_LENGTH.size : self._held]
            self._held = self.announced = 0
        if self._own is not None:
            return self._own[self._own_held :]
        return self._shared[self._held :]

    def received(self, count: int) -> list[bytes | memoryview]:
        """Return the frames that these bytes complete; FrameError when the next length is not valid."""
        if self._own is not None:
            self._own_held += count
            if self._own_held < len(self._own):
                return []
            frame, self._own = self._own, None
            return [frame]
        self._held += count
        return self._cut()

    def _cut(self) -> list[bytes | memoryview]:
        frames: list[bytes | memoryview] = []
        shared, held, position = self._shared, self._held, 0
        while held - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(shared, position)
            if not 0 <= length < _LENGTH_MAX:
                raise FrameError(f"a frame of {length} bytes")
            begin, end = position + _LENGTH.size, position + _LENGTH.size + length
            if length > self._size_max:
                start = bytes(shared[begin : min(end, begin + _START_BYTES, held)])
                if len(start) < min(length, _START_BYTES):
                    break
                raise FrameTooLargeError(length, start)
            if end <= held:
                frames.append(bytes(shared[begin:end]))
                position = end
                continue
            if length > _BUFFER_BYTES - _LENGTH.size:
                self.announced = length
            break
        if position:
            rest = bytes(shared[position:held])
            shared[: len(rest)] = rest
            self._held = len(rest)
        return frames
