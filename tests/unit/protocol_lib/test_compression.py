"""Codecs: there and back, other writers' framings, bombs, broken data."""

import contextlib
import random
import struct
import tracemalloc
import zlib

import cramjam
import pytest
from protocol_lib.errors import DecodeError
from protocol_lib.records.compression import Codec, compress, decompress

CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
COMPRESSING = pytest.mark.parametrize("codec", list(Codec)[1:], ids=lambda codec: codec.name)
SAMPLES = [
    b"a",
    b"hello " * 50,
    random.Random(1).randbytes(5_000),
    bytes(200_000),
    random.Random(2).randbytes(70_000) * 3,
]


@CODECS
def test_there_and_back(codec):
    for data in SAMPLES:
        packed = compress(codec, data)
        assert bytes(decompress(codec, packed)) == data
        assert bytes(decompress(codec, memoryview(packed))) == data
    assert len(compress(codec, bytes(200_000))) < (200_001 if codec is Codec.NONE else 20_000)


@pytest.mark.timeout(20)
def test_a_frame_of_nothing_before_another() -> None:
    """The first one's size is that of the first buffer."""
    assert (
        bytes(decompress(Codec.ZSTD, bytes(cramjam.zstd.compress(b"")) + compress(Codec.ZSTD, b"records")))
        == b"records"
    )


def test_the_limit_does_not_count_for_bytes_that_become_no_more():
    assert decompress(Codec.NONE, b"records", 0) == b"records"


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_the_limit_is_exact(codec):
    packed = compress(codec, bytes(range(250)) * 400)
    assert len(decompress(codec, packed, 100_000)) == 100_000
    for limit in (99_999, 1_000, 0):
        with pytest.raises(DecodeError, match=f"more than {limit}"):
            decompress(codec, packed, limit)


def snappy_length(size: int) -> bytes:
    """Build a raw snappy block that claims a size."""
    out = bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size])


ZEROS = 64 << 20
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 1_000_005)
#: A megabyte or less of each, holding or claiming hundreds of times as much.
BOMBS = {
    "gzip": (Codec.GZIP, lambda: zlib.compress(bytes(ZEROS), wbits=31) * 15),
    "lz4": (Codec.LZ4, lambda: bytes(cramjam.lz4.compress(bytes(4 * ZEROS)))),
    "zstd": (Codec.ZSTD, lambda: bytes(cramjam.zstd.compress(bytes(ZEROS))) * 480),
    "snappy raw": (Codec.SNAPPY, lambda: snappy_length(2**32 - 1) + bytes(1_000_000)),
    "snappy xerial": (Codec.SNAPPY, lambda: XERIAL + snappy_length(2**31 - 1) + bytes(1_000_000)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_stopped_near_the_limit(name):
    codec, build = BOMBS[name]
    packed = build()
    assert len(packed) < 1_200_000
    for limit in (1_000_000, 16 << 20):
        tracemalloc.start()
        try:
            with pytest.raises(DecodeError, match=f"decompress to more than {limit} bytes"):
                decompress(codec, packed, limit)
            assert tracemalloc.get_traced_memory()[1] < 8_000_000 + 3 * limit
        finally:
            tracemalloc.stop()


def test_a_gzip_stream_has_few_members():
    member = zlib.compress(b"x", wbits=31)
    assert bytes(decompress(Codec.GZIP, member * 100)) == b"x" * 100
    with pytest.raises(DecodeError, match="more than 100 members"):
        decompress(Codec.GZIP, member * 101)


@COMPRESSING
def test_data_cut_short_is_refused_or_comes_out_short(codec):
    data = random.Random(3).randbytes(300) * 3
    packed = compress(codec, data)
    for end in range(len(packed)):
        try:
            got = bytes(decompress(codec, packed[:end]))
        except DecodeError:
            continue
        assert codec in (Codec.SNAPPY, Codec.LZ4)
        assert len(got) < len(data) or end >= len(packed) - 8
        assert data.startswith(got)


@COMPRESSING
def test_tampered_data_is_refused_or_bounded(codec):
    draw = random.Random(4)
    packed = compress(codec, draw.randbytes(500) + bytes(5_000))
    for _ in range(400):
        broken = bytearray(packed)
        for _ in range(draw.randrange(1, 4)):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        with contextlib.suppress(DecodeError):
            assert len(decompress(codec, bytes(broken), 6_000)) <= 6_000


def test_other_framings_are_read():
    data = b"abc" * 1000
    raw = bytes(cramjam.snappy.compress_raw(data))
    half = bytes(cramjam.snappy.compress_raw(data[:1500])), bytes(cramjam.snappy.compress_raw(data[1500:]))
    xerial = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in half)
    assert bytes(decompress(Codec.SNAPPY, raw)) == data
    assert bytes(decompress(Codec.SNAPPY, xerial)) == data
    members = zlib.compress(data[:10], wbits=31) + zlib.compress(data[10:], wbits=31)
    assert bytes(decompress(Codec.GZIP, members)) == data
    assert bytes(decompress(Codec.LZ4, bytes(cramjam.lz4.compress(data)))) == data


def test_lz4_is_written_in_independent_blocks():
    descriptor = compress(Codec.LZ4, SAMPLES[-1])[4]
    assert descriptor >> 6 == 1
    assert descriptor & 0x20


def test_snappy_is_written_in_java_s_blocks():
    packed = compress(Codec.SNAPPY, bytes(40_000))
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (length,) = struct.unpack_from(">i", packed, 16)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + length]) == 32_768


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_codecs_that_do_not_exist(codec):
    with pytest.raises(DecodeError, match=f"unknown compression codec {codec}"):
        decompress(codec, b"x")


def test_bytes_behind_a_stream_that_java_ignores():
    data = b"records" * 20
    block = bytes(cramjam.snappy.compress_raw(data))
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    xerial = header + struct.pack(">i", len(block)) + block
    for codec in (Codec.GZIP, Codec.LZ4):
        for behind in (b"\0", bytes(40), b"garbage" * 10):
            assert bytes(decompress(codec, compress(codec, data) + behind)) == data, (codec, behind)
    assert [decompress(Codec.SNAPPY, xerial + behind) for behind in (b"\0", b"\0\0\0", header)] == [data] * 3
    assert decompress(Codec.SNAPPY, xerial + xerial) == data + data
    with pytest.raises(DecodeError, match="snappy framing is cut short"):
        decompress(Codec.SNAPPY, header[:-1])


@pytest.mark.parametrize("blocks", ["00000000", "ffffffff", "7fffffff00", "00000002 00"])
def test_broken_xerial_framing(blocks):
    with pytest.raises(DecodeError, match="snappy"):
        decompress(Codec.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + bytes.fromhex(blocks))
