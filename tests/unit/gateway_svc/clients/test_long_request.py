"""A long request takes memory as its bytes arrive, and none when there is none."""

from __future__ import annotations

from gateway_svc.clients.long_request import STEP_BYTES, LongRequest
from gateway_svc.request_memory import RequestMemory


def fill(request: LongRequest) -> None:
    room = request.room()
    room[:] = b"b" * len(room)
    request.received += len(room)
    room.release()


def test_the_buffer_grows_with_what_arrives_and_ends_with_the_request() -> None:
    memory = RequestMemory(1 << 20)
    request = LongRequest(100_000, memoryview(b"a" * 3000), memory, memory.enter("10.0.0.1"), "owner")
    capacities = []
    while True:
        fill(request)
        capacities.append(request.memory_held)
        if request.whole:
            break
        assert request.is_full
        assert request.grow()
    assert capacities == [12_000, 48_000, 100_000]
    assert request.buffer == b"a" * 3000 + b"b" * 97_000
    assert memory.used == 100_000
    request.drop()
    assert memory.used == 0


def test_a_view_that_somebody_kept_does_not_hold_the_buffer_up() -> None:
    memory = RequestMemory(1 << 20)
    request = LongRequest(100_000, memoryview(b"a" * 3000), memory, memory.enter("10.0.0.1"), "owner")
    kept = request.room()
    kept[:] = b"b" * len(kept)
    request.received += len(kept)
    assert request.grow()
    fill(request)
    assert (kept[-1:], request.buffer) == (b"b", b"a" * 3000 + b"b" * 45_000)


def test_a_request_that_has_just_begun_takes_eight_kilobytes_or_what_it_is_long() -> None:
    memory = RequestMemory(1 << 20)
    sizes = [
        len(LongRequest(size, memoryview(b"x"), memory, memory.new_connections, "owner").room())
        for size in (100, 1 << 30)
    ]
    assert sizes == [99, 8191]


def test_little_more_than_has_arrived_is_taken_of_strangers_and_while_memory_is_scarce() -> None:
    memory = RequestMemory(8 << 20)
    stranger = LongRequest(1 << 30, memoryview(bytes(80_000)), memory, memory.new_connections, "stranger")
    assert stranger.memory_held == 160_000
    memory.take(memory.enter("10.0.0.2"), 4 << 20)
    known = LongRequest(1 << 30, memoryview(bytes(80_000)), memory, memory.enter("10.0.0.1"), "known")
    assert known.memory_held == 160_000
    while known.memory_held < 2 << 20:
        fill(known)
        assert known.grow()
    fill(known)
    assert known.wanted == STEP_BYTES


def test_without_memory_there_is_no_room_until_some_is_granted() -> None:
    memory = RequestMemory(16_000)  # 14,000 of long requests
    share = memory.enter("10.0.0.1")
    first, second = (LongRequest(1 << 20, memoryview(bytes(6000)), memory, share, name) for name in ("first", "second"))
    assert (first.memory_held, second.memory_held) == (24_000, 6000)  # one at a time may go beyond the limits
    assert second.is_full
    memory.wait_to_grow("second", share, second.wanted, second.granted)
    first.drop()
    assert (second.memory_held, memory.used, memory.is_waited_for) == (12_000, 12_000, False)
    assert len(second.room()) == 6000
    second.drop()
    assert memory.used == 0
