"""Variable-length integers as Kafka writes them: base 128, least significant group first, high bit = more follows.

`unsigned`: lengths, counts and tags of flexible messages; at most 32 bits, so at most 5 bytes.
`signed` (zig-zag: 0, -1, 1, -2 … become 0, 1, 2, 3 …): lengths and deltas inside records; at most 64 bits, 10 bytes.

    unsigned 300 -> ac 02        signed -1 -> 01        signed 64 -> 80 01

Readers take (buffer, position) and return (value, next position). A number that goes on for too long, or is too large
for its type, is a DecodeError; a buffer that ends too early is an IndexError, which the caller's border translates.
"""

from typing import Final

from protocol_lib.errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview

UNSIGNED_MAX: Final = 2**32 - 1
SIGNED_MIN: Final = -(2**63)
SIGNED_MAX: Final = 2**63 - 1

#: The encodings of 0 … 127, which are nearly all that a message holds.
SMALL: Final = tuple(bytes((value,)) for value in range(128))


def read_unsigned(buffer: Buffer, position: int) -> tuple[int, int]:
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    byte = buffer[position + 1]
    if byte < 0x80:
        return value & 0x7F | byte << 7, position + 2
    value = value & 0x7F | (byte & 0x7F) << 7
    byte = buffer[position + 2]
    if byte < 0x80:
        return value | byte << 14, position + 3
    value |= (byte & 0x7F) << 14
    byte = buffer[position + 3]
    if byte < 0x80:
        return value | byte << 21, position + 4
    value |= (byte & 0x7F) << 21
    byte = buffer[position + 4]
    if byte > 0x0F:
        raise DecodeError("an unsigned varint exceeds 32 bits")
    return value | byte << 28, position + 5


def read_signed(buffer: Buffer, position: int) -> tuple[int, int]:
    value = buffer[position]
    position += 1
    if value > 0x7F:
        value, position = read_on(buffer, position, value)
    return (value >> 1) ^ -(value & 1), position


def read_on(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a signed number whose first byte says that more follows; do not undo zig-zag."""
    byte = buffer[position]
    if byte < 0x80:
        return first & 0x7F | byte << 7, position + 1
    value = first & 0x7F | (byte & 0x7F) << 7
    shift = 14
    while True:
        position += 1
        byte = buffer[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise DecodeError("a signed varint goes on for more than 10 bytes")
    if value >> 64:
        raise DecodeError("a signed varint exceeds 64 bits")
    return value, position + 1


def unzigzag(value: int) -> int:
    """Return the signed number of an unsigned one: 0, 1, 2, 3 … are 0, -1, 1, -2 …"""
    return (value >> 1) ^ -(value & 1)


def write_unsigned(value: int) -> bytes:
    if not 0 <= value <= UNSIGNED_MAX:
        raise EncodeError(f"{value} does not fit an unsigned varint")
    return _write(value)


def write_signed(value: int) -> bytes:
    if -64 <= value < 64:
        return SMALL[(value << 1) ^ (value >> 63)]
    if not SIGNED_MIN <= value <= SIGNED_MAX:
        raise EncodeError(f"{value} does not fit a signed varint")
    return _write((value << 1) ^ (value >> 63))


def _write(value: int) -> bytes:
    if value < 0x80:
        return SMALL[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
