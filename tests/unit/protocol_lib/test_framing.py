"""Frames: whole, byte by byte, many at once, and lengths no frame can have."""

import pytest
from protocol_lib.framing import FrameError, FrameSplitter, frame_length

FRAMES = [b"", b"a", b"hello", bytes(300)]
STREAM = b"".join(frame_length([frame]) + frame for frame in FRAMES)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100, len(STREAM)])
def test_frames_come_out_whole_however_the_bytes_arrive(step):
    splitter = FrameSplitter()
    got = [frame for start in range(0, len(STREAM), step) for frame in splitter.feed(STREAM[start : start + step])]
    assert got == FRAMES
    assert splitter.buffered == 0


def test_what_is_not_whole_is_kept():
    splitter = FrameSplitter()
    assert splitter.feed(bytes.fromhex("00000003 61")) == []
    assert splitter.buffered == 5
    assert splitter.feed(memoryview(b"bc")) == [b"abc"]


def test_the_length_counts_every_part():
    assert frame_length([b"ab", memoryview(b"c"), range(253)]) == bytes.fromhex("00000100")


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 2**31 - 1])
def test_a_length_no_frame_can_have_is_refused_at_once(length):
    splitter = FrameSplitter(size_max=100)
    assert splitter.feed(frame_length([bytes(100)]) + bytes(100)) == [bytes(100)]
    with pytest.raises(FrameError, match=f"a frame of {length} bytes"):
        splitter.feed(length.to_bytes(4, "big", signed=True))
