"""A long request takes memory as its bytes arrive, and little when there is none."""

from __future__ import annotations

from gateway_svc.clients.long_request import FULL_READ_BYTES, LongRequest
from gateway_svc.memory_budget import MemoryBudget


def received(request: LongRequest, data: bytes) -> None:
    room = request.room()
    room[: len(data)] = data
    request.received += len(data)


def test_the_buffer_grows_with_what_arrives_and_ends_with_the_request() -> None:
    budget = MemoryBudget(1 << 20)
    request = LongRequest(100_000, memoryview(b"a" * 3000), budget, "owner")
    capacities = []
    while not request.whole:
        received(request, b"b" * len(request.room()))
        capacities.append(len(request.buffer))
    assert capacities == [12_000, 48_000, 100_000]
    assert request.buffer == b"a" * 3000 + b"b" * 97_000
    assert (budget.used, request.pause_due) == (100_000, False)
    request.drop()
    assert budget.used == 0


def test_a_request_that_has_just_begun_takes_eight_kilobytes_or_what_it_is_long() -> None:
    sizes = [len(LongRequest(size, memoryview(b"x"), MemoryBudget(1), "owner").buffer) for size in (100, 1 << 30)]
    assert sizes == [100, 8192]


def test_without_memory_there_is_room_for_a_little_until_reading_is_paused() -> None:
    budget = MemoryBudget(10_000)
    first, second = (LongRequest(1 << 20, memoryview(b"x" * 2048), budget, owner) for owner in ("first", "second"))
    for request in (first, second):
        received(request, bytes(len(request.room())))
    assert (len(first.room()), first.pause_due) == (3 * 8192, False)  # one at a time may take beyond the limit
    assert (len(second.room()), second.pause_due) == (FULL_READ_BYTES, True)
    first.drop()
    assert budget.used == 8192 + FULL_READ_BYTES
