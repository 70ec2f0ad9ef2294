"""Fields of the items of frames.py, and a reader that checks each of their lengths."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from broker_contract.data import Buffer
from broker_contract.errors import FrameError

#: The head of every item: kind, call id, length of the payload.
ITEM: Final = Struct(">BQI")
U16: Final = Struct(">H")
U32: Final = Struct(">I")
U64: Final = Struct(">Q")
I32: Final = Struct(">i")
#: The length of a string that is null.
NULL: Final = 0xFFFF


def put_nstring(parts: list[Buffer], value: str | None) -> int:
    """Append a nullable string to `parts`, and return its size in bytes.

    Raises:
        FrameError: it is longer than 65,534 bytes.
    """
    if value is None:
        parts.append(b"\xff\xff")
        return 2
    raw = value.encode()
    if len(raw) >= NULL:
        raise FrameError(f"string of {len(raw)} bytes is longer than {NULL - 1}")
    parts.append(U16.pack(len(raw)) + raw)
    return 2 + len(raw)


class Reader:
    """A cursor over one item's payload. Every method raises FrameError when fewer bytes remain than it needs."""

    __slots__ = ("area", "buffer", "end", "position")

    def __init__(self, buffer: memoryview, position: int, end: int, area: memoryview | None = None) -> None:
        self.buffer = buffer
        #: The gateway's AppendArea, for records outside of the item.
        self.area = area
        self.position = position
        self.end = end

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        start = self.position
        self.position = start + layout.size
        if self.position > self.end:
            raise FrameError("item ends inside a field")
        return layout.unpack_from(self.buffer, start)

    def take(self, length: int) -> memoryview:
        start = self.position
        self.position = start + length
        if self.position > self.end:
            raise FrameError("item ends inside a field")
        return self.buffer[start : self.position]

    def count(self) -> int:
        count: int = self.unpack(U32)[0]
        if count > self.end - self.position:
            raise FrameError(f"{count} elements announced, {self.end - self.position} bytes left")
        return count

    def nstring(self) -> str | None:
        (length,) = self.unpack(U16)
        if length == NULL:
            return None
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise FrameError("a string is not UTF-8") from error

    def string(self) -> str:
        value = self.nstring()
        if value is None:
            raise FrameError("null where a string must be")
        return value
