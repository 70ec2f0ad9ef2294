"""Batches made to cost much: each is read off the event loop or gives it up afterwards, and a page has an end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from admin_api.kafka_clients import KafkaClient
from admin_api.records import browsing, downloading, limits, tailing
from admin_api.records.browsing import Browse, Range
from admin_api.records.conditions import Filter
from admin_api.records.cursors import Left
from admin_api.records.decoding import DECOMPRESSED_BYTES_MAX, slices_of
from admin_api.records.limits import Work
from admin_api.records.rendering import Formats
from protocol_lib.client import FetchedBatch
from protocol_lib.client.isolation import whole_batches
from protocol_lib.errors import DecodeError
from protocol_lib.records.batch import HEADER_SIZE, build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record

from tests.unit.admin_api.scripted_log import ScriptedLog, client_of

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

BATCHES = 100


def _batch(offset: int, value: bytes = b"v", codec: Codec = Codec.NONE) -> bytes:
    return build_batch([Record(offset, 1000 + offset, None, value)], base_offset=offset, codec=codec)


def _damaged(offset: int) -> bytes:
    return _batch(offset)[:HEADER_SIZE] + b"\xff" * 9


def _browse(client: KafkaClient, count: int, work: Work, *, newest_first: bool = False) -> Browse:
    return Browse(
        *(client, "t", [Range(0, 0, count)]),
        newest_first=newest_first,
        limit=500,
        wanted=Filter(),
        formats=Formats(),
        read_committed=False,
        work=work,
    )


@pytest.mark.parametrize("codec", [each for each in Codec if each])
@pytest.mark.parametrize("size", [60_000, 120_000])
async def test_small_batches_that_become_large_are_decompressed_in_a_thread(
    codec: Codec, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (batch,) = whole_batches(memoryview(_batch(0, b"z" * size, codec)))
    assert len(batch.data) < 10_000
    read, seen = FetchedBatch.slices, list[tuple[bool, int]]()

    def slices(self: FetchedBatch, *, limit: int, wanted: bytes, skip: int) -> Iterator[tuple[int, list[Record]]]:
        seen.append((threading.current_thread() is threading.main_thread(), limit))
        return read(self, limit=limit, wanted=wanted, skip=skip)

    monkeypatch.setattr(FetchedBatch, "slices", slices)
    found = [record for _, records in await slices_of(batch) for record in records]
    assert [len(record.value or b"") for record in found] == [size]
    assert seen == [(True, 65_536), (False, DECOMPRESSED_BYTES_MAX)][: 1 if size < 65_536 else 2]


@contextlib.asynccontextmanager
async def _turns() -> AsyncIterator[list[int]]:
    """Count the turns of the event loop."""
    turns = [0]

    async def count() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield turns
    finally:
        counting.cancel()


async def _end(_partition: int) -> int:
    return BATCHES


@pytest.mark.parametrize("reader", [browsing, downloading, tailing])
async def test_each_batch_that_cannot_be_read_ends_a_long_turn(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_STEP_S", 0.0)
    log = ScriptedLog({0: [_batch(offset) for offset in range(BATCHES)]})
    seen: list[int] = []
    async with client_of(log) as client, _turns() as turns:

        async def refused(_batch: FetchedBatch, _wanted: bytes = b"", _skip: int = 0) -> NoReturn:
            seen.append(turns[0])
            raise DecodeError("a bomb")

        monkeypatch.setattr(reader, "slices_of", refused)
        if reader is browsing:
            await _browse(client, BATCHES, Work()).run()
        elif reader is downloading:
            rest = Filter(), Formats(whole=True)
            async for _ in downloading.lines(client, "t", [Left(0, 0, BATCHES)], *rest, read_committed=False):
                pass
        else:
            tail = tailing.Tail(client, "t", {0: 0}, _end, None, Filter(), Formats(), read_committed=False)
            events = tail.events()
            for _ in range(2):
                await anext(events)
    assert (len(seen), len(set(seen))) == (BATCHES, BATCHES)


async def test_readers_share_the_turns_of_long_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of twenty readers goes on in a turn of the event loop when the time of all is over."""
    monkeypatch.setattr(limits, "_STEP_S", 0.0)
    went_on: list[int] = []
    async with _turns() as turns:

        async def read() -> None:
            await Work().pause()
            went_on.append(turns[0])

        await asyncio.gather(*(read() for _ in range(20)))
    assert len(set(went_on)) >= 19  # the first one found no other, and the second one came in its turn


async def test_a_large_record_of_a_download_is_made_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_STEP_S", 0.0)
    log = ScriptedLog({0: [_batch(0, bytes(2_000_000))]})
    seen: set[int] = set()
    text = bytearray()
    async with client_of(log) as client, _turns() as turns:
        rest = Filter(), Formats(whole=True)
        async for piece in downloading.lines(client, "t", [Left(0, 0, 1)], *rest, read_committed=False):
            seen.add(turns[0])
            text += piece
    assert len(seen) >= 40  # of 41 parts
    assert json.loads(text)["value"] == base64.b64encode(bytes(2_000_000)).decode()


@pytest.mark.parametrize(("newest_first", "rest"), [(True, Range(0, 0, 68)), (False, Range(0, 40, 100))])
async def test_a_page_ends_with_its_work_in_the_middle_of_an_answer(newest_first: bool, rest: Range) -> None:
    """Reading backward, 32 offsets are the first window. The second one is not read to its end."""
    log = ScriptedLog({0: [_batch(offset) for offset in range(BATCHES)]})
    async with client_of(log) as client:
        work = Work(scanned_max=40, time_max_s=600)
        page = _browse(client, BATCHES, work, newest_first=newest_first)
        assert await page.run()
    assert (work.scanned, len(page.rows), page.ranges) == (40, rest.start or 100 - rest.end, [rest])


@pytest.mark.parametrize(("newest_first", "count"), [(True, 32), (False, 10)])
async def test_the_faults_of_a_page_are_bounded(
    newest_first: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROWS_BYTES_MAX", 10 * 1024)
    log = ScriptedLog({0: [_damaged(offset) for offset in range(BATCHES)]})
    async with client_of(log) as client:
        page = _browse(client, BATCHES, Work(time_max_s=600), newest_first=newest_first)
        assert await page.run()
    assert len(page.faults) == count


async def test_windows_of_batches_that_cannot_be_read_do_not_grow() -> None:
    log = ScriptedLog({0: [_damaged(offset) for offset in range(40)]})
    async with client_of(log) as client:
        page = _browse(client, 40, Work(time_max_s=600), newest_first=True)
        assert not await page.run()
    assert [fault.offset for fault in page.faults] == [*range(8, 40), *range(7, -1, -1)]


def test_the_search_for_one_record_gives_up_the_loop(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.create_topic("searched", 1)
    stack.append_batch("searched", 0, build_batch([Record(offset, 1, None, b"v") for offset in range(200)]))
    pauses: list[Work] = []

    async def pause(self: Work) -> None:
        pauses.append(self)

    monkeypatch.setattr(Work, "pause", pause)
    assert stack.http.get("/api/v1/topics/searched/records/0/199").json()["offset"] == 199
    assert len(pauses) == 4  # 64 records each


async def test_the_steps_of_all_pages_share_the_turns_of_the_event_loop() -> None:
    """One step of one page in each turn, so that others wait for no more than that."""
    loop, turn, steps = asyncio.get_running_loop(), 0, list[int]()

    def count() -> None:
        nonlocal turn
        turn += 1
        loop.call_soon(count)

    async def read() -> None:
        work = Work()
        for _ in range(5):
            until = time.monotonic() + 0.0011
            while time.monotonic() < until:
                pass
            steps.append(turn)
            await work.pause()

    count()
    await asyncio.gather(*(read() for _ in range(4)))
    assert len(set(steps[4:])) == 16  # all have begun in one turn
