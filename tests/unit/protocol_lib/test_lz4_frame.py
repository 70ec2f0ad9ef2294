"""The two header checksums of LZ4 frames."""

import cramjam
import pytest
from protocol_lib.errors import DecodeError
from protocol_lib.records.lz4_frame import with_old_checksum, with_right_checksum, xxh32_short

#: Frame headers as the lz4 command writes the first, Kafka 3.9.1 both.
RIGHT = bytes.fromhex("04224d18 6040 82")
OLD = bytes.fromhex("04224d18 6040 1a")


@pytest.mark.parametrize(
    ("data", "digest"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"Nobody inspects", 0x9759CD1A)]
)
def test_the_hash_has_the_published_values(data, digest):
    assert xxh32_short(data) == digest


def test_one_checksum_becomes_the_other():
    assert with_old_checksum(RIGHT + b"blocks") == OLD + b"blocks"
    assert with_right_checksum(OLD + b"blocks") == RIGHT + b"blocks"
    assert with_right_checksum(memoryview(RIGHT)) == RIGHT


@pytest.mark.parametrize("flags", [0x60, 0x68])
def test_frames_that_say_their_size(flags):
    size = (5).to_bytes(8, "little") if flags & 8 else b""
    body = (5 | 1 << 31).to_bytes(4, "little") + b"hello" + bytes(4)
    frame = with_right_checksum(b"\x04\x22\x4d\x18" + bytes((flags, 0x40)) + size + b"\0" + body)
    assert bytes(cramjam.lz4.decompress(frame)) == b"hello"
    broken = with_old_checksum(frame)
    assert broken != frame
    assert with_right_checksum(broken) == frame


@pytest.mark.parametrize("frame", [b"", RIGHT[:6], b"\0" + RIGHT, bytes.fromhex("04224d18 6840 00000000000000 82")])
def test_what_is_no_frame(frame):
    with pytest.raises(DecodeError, match="LZ4 frame"):
        with_right_checksum(frame)
