"""Layout of the items of data.py in the `body` of a data.proto Frame.

A body is items back to back. All integers are big-endian; a string is `length u16 + UTF-8`, a nullable string has
length 0xFFFF for null.

    item     = kind u8, call_id u64, payload_length u32, payload
    kind 1, 2, 6, 7           appends and their answers: append_items.py
    kind 3, 4, 9, 10          reads, reads ahead and their answers: fetch_items.py
    kind 5   cancel           (empty) the read of that call id was given up; it gets no answer
    kind 8   frame receipt    (empty) in a frame to storage: a request for the same item, with the same call id, once
                              the frame's appends are written, or wait with copies of their record bytes

Record bytes are views of the received frame, or of the AppendArea, where they change after the frame's receipt.
A sender leaves bytes unchanged until the call is answered. A receiver that keeps them longer copies them.
The combined broker passes the same dataclasses without encoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from broker_contract.append_items import (
    get_append,
    get_append_response,
    get_appended,
    get_laid_append,
    put_append,
    put_append_response,
)
from broker_contract.data import (
    AheadRequest,
    AheadResponse,
    Append,
    AppendResponse,
    Buffer,
    Cancel,
    FrameReceipt,
    Item,
    ReadRequest,
    ReadResponse,
)
from broker_contract.errors import FrameError
from broker_contract.fetch_items import (
    get_ahead_request,
    get_ahead_response,
    get_read_request,
    get_read_response,
    put_ahead_request,
    put_ahead_response,
    put_read_request,
    put_read_response,
)
from broker_contract.item_fields import ITEM, Reader

#: The longest Frame: an append of the longest request that a gateway can be set to take, and a little more.
FRAME_BYTES_MAX: Final = (1 << 31) - 1


def put_item(parts: list[Buffer], call_id: int, item: Item) -> int:
    """Append the encoded item to `parts`, which are joined into one frame body, and return its size in bytes.

    Raises:
        FrameError: a string is longer than 65,534 bytes.
    """
    if type(item) is Append:
        return put_append(parts, call_id, item)
    if type(item) is AppendResponse:
        return put_append_response(parts, call_id, item)
    if type(item) is FrameReceipt:
        parts.append(ITEM.pack(8, call_id, 0))
        return ITEM.size
    index = len(parts)
    parts.append(b"")
    kind, size = _put_payload(parts, item)
    parts[index] = ITEM.pack(kind, call_id, size)
    return ITEM.size + size


def _put_payload(parts: list[Buffer], item: Item) -> tuple[int, int]:
    """Append the payload of an item to `parts`, and return its kind and its size in bytes."""
    match item:
        case ReadRequest():
            return 3, put_read_request(parts, item)
        case ReadResponse():
            return 4, put_read_response(parts, item)
        case Cancel():
            return 5, 0
        case AheadRequest():
            return 9, put_ahead_request(parts, item)
        case AheadResponse():
            return 10, put_ahead_response(parts, item)
    raise TypeError(f"{type(item).__name__} is put otherwise")


def _frame_receipt(_buffer: memoryview, position: int, end: int, _area: memoryview | None) -> FrameReceipt:
    if position != end:
        raise FrameError(f"{end - position} bytes left over in an item of kind 8")
    return FrameReceipt()


_DECODERS: Final[dict[int, Callable[[Reader], Item]]] = {
    2: get_append_response,
    3: get_read_request,
    4: get_read_response,
    5: lambda _reader: Cancel(),
    9: get_ahead_request,
    10: get_ahead_response,
}
#: Decoders of the kinds that need no Reader: they check the end of the item themselves.
_QUICK_DECODERS: Final[dict[int, Callable[[memoryview, int, int, memoryview | None], Item]]] = {
    1: get_append,
    6: get_laid_append,
    7: get_appended,
    8: _frame_receipt,
}


def read_items(body: Buffer, area: memoryview | None = None) -> Iterator[tuple[int, Item]]:
    """Return the (call id, item) pairs of a frame body. Record bytes are views of `body`, or of the sender's `area`.

    Raises:
        FrameError: the body is not as this module's docstring says, or refers to memory outside of the area.
    """
    buffer = memoryview(body)
    position, end = 0, len(buffer)
    while position < end:
        if end - position < ITEM.size:
            raise FrameError("frame ends inside an item header")
        kind, call_id, length = ITEM.unpack_from(buffer, position)
        position += ITEM.size
        if length > end - position:
            raise FrameError(f"item of {length} bytes in a frame with {end - position} left")
        stop = position + length
        quick = _QUICK_DECODERS.get(kind)
        if quick is not None:
            yield call_id, quick(buffer, position, stop, area)
        else:
            yield call_id, _item(kind, Reader(buffer, position, stop, area))
        position = stop


def _item(kind: int, reader: Reader) -> Item:
    decode = _DECODERS.get(kind)
    if decode is None:
        raise FrameError(f"item of unknown kind {kind}")
    item = decode(reader)
    if reader.position != reader.end:
        raise FrameError(f"{reader.end - reader.position} bytes left over in an item of kind {kind}")
    return item


@lru_cache(1024)
def frame_prefix(size: int) -> bytes:
    """Return the bytes that precede a body of `size` bytes in the protobuf encoding of a Frame."""
    prefix = bytearray(b"\x0a")
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix)


def frame_to_wire(parts: list[Buffer]) -> bytes:
    """Return the protobuf encoding of `Frame{body = parts joined}`, with one copy of the bytes."""
    return b"".join((frame_prefix(sum(map(len, parts))), *parts))


def frame_from_wire(wire: Buffer) -> memoryview:
    """Return the body of an encoded Frame, without a copy.

    Raises:
        FrameError: not a Frame with exactly its one field.
    """
    if not wire:
        return memoryview(b"")
    if wire[0] != 0x0A:
        raise FrameError("not a Frame")
    size, shift, position = 0, 0, 1
    while True:
        if position >= len(wire) or shift > 28:
            raise FrameError("broken length of a Frame")
        byte = wire[position]
        size |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            break
    if position + size != len(wire):
        raise FrameError("length of a Frame differs from its bytes")
    return memoryview(wire)[position:]
