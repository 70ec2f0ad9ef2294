"""Reads by value: room in the budget, reads that are given up, and reads that find no room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker_contract.data import ReadPartition, ReadRequest, ReadResponse, ReadResult, TopicIdPartition
from gateway_svc.fetching.value_reads import ASKED_BYTES_MAX, READ_BYTES_MAX, READ_BYTES_MIN, ValueReads
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.storage.protocols import Records

MIB = 1 << 20
PLACE = ReadPartition(TopicIdPartition("t", 0), 0, 1 << 30)


def request(size: int) -> ReadRequest:
    return ReadRequest(1, "c", 500, size, size, 0, False, [PLACE])


class StoragePorts:
    """A storage that keeps the reads until `answer`."""

    def __init__(self) -> None:
        self.asked: list[ReadRequest] = []
        self.given_up = 0
        self._done: list[Callable[[ReadResponse], None]] = []

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        self.asked.append(request)
        self._done.append(done)

        def give_up() -> None:
            self.given_up += 1
            self._done.remove(done)

        return give_up

    def answer(self, size: int) -> None:
        self._done.pop(0)(ReadResponse([ReadResult(0, records=bytes(size))]))


class Rig:
    def __init__(self, limit: int) -> None:
        self.storage = StoragePorts()
        self.budget = MemoryBudget(limit)
        self.reads = ValueReads(cast(Records, self.storage), self.budget, asyncio.get_running_loop())
        self.answers: list[int | None] = []
        self.releases: list[Callable[[], None]] = []

    def read(self, size: int) -> Callable[[], None]:
        return self.reads.read(request(size), self.done)

    def done(self, response: ReadResponse | None, release: Callable[[], None]) -> None:
        self.answers.append(None if response is None else len(response.partitions[0].records))
        self.releases.append(release)

    def check(self, held: int) -> None:
        assert (self.reads.held, self.budget.used) == (held, held)


async def test_a_read_is_counted_from_before_the_question_until_it_is_released() -> None:
    rig = Rig(256 * MIB)
    rig.read(5 * MIB)
    (asked,) = rig.storage.asked
    assert (asked.max_wait_ms, asked.min_bytes, asked.max_bytes, asked.by_reference) == (0, 0, 5 * MIB, False)
    rig.check(5 * MIB)
    rig.storage.answer(3 * MIB)
    assert rig.answers == [3 * MIB]
    rig.check(3 * MIB)
    rig.releases[0]()
    rig.check(0)


async def test_storage_is_asked_for_a_bounded_number_of_bytes() -> None:
    rig = Rig(1 << 30)
    for _ in range(10):
        rig.read(60 * MIB)
    in_flight = ASKED_BYTES_MAX // READ_BYTES_MAX
    assert [each.max_bytes for each in rig.storage.asked] == [READ_BYTES_MAX] * in_flight
    rig.storage.answer(READ_BYTES_MAX)
    assert len(rig.storage.asked) == in_flight + 1
    rig.check((in_flight + 1) * READ_BYTES_MAX)


async def test_reads_are_smaller_the_fuller_memory_is_and_wait_while_it_is_full() -> None:
    rig = Rig(32 * MIB)
    rig.read(60 * MIB)
    assert rig.storage.asked[0].max_bytes == 4 * MIB
    rig.budget.take(28 * MIB - READ_BYTES_MIN + 1)
    rig.read(60 * MIB)
    assert len(rig.storage.asked) == 1
    rig.budget.give(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [each.max_bytes for each in rig.storage.asked] == [4 * MIB, READ_BYTES_MIN]
    rig.budget.give(28 * MIB - READ_BYTES_MIN)
    for size in (5 * MIB, 0):  # one batch that is larger than was asked for
        rig.storage.answer(size)
    rig.check(5 * MIB)


async def test_a_small_memory_for_answers_serves_one_read_at_a_time() -> None:
    rig = Rig(MIB)
    rig.read(60 * MIB)
    rig.read(60 * MIB)
    assert [each.max_bytes for each in rig.storage.asked] == [MIB]


async def test_a_read_without_room_is_answered_without_records() -> None:
    rig = Rig(8 * MIB)
    rig.budget.take(8 * MIB)
    rig.read(MIB)
    for _ in range(3000):
        if rig.answers:
            break
        await asyncio.sleep(0.01)
    assert (rig.answers, rig.storage.asked) == ([None], [])
    rig.budget.give(8 * MIB)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rig.storage.asked == []
    rig.check(0)


async def test_reads_that_are_given_up() -> None:
    rig = Rig(256 * MIB)
    gone, kept = rig.read(8 * MIB), rig.read(8 * MIB)
    rig.budget.take(256 * MIB)
    waits = rig.read(8 * MIB)
    waits()
    gone()
    gone()
    rig.budget.give(256 * MIB)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (rig.storage.given_up, len(rig.storage.asked)) == (1, 2)
    rig.check(8 * MIB)
    rig.storage.answer(100)
    kept()
    rig.check(100)
    rig.releases[0]()
    assert rig.answers == [100]
    rig.check(0)
