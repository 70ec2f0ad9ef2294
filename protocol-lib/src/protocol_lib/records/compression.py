"""Compression of the records of a batch, by the codec number in its attributes.

The codecs on the wire:

    gzip    one or more gzip members; what follows and is none is ignored, as Java's GZIPInputStream does
    snappy  either one raw block (librdkafka) or xerial's framing (Java): 82 'SNAPPY' 00, version i32, compatible i32,
            then blocks of length i32 and that many bytes of raw snappy; we write the latter, in blocks of 32 KiB.
            Another header may follow a block, and fewer than four bytes at the end are ignored (SnappyInputStream)
    lz4     one LZ4 frame; we write independent blocks, the only ones that Java reads. Bytes behind it are ignored, as
            Kafka's Lz4BlockInputStream does
    zstd    one or more zstd frames

A few kilobytes can claim to be gigabytes, so decompression takes a limit and never holds much more than that. Gzip
stops by itself, and snappy says its size up front. Lz4 and zstd write into a buffer that grows step by step. The first
buffer has the size that a zstd frame claims (zstd_frame.py), if that is a usual one.
cramjam does the work for all but gzip and is imported when it is first needed.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

from protocol_lib.errors import DecodeError
from protocol_lib.records.lz4_frame import frame_size
from protocol_lib.records.zstd_frame import content_size
from protocol_lib.varint import Buffer

#: The most bytes that a batch may decompress to: the size of Kafka's largest request (socket.request.max.bytes). No
#: produced batch is stored that becomes more, so that whatever reads it can.
DECOMPRESSED_BYTES_MAX: Final = 104_857_600

#: Members of one gzip stream. Writers make one.
_GZIP_MEMBERS_MAX: Final = 100
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_WINDOW: Final = 31  # zlib's way to say "gzip, the largest window"
#: Bytes that zlib gets at once, and the most that it returns at once.
_GZIP_STEP: Final = 256 * 1024
_INFLATED_STEP: Final = 1024 * 1024
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_BLOCK: Final = 32 * 1024
_LENGTH: Final = struct.Struct(">i")
#: The first bytes of a header where a block's length would be.
_XERIAL_AGAIN: Final = _LENGTH.unpack_from(_XERIAL_MAGIC)[0]
_FIRST_GUESS: Final = 64 * 1024
#: The compression ratio up to which a buffer of the size that a zstd frame claims is made at once.
_USUAL_RATIO: Final = 32
_TOO_SMALL: Final = "whole buffer"  # in cramjam's message when the output buffer is full


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


#: (lowest, highest) level of the codecs that have levels, as Kafka's compression.*.level configs take them.
LEVELS: Final[dict[Codec, tuple[int, int]]] = {Codec.GZIP: (-1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131_072, 22)}


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress bytes. The codecs in LEVELS heed a level; None is our own choice."""
    return _COMPRESS[codec](data, level)


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Return the uncompressed bytes; raise DecodeError if they are malformed or would become more than the limit.

    Bytes without compression become nothing else, so that the limit does not count for them.
    """
    try:
        function = _DECOMPRESS[codec]
    except KeyError:
        raise DecodeError(f"unknown compression codec {codec}") from None
    return function(data, limit)


class DecompressedTooLarge(DecodeError):  # noqa: N818 (it is a refusal, not a fault of the bytes)
    """The bytes are sound, as far as they were read, but would become more than the limit."""


def _too_large(limit: int) -> DecodeError:
    return DecompressedTooLarge(f"records decompress to more than {limit} bytes")


def _same(data: Buffer, _limit: int) -> Buffer:
    return data


def _plain(data: Buffer, _level: int | None) -> bytes:
    return bytes(data)


def _gzip(data: Buffer, level: int | None) -> bytes:
    writer = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WINDOW)
    return writer.compress(data) + writer.flush()


def _gunzip(data: Buffer, limit: int) -> bytes:
    pieces: list[bytes] = []
    view = memoryview(data)
    position, room = 0, limit
    try:
        for _ in range(_GZIP_MEMBERS_MAX):
            reader = zlib.decompressobj(wbits=_GZIP_WINDOW)
            while not reader.eof:
                given = view[position : position + _GZIP_STEP]
                if not given:
                    raise DecodeError("gzip data is cut short")
                room = _inflate(reader, given, room, limit, pieces)
                position += len(given) - len(reader.unused_data)
            if bytes(view[position : position + len(_GZIP_MAGIC)]) != _GZIP_MAGIC:
                return b"".join(pieces)
    except zlib.error as fault:
        raise DecodeError(f"gzip: {fault}") from fault
    raise DecodeError(f"gzip data of more than {_GZIP_MEMBERS_MAX} members")


def _inflate(reader: Any, given: Buffer, room: int, limit: int, pieces: list[bytes]) -> int:
    """Add the bytes that the next part of a member becomes to `pieces`; return the room that is left.

    It goes in steps, so that nothing larger than a step is held twice.
    """
    while True:
        most = min(room + 1, _INFLATED_STEP)  # one byte more than allowed tells "full" from "too much"
        piece = reader.decompress(given, most)
        room -= len(piece)
        if room < 0:
            raise _too_large(limit)
        pieces.append(piece)
        given = reader.unconsumed_tail
        if reader.eof or (not given and len(piece) < most):
            return room


def _snap(data: Buffer, _level: int | None) -> bytes:
    from cramjam import snappy

    pieces = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        pieces += _LENGTH.pack(len(block)), block
    return b"".join(pieces)


def _unsnap(data: Buffer, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnap_block(data, limit, limit)
    position, size = _XERIAL_HEADER.size, len(data)
    if size < position:
        raise DecodeError("snappy framing is cut short")
    pieces: list[bytes] = []
    room = limit
    while position + _LENGTH.size <= size:
        (length,) = _LENGTH.unpack_from(data, position)
        if length == _XERIAL_AGAIN and size - position >= _XERIAL_HEADER.size:
            position += _XERIAL_HEADER.size
            continue
        position += _LENGTH.size
        if not 0 < length <= size - position:
            raise DecodeError(f"a snappy block of {length} bytes where {size - position} are left")
        piece = _unsnap_block(data[position : position + length], room, limit)
        room -= len(piece)
        pieces.append(piece)
        position += length
    return b"".join(pieces)


def _unsnap_block(block: Buffer, room: int, limit: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        if snappy.decompress_raw_len(block) > room:
            raise _too_large(limit)
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as fault:
        raise DecodeError(f"snappy: {fault}") from fault


def _lz4(data: Buffer, level: int | None) -> bytes:
    from cramjam import lz4

    writer = lz4.Compressor(level=1 if level is None else level, content_checksum=False, block_linked=False)
    writer.compress(bytes(data))
    return bytes(writer.finish())


def _unlz4(data: Buffer, limit: int) -> memoryview:
    from cramjam import lz4

    try:
        return _into_growing_buffer("lz4", lz4.decompress_into, data, limit)
    except DecompressedTooLarge:
        raise
    except DecodeError:
        if (size := frame_size(data)) == len(data):
            raise
        return _into_growing_buffer("lz4", lz4.decompress_into, data[:size], limit)


def _zstd(data: Buffer, level: int | None) -> bytes:
    from cramjam import zstd

    return bytes(zstd.compress(data, level=3 if level is None else level))


def _unzstd(data: Buffer, limit: int) -> memoryview:
    from cramjam import zstd

    size = content_size(data)
    guess = None if size is None or size > max(_FIRST_GUESS, _USUAL_RATIO * len(data)) else size
    return _into_growing_buffer("zstd", zstd.decompress_into, data, limit, guess)


def _into_growing_buffer(
    name: str, decompress_into: Callable[[Any, Any], int], data: Buffer, limit: int, guess: int | None = None
) -> memoryview:
    """Decompress into a buffer that is made larger until it suffices. `guess`: its first size, if one is known."""
    from cramjam import DecompressionError

    size = min(limit, max(_FIRST_GUESS, 4 * len(data)) if guess is None else guess)
    while True:
        buffer = bytearray(size)
        try:
            return memoryview(buffer)[: decompress_into(data, buffer)]
        except DecompressionError as fault:
            if _TOO_SMALL not in str(fault):
                raise DecodeError(f"{name}: {fault}") from fault
            if size == limit:
                raise _too_large(limit) from fault
        del buffer  # before a larger one is made
        size = min(limit, max(_FIRST_GUESS, 8 * size))  # mutant: buffer-grows-from-nothing


_COMPRESS: Final[dict[Codec, Callable[[Buffer, int | None], bytes]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snap,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESS: Final[dict[int, Callable[[Buffer, int], Buffer]]] = {
    Codec.NONE: _same,
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnap,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
