"""The size that a zstd frame claims, and decompression by it."""

import os

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError
from protocol_lib.records import compression
from protocol_lib.records.compression import Codec, DecompressedTooLarge, decompress
from protocol_lib.records.zstd_frame import content_size


def streamed(data: bytes) -> bytes:
    """Compress as Java does: the writer does not know the size."""
    writer = cramjam.zstd.Compressor()
    for begin in range(0, len(data), 1000):
        writer.compress(data[begin : begin + 1000])
    return bytes(writer.finish())


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_535, 65_791, 65_792, 1_000_000])
def test_a_declared_size_is_exact(size: int) -> None:
    assert content_size(bytes(cramjam.zstd.compress(b"x" * size))) == size


@pytest.mark.parametrize(("size", "most"), [(10, 128 << 10), (131_072, 256 << 10), (1_000_000, 1 << 20)])
def test_blocks_bound_a_size_that_is_not_declared(size: int, most: int) -> None:
    found = content_size(streamed(os.urandom(size // 2) + b"x" * (size - size // 2)))
    assert found is not None
    assert size <= found <= most


@pytest.mark.parametrize("compress", [lambda data: bytes(cramjam.zstd.compress(data)), streamed])
def test_usual_records_are_decompressed_at_once(compress, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(os.urandom(20) + b"some words of a record" for _ in range(20_000))
    made: list[int] = []
    original = compression._into_growing_buffer

    def counted(name, decompress_into, *rest):
        return original(name, lambda given, room: made.append(len(room)) or decompress_into(given, room), *rest)

    monkeypatch.setattr(compression, "_into_growing_buffer", counted)
    block = compress(data)
    assert bytes(decompress(Codec.ZSTD, block)) == data
    assert made == [content_size(block)]


@given(st.binary(max_size=2000), st.integers(0, 3), st.data())
@settings(max_examples=200, deadline=None)
def test_no_claim_decides_what_comes_out(data: bytes, frames: int, draw: st.DataObject) -> None:
    """Whatever is claimed, and by whichever bytes: the result is the decoder's, or a refusal."""
    block = bytearray(b"".join(bytes(cramjam.zstd.compress(data)) for _ in range(frames)) or data)
    for _ in range(draw.draw(st.integers(0, 2))):
        if block:
            block[draw.draw(st.integers(0, min(len(block) - 1, 20)))] = draw.draw(st.integers(0, 255))
    content_size(bytes(block))
    try:
        expected = bytes(cramjam.zstd.decompress(bytes(block)))
    except cramjam.DecompressionError:
        with pytest.raises(DecodeError):
            decompress(Codec.ZSTD, bytes(block))
    else:
        assert bytes(decompress(Codec.ZSTD, bytes(block))) == expected


def test_an_unusual_claim_takes_no_memory_at_once() -> None:
    bomb = bytes(cramjam.zstd.compress(b"\0" * (200 << 20)))
    with pytest.raises(DecompressedTooLarge, match="more than 1048576 bytes"):
        decompress(Codec.ZSTD, bomb, 1 << 20)
    for cut in range(len(bomb[:40])):
        content_size(bomb[:cut])
    many_blocks = b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\x00\x00x" * 100_000
    assert content_size(many_blocks) is None
