"""The header of an LZ4 frame: which frames Java reads, and the fault of clients before Kafka 0.10 (KAFKA-3160).

    magic u32 LE 0x184D2204, FLG u8, BD u8, content size u64 LE if FLG bit 3, dictionary id u32 LE if FLG bit 0,
    header checksum u8, then blocks: size u32 LE (bit 31: not compressed), as many bytes, checksum u32 LE if FLG bit 4.
    A block of size 0 is the end; after it the content's checksum u32 LE if FLG bit 2

The checksum is the second byte of the XXH32 of FLG to dictionary id. Old clients took it from the magic on. Messages of
format 0 carry frames made that way, and readers of that format accept any checksum; formats 1 and 2 do it right.

Kafka reads blocks that do not depend on each other, and one frame only (Lz4BlockInputStream).
"""

from struct import Struct
from typing import Final

from protocol_lib.errors import DecodeError
from protocol_lib.varint import Buffer

_MAGIC: Final = b"\x04\x22\x4d\x18"
_VERSION: Final = 0x40
_VERSION_MASK: Final = 0xC0
_INDEPENDENT: Final = 0x20
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
_RESERVED: Final = 0x02
_DICTIONARY_ID: Final = 0x01
#: The bits of a block's size, without that of a block which is not compressed.
_LENGTH_MASK: Final = (1 << 31) - 1
#: Bytes of a size or of a checksum.
_WORD: Final = 4
_HEADER_SIZE_MIN: Final = 7

_LANE: Final = Struct("<I")
_MASK: Final = 0xFFFFFFFF
_PRIME_1: Final = 0x9E3779B1
_PRIME_2: Final = 0x85EBCA77
_PRIME_3: Final = 0xC2B2AE3D
_PRIME_4: Final = 0x27D4EB2F
_PRIME_5: Final = 0x165667B1


def for_java(frame: Buffer) -> Buffer:
    """Return the part of the bytes that Kafka's and Java's readers take, which is their first frame.

    Raises:
        DecodeError: they refuse its header.
    """
    end = _descriptor_end(frame)
    flags = frame[4]
    if flags & _VERSION_MASK != _VERSION or flags & (_RESERVED | _DICTIONARY_ID):
        raise DecodeError(f"an LZ4 frame of flags {flags:#x}, which Kafka's consumers do not read")
    if not flags & _INDEPENDENT:
        raise DecodeError("an LZ4 frame of linked blocks, which Kafka's consumers do not read")
    if frame[end] != xxh32_short(bytes(frame[len(_MAGIC) : end])) >> 8 & 0xFF:
        raise DecodeError("an LZ4 frame of a wrong header checksum")
    return frame[: frame_size(frame)]


def frame_size(frame: Buffer) -> int:
    """Return the bytes of the first frame up to its end mark and checksum, or all of them if it has no end.

    Raises:
        DecodeError: its header is cut short, or none.
    """
    position, size = _descriptor_end(frame) + 1, len(frame)
    flags = frame[4]
    behind = _WORD + (_WORD if flags & _BLOCK_CHECKSUM else 0)
    read = _LANE.unpack_from
    while position + _WORD <= size:
        (length,) = read(frame, position)
        if not length:
            return min(size, position + _WORD + (_WORD if flags & _CONTENT_CHECKSUM else 0))
        position += (length & _LENGTH_MASK) + behind
    return size


def with_right_checksum(frame: Buffer) -> bytes:
    """Return the frame with the header checksum of the LZ4 specification in place of any other."""
    end = _descriptor_end(frame)
    return _with_checksum(frame, end, len(_MAGIC))


def with_old_checksum(frame: Buffer) -> bytes:
    """Return the frame with the header checksum that clients of message format 0 write and expect."""
    return _with_checksum(frame, _descriptor_end(frame), 0)


def _with_checksum(frame: Buffer, end: int, start: int) -> bytes:
    checksum = xxh32_short(bytes(frame[start:end])) >> 8 & 0xFF
    return b"".join((frame[:end], bytes((checksum,)), frame[end + 1 :]))


def _descriptor_end(frame: Buffer) -> int:
    """Return the position of the header checksum."""
    if len(frame) < _HEADER_SIZE_MIN or bytes(frame[:4]) != _MAGIC:
        raise DecodeError("not an LZ4 frame")
    flags = frame[4]
    end = 6 + (8 if flags & _CONTENT_SIZE else 0) + (4 if flags & _DICTIONARY_ID else 0)
    if end >= len(frame):
        raise DecodeError("an LZ4 frame of which the header is cut short")
    return end


def xxh32_short(data: bytes) -> int:
    """Compute XXH32 with seed 0: the part of its specification for fewer than 16 bytes, as a frame header has."""
    digest = _PRIME_5 + len(data)
    whole = len(data) & ~3
    for (lane,) in _LANE.iter_unpack(data[:whole]):
        digest = _rotated(digest + lane * _PRIME_3, 17) * _PRIME_4 & _MASK
    for byte in data[whole:]:
        digest = _rotated(digest + byte * _PRIME_5, 11) * _PRIME_1 & _MASK
    digest = (digest ^ digest >> 15) * _PRIME_2 & _MASK
    digest = (digest ^ digest >> 13) * _PRIME_3 & _MASK
    return digest ^ digest >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return value << bits | value >> (32 - bits)
