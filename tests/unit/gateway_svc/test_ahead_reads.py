"""Answers known ahead: used only for the offset they are for, while storage would say the same, and while it lives."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable

from broker_contract.data import (
    AheadRead,
    AheadRequest,
    AheadResponse,
    AppendRequest,
    AppendResponse,
    AppendRun,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    Slice,
)
from broker_contract.revisions import Revisions
from gateway_svc.ahead_reads import GOOD_S, READS, AheadReads

SIZE = 100_000
READ = ReadRequest(1, "c", 11, 500, 1, SIZE, 0, True, [ReadPartition("t", 0, 10, SIZE)])
SLICES = [[Slice("t-0/0.log", 5, number * SIZE, SIZE)] for number in range(20)]


class Storage:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.revisions: Revisions | None = Revisions()
        self.asked: list[AheadRequest] = []
        self.done: list[Callable[[AheadResponse], None]] = []

    def append(self, request: AppendRequest | AppendRun, done: Callable[[AppendResponse], None]) -> None:
        raise AssertionError("nobody appends")

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        raise AssertionError("nobody reads")

    def read_ahead(self, request: AheadRequest, done: Callable[[AheadResponse], None]) -> None:
        self.asked.append(dataclasses.replace(request, read=dataclasses.replace(request.read)))
        self.done.append(done)


def response(first: int, count: int) -> AheadResponse:
    reads = [AheadRead(offset, SLICES[offset]) for offset in range(first, first + count)]
    return AheadResponse(3, 0, 90, 80, 1, reads)


async def prepared(storage: Storage, count: int = 4) -> tuple[AheadReads, float]:
    """From offset 11 on; and when they were asked for."""
    ahead = AheadReads()
    now = time.monotonic()
    ahead.answered(dataclasses.replace(READ, partitions=[*READ.partitions]), SIZE, storage, asyncio.get_running_loop())
    assert storage.asked == []  # the answer leaves first
    await asyncio.sleep(0)
    assert [(each.count, each.read.partitions[0].fetch_offset) for each in storage.asked] == [(READS, 10)]
    storage.done[0](response(11, count))
    return ahead, now


async def test_what_is_asked_in_turn_is_known() -> None:
    ahead, now = await prepared(Storage())
    assert [ahead.take(offset, now) for offset in range(11, 16)] == [
        *[ReadResult(0, 90, 80, 1, None, SLICES[offset]) for offset in range(11, 15)],
        None,
    ]


async def test_readers_of_committed_records_are_told_that_nothing_was_aborted() -> None:
    storage, ahead = Storage(), AheadReads()
    loop = asyncio.get_running_loop()
    ahead.answered(dataclasses.replace(READ, isolation_level=1), SIZE, storage, loop)
    await asyncio.sleep(0)
    storage.done[0](response(11, 1))
    assert ahead.take(11, time.monotonic()) == ReadResult(0, 90, 80, 1, [], SLICES[11])


async def test_another_offset_is_asked_of_storage_and_ends_it() -> None:
    ahead, now = await prepared(Storage())
    assert ahead.take(12, now) is None
    assert ahead.take(11, now) is None


async def test_nothing_is_known_of_a_log_that_has_changed() -> None:
    storage = Storage()
    ahead, now = await prepared(storage)
    assert storage.revisions is not None
    storage.revisions.move(2)
    assert ahead.take(11, now) is not None
    storage.revisions.move(3)
    assert ahead.take(12, now) is None
    assert ahead.take(12, now) is None


async def test_nothing_is_known_of_a_storage_that_is_gone_or_another() -> None:
    for now_seen in (None, Revisions()):
        storage = Storage()
        ahead, now = await prepared(storage)
        storage.revisions = now_seen
        assert ahead.take(11, now) is None


async def test_nothing_is_known_for_long() -> None:
    ahead, now = await prepared(Storage())
    assert ahead.take(11, now + GOOD_S / 2) is not None
    assert ahead.take(12, now + GOOD_S + 1) is None


async def test_more_is_asked_for_behind_the_last_when_few_are_left() -> None:
    storage, loop = Storage(), asyncio.get_running_loop()
    ahead, now = await prepared(storage)
    for offset in (11, 12):
        assert ahead.take(offset, now) is not None
        read = dataclasses.replace(READ, partitions=[ReadPartition("t", 0, offset, SIZE)])
        ahead.answered(read, SIZE, storage, loop)
        await asyncio.sleep(0)
    assert [each.read.partitions[0].fetch_offset for each in storage.asked] == [10, 14]
    storage.done[1](response(15, 2))
    assert [ahead.take(offset, now) is not None for offset in range(13, 18)] == [True] * 4 + [False]


async def test_what_comes_for_a_reader_who_is_elsewhere_is_dropped() -> None:
    storage, loop = Storage(), asyncio.get_running_loop()
    ahead, now = await prepared(storage, 2)
    ahead.answered(dataclasses.replace(READ, partitions=[ReadPartition("t", 0, 11, SIZE)]), SIZE, storage, loop)
    await asyncio.sleep(0)
    assert ahead.take(11, now) is not None
    storage.done[1](response(13, 2))
    assert [ahead.take(offset, now) is not None for offset in (12, 13, 14)] == [True] * 3


async def test_who_reads_little_or_has_no_storage_to_see_is_left_alone() -> None:
    storage, loop, ahead = Storage(), asyncio.get_running_loop(), AheadReads()
    ahead.answered(READ, SIZE // 2 - 1, storage, loop)
    ahead.answered(READ, 60_000, storage, loop)
    storage.revisions = None
    ahead.answered(READ, SIZE, storage, loop)
    await asyncio.sleep(0)
    assert storage.asked == []


async def test_answers_in_vain_are_given_up_for_a_while() -> None:
    storage, loop, ahead = Storage(), asyncio.get_running_loop(), AheadReads()
    asked = []
    for _ in range(100):
        read = dataclasses.replace(READ, partitions=[*READ.partitions])
        ahead.answered(read, SIZE, storage, loop)
        await asyncio.sleep(0)
        asked.append(len(storage.asked))
        if len(storage.done) > (asked[-2] if len(asked) > 1 else 0):
            storage.done[-1](response(11, 4))
        assert ahead.take(5, 0) is None
    assert (asked[3], asked[4], asked[67], asked[68]) == (4, 4, 4, 5)
