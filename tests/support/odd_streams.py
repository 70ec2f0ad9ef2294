"""Streams of every codec that are broken, cut off, followed by more, or unusual and right, around good records.

for name, batch in stream_cases(now_ms).items(): ...
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from typing import Final

import cramjam
from protocol_lib.records.compression import Codec, compress
from support.odd_batches import COUNT, batch, record, records


def stream_cases(now_ms: int) -> dict[str, bytes]:
    """Return batches of good records in odd streams."""
    body = records()
    large = b"".join(record(n, value=random.Random(n).randbytes(60_000)) for n in range(COUNT))
    streams: dict[tuple[Codec, str], bytes | tuple[bytes, int]] = {}
    for codec, make in ((Codec.GZIP, _gzips), (Codec.SNAPPY, _snappies), (Codec.LZ4, _lz4s), (Codec.ZSTD, _zstds)):
        streams |= {(codec, name): stream for name, stream in make(body, large).items()}
    cases = {
        f"{codec.name.lower()} stream: {name}": batch(stream, COUNT, now_ms, codec=codec)
        for (codec, name), stream in streams.items()
        if isinstance(stream, bytes)
    }
    for number in (5, 6, 7):
        cases[f"codec {number}"] = batch(body, COUNT, now_ms, codec=number)
    return cases


def _gzips(body: bytes, large: bytes) -> dict[str, bytes]:
    good = gzip.compress(body, mtime=0)
    raw = zlib.compressobj(wbits=-15)
    deflated = raw.compress(body) + raw.flush()
    named = b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + good[10:]
    extra = b"\x1f\x8b\x08\x04" + bytes(6) + b"\x03\0abc" + good[10:]
    checked = b"\x1f\x8b\x08\x02" + bytes(6)
    checked += struct.pack("<H", zlib.crc32(checked) & 0xFFFF) + good[10:]
    half = len(body) // 2
    return {
        "zlib": zlib.compress(body),
        "deflate": deflated,
        "wrong CRC": good[:-8] + bytes((good[-8] ^ 1,)) + good[-7:],
        "wrong size": good[:-4] + bytes((good[-4] ^ 1,)) + good[-3:],
        "cut off by a byte": good[:-1],
        "cut off before the size": good[:-4],
        "cut off before the CRC": good[:-8],
        "cut off in the middle": good[: len(good) // 2],
        "cut off in the header": good[:6],
        "a large one, cut off": gzip.compress(large, mtime=0)[:100_000],
        "a byte behind": good + b"\0",
        "zeros behind": good + bytes(40),
        "garbage behind": good + b"garbage" * 10,
        "two members": gzip.compress(body[:half], mtime=0) + gzip.compress(body[half:], mtime=0),
        "an empty member behind": good + gzip.compress(b"", mtime=0),
        "an empty member before": gzip.compress(b"", mtime=0) + good,
        "half a member behind": good + good[: len(good) // 2],
        "a member of another record behind": good + gzip.compress(record(9), mtime=0),
        "stored": gzip.compress(body, 0, mtime=0),
        "a file name": named,
        "an extra field": extra,
        "a header's CRC": checked,
        "a wrong header's CRC": checked[:10] + bytes((checked[10] ^ 1,)) + checked[11:],
        "garbage": b"garbage" * 10,
        "nothing": b"",
        "large": gzip.compress(large, mtime=0),
    }


_XERIAL: Final = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def _xerial(*blocks: bytes, head: bytes = _XERIAL) -> bytes:
    return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _snappies(body: bytes, large: bytes) -> dict[str, bytes]:
    half = len(body) // 2
    raw = bytes(cramjam.snappy.compress_raw(body))
    one, two = (bytes(cramjam.snappy.compress_raw(part)) for part in (body[:half], body[half:]))
    return {
        "raw": raw,
        "raw, a byte behind": raw + b"\0",
        "raw, cut off": raw[:-3],
        "raw, length too large": bytes((raw[0] + 1,)) + raw[1:] if raw[0] & 0x7F < 0x7F else raw[:-1],
        "raw, length of 2 GiB": b"\xff\xff\xff\xff\x07" + raw[2:],
        "raw of nothing": b"\0",
        "two blocks": _xerial(one, two),
        "two streams": _xerial(one) + _xerial(two),
        "a header alone behind": _xerial(one, two) + _XERIAL,
        "versions 2 and 1": _xerial(one, two, head=_XERIAL[:8] + struct.pack(">ii", 2, 1)),
        "version 0": _xerial(one, two, head=_XERIAL[:8] + struct.pack(">ii", 0, 0)),
        "cut off in a block": _xerial(one, two)[:-3],
        "cut off in a length": _xerial(one, two) + b"\0\0",
        "a byte behind": _xerial(one, two) + b"\0",
        "four zeros behind": _xerial(one, two) + bytes(4),
        "garbage behind": _xerial(one, two) + b"garbage" * 10,
        "a block of length -1": _xerial(one) + b"\xff\xff\xff\xff" + two,
        "a block of 2 GiB": _xerial(one) + b"\x7f\xff\xff\xff" + two,
        "header cut off": _XERIAL[:12],
        "header alone": _XERIAL,
        "Google's framing": bytes(cramjam.snappy.compress(body)),
        "garbage": b"garbage" * 10,
        "nothing": b"",
        "large": compress(Codec.SNAPPY, large),
        "large and raw": bytes(cramjam.snappy.compress_raw(large)),
    }


def _lz4(body: bytes, **options: bool) -> bytes:
    writer = cramjam.lz4.Compressor(level=1, **{"content_checksum": False, "block_linked": False, **options})
    writer.compress(body)
    return bytes(writer.finish())


def xxh32(data: bytes) -> int:
    """Compute XXH32 with seed 0."""
    primes = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1

    def rotated(value: int, bits: int) -> int:
        value &= 0xFFFFFFFF
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    at = 0
    digest = primes[4]
    if len(data) >= 16:
        lanes = [primes[0] + primes[1], primes[1], 0, -primes[0]]
        while at + 16 <= len(data):
            for lane in range(4):
                (word,) = struct.unpack_from("<I", data, at + 4 * lane)
                lanes[lane] = rotated(lanes[lane] + word * primes[1], 13) * primes[0]
            at += 16
        digest = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    digest += len(data)
    while at + 4 <= len(data):
        digest = rotated(digest + struct.unpack_from("<I", data, at)[0] * primes[2], 17) * primes[3]
        at += 4
    for byte in data[at:]:
        digest = rotated(digest + byte * primes[4], 11) * primes[0]
    digest &= 0xFFFFFFFF
    digest = (digest ^ digest >> 15) * primes[1] & 0xFFFFFFFF
    digest = (digest ^ digest >> 13) * primes[2] & 0xFFFFFFFF
    return digest ^ digest >> 16


def lz4_frame(
    body: bytes,
    flags: int = 0x60,
    *,
    size: int | None = None,
    block_size_code: int = 4,
    header_check: int | None = None,
    content_check: int | None = None,
    block_check: int | None = None,
    end: bytes = bytes(4),
    step: int = 1 << 16,
) -> bytes:
    """Return an LZ4 frame of stored blocks, made by hand for what no library writes."""
    descriptor = bytes((flags, block_size_code << 4)) + (b"" if size is None else struct.pack("<Q", size))
    check = xxh32(descriptor) >> 8 & 0xFF if header_check is None else header_check
    pieces = [b"\x04\x22\x4d\x18", descriptor, bytes((check,))]
    for start in range(0, len(body), step):
        block = body[start : start + step]
        pieces += struct.pack("<I", len(block) | 1 << 31), block
        if flags & 0x10:
            pieces.append(struct.pack("<I", xxh32(block) if block_check is None else block_check))
    pieces.append(end)
    if flags & 0x04:
        pieces.append(struct.pack("<I", xxh32(body) if content_check is None else content_check))
    return b"".join(pieces)


def _lz4s(body: bytes, large: bytes) -> dict[str, bytes]:
    good = _lz4(body)
    half = len(body) // 2
    return {
        "linked blocks": _lz4(large, block_linked=True),
        "one linked block": _lz4(body, block_linked=True),
        "linked blocks, stored": lz4_frame(body, 0x40, step=100),
        "content checksum": _lz4(body, content_checksum=True),
        "wrong content checksum": lz4_frame(body, 0x64, content_check=1),
        "content checksum cut off": lz4_frame(body, 0x64)[:-4],
        "block checksum": lz4_frame(body, 0x70),
        "wrong block checksum": lz4_frame(body, 0x70, block_check=1),
        "content size": lz4_frame(body, 0x68, size=len(body)),
        "wrong content size": lz4_frame(body, 0x68, size=len(body) + 1),
        "content size cut off": lz4_frame(body, 0x68, size=len(body))[:10],
        "wrong header checksum": lz4_frame(body, header_check=0x11),
        "dictionary": lz4_frame(body, 0x61),
        "reserved bit": lz4_frame(body, 0x62),
        "version 0": lz4_frame(body, 0x20),
        "version 2": lz4_frame(body, 0xA0),
        "blocks of size code 3": lz4_frame(body, block_size_code=3),
        "blocks of size code 7": lz4_frame(body, block_size_code=7),
        "reserved bit of the second byte": lz4_frame(body, block_size_code=12),
        "a block larger than its kind": lz4_frame(large, step=1 << 17),
        "small blocks": lz4_frame(body, step=10),
        "no end mark": lz4_frame(body, end=b""),
        "half an end mark": lz4_frame(body, end=b"\0\0"),
        "cut off in a block": good[: len(good) // 2],
        "cut off in the header": good[:5],
        "magic alone": good[:4],
        "a byte behind": good + b"\0",
        "zeros behind": good + bytes(40),
        "garbage behind": good + b"garbage" * 10,
        "two frames": _lz4(body[:half]) + _lz4(body[half:]),
        "an empty frame behind": good + _lz4(b""),
        "an empty frame before": _lz4(b"") + good,
        "a skippable frame before": b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc" + good,
        "a legacy frame": b"\x02\x21\x4c\x18" + good[7:-4],
        "a bare block": bytes(cramjam.lz4.compress_block(body, store_size=False)),
        "a block with its size": bytes(cramjam.lz4.compress_block(body)),
        "garbage": b"garbage" * 10,
        "garbage in a block": good[:11] + b"\xff" * (len(good) - 15) + good[-4:],
        "nothing": b"",
        "large": _lz4(large),
    }


def _zstds(body: bytes, large: bytes) -> dict[str, bytes]:
    good = bytes(cramjam.zstd.compress(body))
    half = len(body) // 2
    writer = cramjam.zstd.Compressor()
    writer.compress(body)
    streamed = bytes(writer.finish())
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    # a frame header (a content checksum, one segment, no size of more than a byte) and a raw block that is the last one
    raw = body[:200]
    checked = b"\x28\xb5\x2f\xfd\x24" + bytes((len(raw),)) + (len(raw) << 3 | 1).to_bytes(3, "little") + raw
    return {
        "streamed": streamed,
        "two frames": bytes(cramjam.zstd.compress(body[:half])) + bytes(cramjam.zstd.compress(body[half:])),
        "an empty frame behind": good + bytes(cramjam.zstd.compress(b"")),
        "an empty frame before": bytes(cramjam.zstd.compress(b"")) + good,
        "a skippable frame before": skippable + good,
        "a skippable frame behind": good + skippable,
        "a skippable frame alone": skippable,
        "wrong checksum": checked + bytes(4),
        "a byte behind": good + b"\0",
        "zeros behind": good + bytes(40),
        "garbage behind": good + b"garbage" * 10,
        "half a frame behind": good + good[: len(good) // 2],
        "a frame of another record behind": good + bytes(cramjam.zstd.compress(record(9))),
        "cut off by a byte": good[:-1],
        "cut off in the middle": good[: len(good) // 2],
        "cut off in the header": good[:5],
        "a large one, cut off": bytes(cramjam.zstd.compress(large))[:100_000],
        "garbage in a block": good[:12] + b"\xff" * (len(good) - 12),
        "garbage": b"garbage" * 10,
        "nothing": b"",
        "large": bytes(cramjam.zstd.compress(large)),
    }
