"""Bytes become the same frames, in order, however they arrive and whenever frames may start."""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Iterator
from typing import cast

import pytest
from gateway_svc.clients.connections import SHARED_BUFFER_BYTES
from gateway_svc.clients.frame_gate import FrameGate
from gateway_svc.clients.frame_reader import (
    NEW_CONNECTION_READ_BYTES,
    SCARCE_READ_BYTES,
    SMALL_FRAME_BYTES,
    FrameReader,
)
from gateway_svc.clients.read_control import Pause, ReadControl
from gateway_svc.clients.resources import Requests
from gateway_svc.errors import RequestRefused
from gateway_svc.request_memory import RequestMemory
from hypothesis import given
from hypothesis import strategies as st

LIMIT = 100_000


class Transport:
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Receiver:
    """A gate and requests that start `admitted` frames and holds the others, with its event loop."""

    is_login = False

    def __init__(self, budget: int = 1 << 20) -> None:
        self.memory = RequestMemory(budget)
        self.share = self.memory.enter("10.0.0.1")
        self.reading = ReadControl(Transport())
        self.loop = asyncio.new_event_loop()
        shared = memoryview(bytearray(SHARED_BUFFER_BYTES))
        gate = cast(FrameGate, self)
        self.reader = FrameReader(gate, self.reading, shared, self.memory, self.share, self.loop)
        self.reader.serve(cast(Requests, self), LIMIT)
        self.started: list[bytes] = []
        #: The first bytes and the size of each long frame that began to arrive.
        self.checked: list[tuple[bytes, int]] = []
        self.admitted = -1

    def serve(self, *, is_login: bool) -> None:
        assert not is_login

    def may_start(self, requests: object, store: bytes | bytearray, begin: int, size: int) -> bool:
        assert requests is self
        if self.admitted:
            return True
        self.reading.pause(Pause.ORDER)
        return False

    @property
    def bytes_in_service(self) -> int:
        return 0

    def check_long(self, start: bytes | memoryview, size: int) -> None:
        assert len(start) == 8
        self.checked.append((bytes(start), size))

    def start_requests(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:
        assert frame_end <= end
        self.admitted -= 1
        self.started.append(bytes(store[begin:frame_end]))
        if self.started[-1].startswith(b"the last"):
            self.reading.close()
        return frame_end

    def receive(self, data: bytes, now: float = 0.0) -> None:
        """Receive all of it, in pieces for which there is room."""
        while data:
            room = self.reader.room()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            del room  # a buffer in use cannot grow
            self.reader.received(count, now)
            data = data[count:]

    def go_on(self, admitted: int) -> bool:
        self.admitted = admitted
        started = self.reader.start_next_frames(0.0)
        if not self.reader.holds:
            self.reading.resume(Pause.ORDER)
        return started


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.reader.close()
    made.loop.close()
    assert made.memory.used == 0


FRAMES = st.lists(
    st.builds(
        lambda size, number: (b"%08d" % number).ljust(size, b"."),
        st.integers(8, 60) | st.sampled_from([SMALL_FRAME_BYTES, SMALL_FRAME_BYTES + 1, LIMIT]),
        st.integers(0, 99),
    ),
    max_size=12,
)


@given(FRAMES, st.lists(st.integers(1, 40_000)), st.lists(st.integers(0, 3)))
def test_frames_arrive_in_order_however_they_are_cut_and_held(
    frames: list[bytes], cuts: list[int], admitted: list[int]
) -> None:
    receiver = Receiver()
    data = framed(*frames)
    cuts.reverse()
    admitted.reverse()
    position = 0
    while position < len(data):
        if Pause.ORDER in receiver.reading.reasons:
            receiver.go_on(admitted.pop() if admitted else -1)
            continue
        count = min(cuts.pop() if cuts else 1 << 20, len(receiver.reader.room()))
        receiver.admitted = admitted.pop() if admitted else -1
        receiver.receive(data[position : position + count][:count])
        position += min(count, len(data) - position)
    receiver.go_on(-1)
    assert receiver.started == frames
    assert (receiver.reader.holds, receiver.reader.is_incomplete, receiver.memory.used) == (False, False, 0)
    receiver.loop.close()


def test_a_frame_in_parts_is_timed_from_its_first_byte(receiver: Receiver) -> None:
    data = framed(b"one frame", b"a second")
    for now, byte in enumerate(data):
        receiver.receive(bytes([byte]), float(now))
        assert receiver.reader.started_at == {12: None, 24: None}.get(now, 13.0 if now > 12 else 0.0)
        assert receiver.reader.is_incomplete == (now not in (12, 24))
    assert receiver.started == [b"one frame", b"a second"]


def test_held_frames_start_as_far_as_they_may(receiver: Receiver) -> None:
    receiver.admitted = 1
    receiver.receive(framed(b"frame 01", b"frame 02", b"frame 03") + b"\0\0")
    assert (receiver.started, receiver.reader.holds) == ([b"frame 01"], True)
    assert receiver.reading.reasons == {Pause.ORDER}
    assert (receiver.reader.is_incomplete, receiver.reader.started_at) == (False, None)
    assert not receiver.go_on(0)
    assert receiver.go_on(1)
    assert (receiver.started, receiver.reader.holds) == ([b"frame 01", b"frame 02"], True)
    assert receiver.go_on(1)
    assert (receiver.started[2:], receiver.reader.holds) == ([b"frame 03"], False)
    assert (receiver.reader.is_incomplete, receiver.reading.reasons) == (True, set())


def test_a_long_frame_is_held_as_a_short_one_is(receiver: Receiver) -> None:
    frame = bytes(LIMIT)
    receiver.admitted = 0
    receiver.receive(framed(frame))
    assert (receiver.started, receiver.reader.holds, receiver.reader.is_incomplete) == ([], True, False)
    assert not receiver.go_on(0)
    assert receiver.go_on(1)
    assert (receiver.started, receiver.reader.holds) == ([frame], False)


@pytest.mark.parametrize("size", [-1, 0, 7, LIMIT + 1, 2**31 - 1])
def test_a_length_that_no_frame_has_is_refused(receiver: Receiver, size: int) -> None:
    with pytest.raises(RequestRefused, match="frame_length"):
        receiver.receive(framed(b"a frame!") + struct.pack(">i", size))
    assert receiver.started == [b"a frame!"]


def test_nothing_starts_on_a_connection_that_one_of_its_requests_has_closed(receiver: Receiver) -> None:
    receiver.receive(framed(b"the last", b"too late"))
    assert receiver.started == [b"the last"]
    assert not receiver.reader.is_incomplete


def test_a_read_that_fills_the_buffer_gives_others_their_turn(receiver: Receiver) -> None:
    receiver.receive(framed(b"12345678"))
    receiver.receive(framed(*[b"12345678"] * (SHARED_BUFFER_BYTES // 12 + 1))[:SHARED_BUFFER_BYTES])
    assert receiver.reading.reasons == {Pause.TURN}
    receiver.loop.call_soon(receiver.loop.stop)
    receiver.loop.run_forever()
    assert receiver.reading.reasons == set()
    receiver.receive(b"8" * (12 - SHARED_BUFFER_BYTES % 12))
    assert Counter(receiver.started).total() == SHARED_BUFFER_BYTES // 12 + 2


def test_a_stranger_and_a_reader_without_memory_are_read_in_short_pieces(receiver: Receiver) -> None:
    assert len(receiver.reader.room()) == NEW_CONNECTION_READ_BYTES
    receiver.receive(framed(b"a frame!"))
    assert len(receiver.reader.room()) == SHARED_BUFFER_BYTES
    another = receiver.memory.enter("10.0.0.2")
    receiver.memory.take(another, 1 << 19)
    assert len(receiver.reader.room()) == SCARCE_READ_BYTES
    receiver.memory.give(another, 1 << 19)
    assert len(receiver.reader.room()) == SHARED_BUFFER_BYTES


def test_a_frame_in_part_is_counted_to_the_byte(receiver: Receiver) -> None:
    receiver.receive(framed(b"a frame!", b"12345678")[:-3])
    assert (receiver.memory.used, receiver.reader.memory_held) == (9, 9)
    receiver.admitted = 0
    receiver.receive(b"678" + framed(b"held", b"and more"))
    assert (receiver.memory.used, receiver.reader.memory_held) == (32, 32)


def test_a_long_frame_of_a_stranger_counts_with_those_of_others(receiver: Receiver) -> None:
    data = framed(bytes(8) + bytes(LIMIT - 8))
    receiver.receive(data[:6000])
    assert receiver.checked == [(bytes(8), LIMIT)]
    assert (receiver.memory.new_connections.held, receiver.share.held) == (0, 0)  # not long yet
    receiver.receive(data[6000:30_000])
    assert receiver.memory.new_connections.held == receiver.memory.used == 47_968
    receiver.receive(data[30_000:] + data[:30_000])
    assert receiver.started == [data[4:]]
    assert (receiver.memory.new_connections.held, receiver.share.held) == (0, receiver.memory.used)


def test_a_long_frame_without_memory_waits_until_it_is_granted_some(receiver: Receiver) -> None:
    """The clock of the frame stands still while it waits."""
    receiver.receive(framed(b"a frame!"))
    other = receiver.memory.enter("10.0.0.2")
    receiver.memory.take(other, 1 << 20)
    assert receiver.memory.try_grow("beyond", other, 0, SMALL_FRAME_BYTES + 1)  # one at a time
    data = framed(bytes(LIMIT))
    receiver.receive(data[:3000], now=5.0)
    assert (receiver.reading.reasons, receiver.reader.is_read) == ({Pause.MEMORY}, False)
    assert (receiver.reader.started_at, receiver.reader.stalled_s(1000.0)) == (5.0, 0.0)
    before = receiver.loop.time()
    receiver.reader._paused_at = before - 100.0
    receiver.memory.give(other, 1 << 20)
    assert (receiver.reading.reasons, receiver.reader.is_read) == (set(), True)
    assert receiver.reader.started_at is not None
    assert 105.0 <= receiver.reader.started_at < 106.0 + receiver.loop.time() - before
    receiver.receive(data[3000:])
    assert receiver.started[1:] == [data[4:]]
    receiver.memory.end("beyond", other, SMALL_FRAME_BYTES + 1)


def test_progress_is_sixteen_kilobytes_a_second(receiver: Receiver) -> None:
    data = framed(bytes(LIMIT))
    receiver.receive(data[:8000], now=10.0)
    assert [receiver.reader.stalled_s(now) for now in (10.0, 11.0, 13.0)] == [0.0, 0.0, 2.0]
    receiver.receive(data[8000:8001], now=13.0)  # a byte is no progress
    assert round(receiver.reader.stalled_s(13.0), 3) == 2.0
    receiver.receive(data[8001:50_000], now=14.0)  # 2.5 s of progress, three seconds late
    assert round(receiver.reader.stalled_s(14.0), 2) == 0.44
    receiver.receive(data[50_000:90_000], now=14.0)  # nobody is ahead by more than a second
    assert receiver.reader.stalled_s(16.5) == 1.5


def test_reading_goes_on_after_a_wait_for_small_ones() -> None:
    receiver = Receiver(budget=100_000)
    other = receiver.memory.enter("10.0.0.2")
    for _ in range(10):
        receiver.memory.take(other, 10_000)
    receiver.receive(framed(b"a frame!"))
    assert receiver.reading.reasons == set()  # nothing of it is held
    receiver.receive(framed(b"another!")[:5])
    assert receiver.reading.reasons == {Pause.MEMORY}
    receiver.reading.pause(Pause.ORDER)
    receiver.memory.give(other, 10_000)
    assert receiver.reading.reasons == {Pause.ORDER}
    receiver.reader.close()
    assert receiver.memory.used == 90_000
    receiver.loop.close()
