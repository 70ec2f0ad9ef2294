"""Compiled codecs: declared messages to bytes and back, by functions compiled on first use.

    decode(ProduceRequest, 9, body) -> ProduceRequest        the whole buffer must be consumed
    encode(response, 9) -> bytes
    encode_parts(response, 12) -> list of bytes and, by reference, the values of its `records` fields

`python -m protocol_lib.codec MetadataResponse 12` prints the functions compiled for a message. Tracebacks
show the same text: it is registered with linecache.

Decoding treats its input as hostile: any bytes lead to a message or to a DecodeError. Lists grow only as far as
the bytes that are there can fill them, and a reader may set a limit for all arrays of a message together. `records`
come out as memoryview slices of the buffer, without a copy; everything else is copied.
"""

import linecache
import struct
import sys
from collections.abc import Callable, Sized
from functools import cache
from types import FunctionType
from typing import Any, Final, TypeVar

from protocol_lib.decoding import DecoderText, Reader
from protocol_lib.encoding import EncoderText, Writer
from protocol_lib.errors import DecodeError, EncodeError, TooManyElements, UnsupportedVersion
from protocol_lib.layout import Layout, layout, message_layout
from protocol_lib.schema import message_info
from protocol_lib.varint import Buffer

T = TypeVar("T")

_BAD_BYTES: Final = (DecodeError, struct.error, IndexError, UnicodeDecodeError)
_BAD_VALUES: Final = (EncodeError, struct.error, TypeError, AttributeError, UnicodeEncodeError, OverflowError)

#: The functions that were compiled so far, by message and version.
_decoders: Final[dict[tuple[type, int], Callable[..., Any]]] = {}
_prefix_decoders: Final[dict[tuple[type, int, int | None], Callable[..., Any]]] = {}
_encoders: Final[dict[tuple[type, int], Writer]] = {}


def decode(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> T:
    """Return the message that fills the buffer from a position to its end."""
    return decoder(cls, version)(buffer, position)


def decode_prefix(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> T:
    """Return the message at a position, for formats whose readers ignore the bytes after the fields they know."""
    return prefix_decoder(cls, version)(buffer, position)


def encode(message: Any, version: int, prefix: bytes = b"") -> bytes:
    """Return the bytes of a message, after those of a prefix."""
    cls = type(message)
    write = _encoders.get((cls, version)) or encoder(cls, version)
    parts = [prefix]
    put = parts.append
    try:
        write(message, put, put)
        return b"".join(parts)
    except _BAD_VALUES as fault:
        raise EncodeError(f"{cls.__name__} v{version}: {fault}") from fault


def encode_parts(message: Any, version: int) -> list[bytes | Sized]:
    """Return the bytes of a message in parts; the value of a records field, anything with a length, is one of them."""
    pieces: list[bytes] = []
    parts: list[bytes | Sized] = []

    def refer(value: Sized) -> None:
        parts.append(b"".join(pieces))
        pieces.clear()
        parts.append(value)

    _write(message, version, pieces.append, refer)
    if pieces:
        parts.append(b"".join(pieces))
    return parts


def decoder(cls: type[T], version: int) -> Callable[..., T]:
    """Return the function (buffer, position=0) -> message; raise UnsupportedVersion when there is none."""
    found = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = _message_decoder(cls, version)
    return found


def encoder(cls: type, version: int) -> Writer:
    """Return the function (message, put[, refer]): see encoding."""
    found = _encoders.get((cls, version))
    if found is None:
        if version not in message_info(cls).versions:
            raise EncodeError(f"{cls.__name__} is not declared for version {version}")
        found = _encoders[cls, version] = _writer(message_layout(cls, version))
    return found


def _message_decoder(cls: type[T], version: int) -> Callable[..., T]:
    info = message_info(cls)
    if version not in info.versions:
        raise UnsupportedVersion(-1 if info.api_key is None else info.api_key, version)
    return _decoder(cls, version, None, is_whole=True)


def prefix_decoder(cls: type[T], version: int, elements_max: int | None = None) -> Callable[..., T]:
    """Return the function (buffer, position=0) -> message that ignores the bytes after the message.

    The function raises TooManyElements for a message with more than `elements_max` elements in all of its arrays and
    tagged fields together; None is no limit.
    """
    key = cls, version, elements_max
    found = _prefix_decoders.get(key)
    if found is None:
        found = _prefix_decoders[key] = _decoder(cls, version, elements_max, is_whole=False)
    return found


def _decoder(cls: type[T], version: int, elements_max: int | None, *, is_whole: bool) -> Callable[..., T]:
    inside = message_layout(cls, version)
    read = _reader(inside)
    # Each element takes a byte or more, so a message is counted only where it could have too many of them.
    short = 2**62 if elements_max is None else elements_max

    def decode_message(buffer: Buffer, position: int = 0) -> T:
        size = len(buffer)
        message: T
        try:
            if size - position <= short:
                message, end = read(buffer, position, size)
            else:
                message, end, _ = _reader(inside, counted=True)(buffer, position, size, elements_max)
        except TooManyElements:
            raise
        except _BAD_BYTES as fault:
            raise DecodeError(f"{cls.__name__} v{version}: {fault}") from fault
        if end > size or (is_whole and end < size):
            wrong = "cut short" if end > size else f"{size - end} bytes too many"
            raise DecodeError(f"{cls.__name__} v{version}: {wrong}")
        return message

    return decode_message


def _write(message: Any, version: int, put: Callable[[bytes], None], refer: Callable[[Any], None]) -> None:
    cls = type(message)
    write = encoder(cls, version)
    try:
        write(message, put, refer)
    except _BAD_VALUES as fault:
        raise EncodeError(f"{cls.__name__} v{version}: {fault}") from fault


@cache
def _reader(inside: Layout, *, counted: bool = False) -> Reader:
    def nested(cls: type) -> Reader:
        return _reader(layout(cls, inside.version, inside.flexible), counted=counted)

    return DecoderText(inside, nested, counted=counted).struct()


@cache
def _writer(inside: Layout) -> Writer:
    return EncoderText(inside, lambda cls: _writer(layout(cls, inside.version, inside.flexible))).struct()


def source(cls: type, version: int) -> str:
    """Return the text of every function compiled for a message."""
    inside = message_layout(cls, version)
    return "\n\n".join(
        "".join(linecache.getlines(file)) for start in (_reader(inside), _writer(inside)) for file in _files(start)
    )


def _files(function: Callable[..., Any]) -> list[str]:
    """List the names under which linecache knows a compiled function and those that it calls, itself last."""
    found: dict[str, None] = {}
    own = function.__code__.co_filename
    for called in list(function.__globals__.values()):
        file = called.__code__.co_filename if isinstance(called, FunctionType) else own
        if file != own and file.startswith("<kafka codec "):
            found |= dict.fromkeys(_files(called))
    found[own] = None
    return list(found)


def main(arguments: list[str]) -> int:
    from protocol_lib.api import APIS

    messages = {f"{api.name}{side.title()}": (api, side) for api in APIS.values() for side in ("request", "response")}
    if len(arguments) != 2 or arguments[0] not in messages or not arguments[1].isdecimal():
        print(f"usage: python -m protocol_lib.codec MESSAGE VERSION\nmessages: {' '.join(messages)}", file=sys.stderr)
        return 2
    api, side = messages[arguments[0]]
    try:
        print(source(getattr(api, side), int(arguments[1])), end="")
    except TypeError as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
