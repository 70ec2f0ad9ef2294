"""Frames out of a byte stream, however it is cut."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.client.receiving import FrameReceiver, FrameTooLargeError
from protocol_lib.framing import FrameError

FRAMES = [b"", b"a", b"b" * 1000, b"c" * 65_531, b"d" * 65_532, b"e" * 65_533, b"f" * 300_000, b"g"]


def feed(receiver: FrameReceiver, data: bytes, step: int) -> list[bytes]:
    """Return the frames when the network delivers at most `step` bytes at a time."""
    found = []
    while data:
        room = receiver.buffer()
        assert len(room) > 0
        count = min(step, len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        found += [bytes(frame) for frame in receiver.received(count)]
    return found


def stream(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@pytest.mark.parametrize("step", [1000, 1001, 65_536, 1 << 20])
def test_frames_of_any_size_come_out_whole_and_in_order(step):
    assert feed(FrameReceiver(1 << 20), stream(FRAMES), step) == FRAMES


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 64))
def test_small_frames_however_cut(frames, step):
    assert feed(FrameReceiver(1000), stream(frames), step) == frames


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"HTTP", b"\x7f\xff\xff\xff"])
def test_a_length_no_frame_may_have_is_refused_at_once(length):
    with pytest.raises(FrameError):
        feed(FrameReceiver(1000), stream([b"before"]) + length, 100)


@pytest.mark.parametrize("size", [1001, 100_000])
@pytest.mark.parametrize("step", [1, 999, 50_000])
def test_the_start_of_a_frame_above_the_limit_is_received(size, step):
    data = random.Random(size).randbytes(size)
    with pytest.raises(FrameTooLargeError, match=f"a frame of {size} bytes") as refused:
        feed(FrameReceiver(1000), stream([b"before", data]), step)
    assert refused.value.start == data[: min(size, 4096)]


def test_frames_are_values_of_their_own():
    receiver = FrameReceiver(1000)
    room = receiver.buffer()
    room[:7] = stream([b"one"])
    (first,) = receiver.received(7)
    room = receiver.buffer()
    room[:7] = stream([b"two"])
    receiver.received(7)
    assert bytes(first) == b"one"
