"""The size that a zstd frame decompresses to, as far as it can be told without decompressing (RFC 8878, section 3.1.1).

    magic 28 b5 2f fd │ descriptor u8 │ window u8? │ dictionary id? │ content size? │ blocks │ checksum?
    block: 3 bytes, little-endian: bit 0 last, bits 1-2 type (0 raw, 1 repeated byte, 2 compressed), 21 bits size

A writer that knows the size declares it. One that streams (Java) does not, but fills each block but the last. So the
number of blocks tells the size closely. Nothing here is trusted: a decoder that finds another size says so.
"""

from typing import Final

from protocol_lib.varint import Buffer

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
#: Bytes of the content size and of the dictionary's id by their flags.
_SIZE_BYTES: Final = (0, 2, 4, 8)
_ID_BYTES: Final = (0, 1, 2, 4)
_BLOCK_BYTES_MAX: Final = 128 * 1024
_BLOCK_HEADER_BYTES: Final = 3
#: Blocks that are counted. A batch of many megabytes has fewer.
_BLOCKS_MAX: Final = 1000
_RAW, _REPEATED, _COMPRESSED = range(3)


def content_size(data: Buffer) -> int | None:
    """Return the size that the first frame declares, else the most that its blocks can hold.

    None if neither can be told.
    """
    if len(data) < len(_MAGIC) + 2 or bytes(data[: len(_MAGIC)]) != _MAGIC:
        return None
    descriptor = data[len(_MAGIC)]
    is_single, size_flag = bool(descriptor & 0x20), descriptor >> 6
    position = len(_MAGIC) + 1
    block_bytes = _BLOCK_BYTES_MAX
    if not is_single:
        base = 1 << 10 + (data[position] >> 3)
        block_bytes = min(block_bytes, base + base // 8 * (data[position] & 7))
        position += 1
    position += _ID_BYTES[descriptor & 3]
    size_bytes = 1 if is_single and not size_flag else _SIZE_BYTES[size_flag]
    if size_bytes:
        if position + size_bytes > len(data):
            return None
        declared = int.from_bytes(data[position : position + size_bytes], "little")
        return declared + 256 if size_bytes == 2 else declared
    return _of_blocks(data, position, block_bytes)


def _of_blocks(data: Buffer, position: int, block_bytes: int) -> int | None:
    """Return the most that the blocks from `position` on can hold."""
    total = 0
    for _ in range(_BLOCKS_MAX):
        if position + _BLOCK_HEADER_BYTES > len(data):
            return None
        header = int.from_bytes(data[position : position + _BLOCK_HEADER_BYTES], "little")
        kind, size = header >> 1 & 3, header >> 3
        if kind > _COMPRESSED:
            return None
        total += block_bytes if kind == _COMPRESSED else size
        if header & 1:
            return total
        position += _BLOCK_HEADER_BYTES + (1 if kind == _REPEATED else size)
    return None
