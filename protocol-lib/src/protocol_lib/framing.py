"""Cutting a byte stream into frames: an i32 length, then one request or response of that many bytes.

    splitter = FrameSplitter(size_max)
    for frame in splitter.feed(data): ...

Pure: bytes in, frames out. A length that is negative or above the limit is a FrameError as soon as its four bytes are
there; nothing is kept for it.
"""

from collections.abc import Iterable, Sized
from struct import Struct
from typing import Final

from protocol_lib.errors import DecodeError

LENGTH: Final = Struct(">i")
#: Kafka's default for the largest request (socket.request.max.bytes).
FRAME_SIZE_MAX: Final = 104_857_600


class FrameError(DecodeError):
    """A frame length no frame can have; where the next frame begins cannot be known."""


class FrameSplitter:
    """The receiving side of one connection."""

    def __init__(self, size_max: int = FRAME_SIZE_MAX) -> None:
        self._size_max = size_max
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Return the frames that these bytes complete."""
        buffer = self._buffer
        buffer += data
        frames = []
        position, size = 0, len(buffer)
        while size - position >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer, position)
            if not 0 <= length <= self._size_max:
                raise FrameError(f"a frame of {length} bytes")
            end = position + LENGTH.size + length
            if end > size:
                break
            frames.append(bytes(memoryview(buffer)[position + LENGTH.size : end]))
            position = end
        if position:
            del buffer[:position]
        return frames


def frame_length(parts: Iterable[Sized]) -> bytes:
    """Return the four bytes that go in front of the parts of a frame."""
    return LENGTH.pack(sum(map(len, parts)))
