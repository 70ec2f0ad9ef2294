"""Results read ahead: used only for their offset, while storage would return the same, and while it lives."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import pytest
from broker_contract.data import (
    AheadRead,
    AheadRequest,
    AheadResponse,
    Append,
    AppendResponse,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    Slice,
    TopicIdPartition,
)
from broker_contract.revisions import Revisions
from gateway_svc.fetching.answer_layout import AnswerLayouts
from gateway_svc.fetching.read_ahead import GOOD_S, READS, ReadAhead, request_key
from gateway_svc.fetching.sessions import Fetch, FetchedPartition
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic

SIZE = 100_000
KEY = (11, "t", bytes(16), 0, SIZE, -1, 500, 1, SIZE, 0)
ASKED = FetchPartition(partition=0, fetch_offset=10, partition_max_bytes=SIZE)
FETCH = Fetch([FetchedPartition("t", bytes(16), ASKED)], None, incremental=False)
LAYOUT = AnswerLayouts().find(11, FetchedPartition("t", bytes(16), ASKED), 0, ReadResult(0))
READ = ReadRequest(1, "c", 500, 1, SIZE, 0, True, [ReadPartition(TopicIdPartition("t", 0), 10, SIZE)])
SLICES = [[Slice("t-0/0.log", 5, number * SIZE, SIZE)] for number in range(24)]


class StoragePorts:
    """A storage that answers when the test calls `done`."""

    def __init__(self) -> None:
        self.revisions: Revisions | None = Revisions()
        self.asked: list[AheadRequest] = []
        self.done: list[Callable[[AheadResponse], None]] = []

    def append(self, request: Append, done: Callable[[AppendResponse], None]) -> None:
        raise AssertionError("nobody appends")

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        raise AssertionError("nobody reads")

    def read_ahead(self, request: AheadRequest, done: Callable[[AheadResponse], None]) -> None:
        self.asked.append(dataclasses.replace(request, read=dataclasses.replace(request.read)))
        self.done.append(done)


def repeated(storage: StoragePorts) -> ReadAhead:
    """Return the read-ahead of a consumer that has sent two requests of one kind."""
    made = ReadAhead(KEY, storage, asyncio.get_running_loop())
    made.repeated = True
    return made


def answered(ahead: ReadAhead, read: ReadRequest, size: int = SIZE) -> None:
    ahead.answered(read, FETCH, LAYOUT, size)


def response(first: int, count: int) -> AheadResponse:
    reads = [AheadRead(offset, SLICES[offset]) for offset in range(first, first + count)]
    return AheadResponse(3, 0, 90, 80, 1, reads)


async def prepared(storage: StoragePorts, count: int = 4) -> tuple[ReadAhead, float]:
    """Return the read-ahead of a consumer, with results from offset 11 on, and the time at which it asked for them."""
    ahead = repeated(storage)
    now = time.monotonic()
    answered(ahead, READ)
    assert storage.asked == []  # the answer leaves first
    await asyncio.sleep(0)
    assert [(each.count, each.read.partitions[0].fetch_offset) for each in storage.asked] == [(READS, 10)]
    storage.done[0](response(11, count))
    return ahead, now


async def test_an_answer_about_another_partition_is_not_read_on_from() -> None:
    ahead = repeated(storage := StoragePorts())
    answered(ahead, READ)
    assert ahead.fetch is FETCH
    other = FetchedPartition("t", bytes(16), dataclasses.replace(ASKED, partition=1))
    ahead.answered(READ, Fetch([other], None, incremental=True), LAYOUT, SIZE)
    assert ahead.fetch is None
    await asyncio.sleep(0)
    assert len(storage.asked) == 1


async def test_what_is_asked_in_turn_is_known() -> None:
    ahead, now = await prepared(StoragePorts())
    assert [ahead.take(offset, now) for offset in range(11, 16)] == [
        *[ReadResult(0, 90, 80, 1, None, SLICES[offset]) for offset in range(11, 15)],
        None,
    ]


async def test_readers_of_committed_records_are_told_that_nothing_was_aborted() -> None:
    storage = StoragePorts()
    ahead = repeated(storage)
    now = time.monotonic()
    answered(ahead, dataclasses.replace(READ, isolation_level=1))
    await asyncio.sleep(0)
    storage.done[0](response(11, 1))
    assert ahead.take(11, now) == ReadResult(0, 90, 80, 1, [], SLICES[11])


async def test_another_offset_is_asked_of_storage_and_ends_it() -> None:
    ahead, now = await prepared(StoragePorts())
    assert ahead.take(10, now) is None
    assert ahead.take(11, now) is None


async def test_who_asks_faster_goes_on_where_he_is() -> None:
    """Storage answered the requests between before their results arrived."""
    ahead, now = await prepared(StoragePorts())
    assert ahead.take(13, now) == ReadResult(0, 90, 80, 1, None, SLICES[13])
    assert ahead.take(14, now) is not None
    ahead, now = await prepared(StoragePorts())
    assert ahead.take(15, now) is None
    assert ahead.take(11, now) is None


async def test_nothing_is_known_of_a_log_that_has_changed() -> None:
    storage = StoragePorts()
    ahead, now = await prepared(storage)
    assert storage.revisions is not None
    storage.revisions.move(2)
    assert ahead.take(11, now) is not None
    storage.revisions.move(3)
    assert ahead.take(12, now) is None
    assert ahead.take(12, now) is None


async def test_nothing_is_known_of_a_storage_that_is_gone_or_another() -> None:
    for now_seen in (None, Revisions()):
        storage = StoragePorts()
        ahead, now = await prepared(storage)
        storage.revisions = now_seen
        assert ahead.take(11, now) is None


async def test_nothing_is_known_for_long() -> None:
    ahead, now = await prepared(StoragePorts())
    assert ahead.take(11, now + GOOD_S / 2) is not None
    assert ahead.take(12, time.monotonic() + GOOD_S) is None


async def test_more_is_asked_for_behind_the_last_when_few_are_left() -> None:
    storage = StoragePorts()
    ahead, now = await prepared(storage, 10)
    for offset, asked in ((11, [10]), (12, [10, 20])):
        assert ahead.take(offset, now) is not None
        ahead.ask(SIZE)
        await asyncio.sleep(0)
        assert [each.read.partitions[0].fetch_offset for each in storage.asked] == asked
    storage.done[1](response(21, 2))
    assert [ahead.take(offset, now) is not None for offset in range(13, 24)] == [True] * 10 + [False]


async def test_of_large_answers_fewer_are_asked_for() -> None:
    counts = []
    for size in (SIZE, 4 << 20, 8 << 20, 64 << 20):
        storage = StoragePorts()
        answered(repeated(storage), READ, size)
        await asyncio.sleep(0)
        counts += [each.count for each in storage.asked]
    assert counts == [16, 8, 4, 2]


async def test_what_comes_for_a_reader_who_is_elsewhere_is_dropped() -> None:
    storage = StoragePorts()
    ahead, now = await prepared(storage, 2)
    answered(ahead, dataclasses.replace(READ, partitions=[ReadPartition(TopicIdPartition("t", 0), 11, SIZE)]))
    await asyncio.sleep(0)
    assert ahead.take(11, now) is not None
    storage.done[1](response(13, 2))
    assert [ahead.take(offset, now) is not None for offset in (12, 13, 14)] == [True] * 3


async def test_who_reads_little_or_has_no_storage_to_see_is_left_alone() -> None:
    storage = StoragePorts()
    ahead = repeated(storage)
    answered(ahead, READ, SIZE // 2 - 1)
    answered(ahead, READ, 60_000)
    storage.revisions = None
    answered(ahead, READ)
    await asyncio.sleep(0)
    assert storage.asked == []


async def test_answers_in_vain_are_given_up_for_a_while() -> None:
    storage = StoragePorts()
    ahead = repeated(storage)
    asked = []
    for _ in range(100):
        answered(ahead, READ)
        await asyncio.sleep(0)
        asked.append(len(storage.asked))
        if len(storage.done) > (asked[-2] if len(asked) > 1 else 0):
            storage.done[-1](response(11, 4))
        assert ahead.take(5, 0) is None
    assert (asked[3], asked[4], asked[67], asked[68]) == (4, 4, 4, 5)


async def test_a_first_request_of_its_kind_is_not_read_ahead() -> None:
    storage = StoragePorts()
    answered(ReadAhead(KEY, storage, asyncio.get_running_loop()), READ)
    await asyncio.sleep(0)
    assert storage.asked == []


async def test_what_is_asked_of_storage_leaves_the_request_alone() -> None:
    storage = StoragePorts()
    read = dataclasses.replace(READ, partitions=[*READ.partitions])
    ahead = repeated(storage)
    answered(ahead, read)
    await asyncio.sleep(0)
    storage.done[0](response(11, 1))
    assert ahead.take(11, time.monotonic()) is not None
    ahead.ask(SIZE)
    await asyncio.sleep(0)
    assert [each.read.partitions[0].fetch_offset for each in storage.asked] == [10, 11]
    assert read == READ


# -- what requests share ----------------------------------------------------------------------------------------------


def request(**asked: Any) -> FetchRequest:
    more = {name: asked.pop(name) for name in [*asked] if hasattr(FetchRequest, name)}
    partition = FetchPartition(**{"partition": 0, "fetch_offset": 0, "partition_max_bytes": SIZE, **asked})
    return FetchRequest(
        **{"max_wait_ms": 500, "min_bytes": 1, "max_bytes": SIZE, "topics": topics_of(partition), **more}
    )


def topics_of(*partitions: FetchPartition, name: str = "t", topic_id: bytes = bytes(16)) -> tuple[FetchTopic, ...]:
    return (FetchTopic(topic=name, topic_id=topic_id, partitions=partitions),)


PARTITION = request().topics[0].partitions[0]


@pytest.mark.parametrize(
    "other",
    [{"fetch_offset": 9}, {"session_id": 5, "session_epoch": 3}, {"rack_id": "r"}],
    ids=["offset", "session", "rack"],
)
def test_requests_of_one_consumer_have_one_key(other: dict[str, Any]) -> None:
    assert request_key(11, request(**other)) == request_key(11, request()) == KEY


@pytest.mark.parametrize(
    "other",
    [
        {"partition": 1},
        {"partition_max_bytes": 5},
        {"current_leader_epoch": 0},
        {"max_wait_ms": 501},
        {"min_bytes": 2},
        {"max_bytes": 5},
        {"isolation_level": 1},
        {"topics": topics_of(PARTITION, name="u")},
        {"topics": topics_of(PARTITION, topic_id=bytes(range(16)))},
    ],
    ids=str,
)
def test_requests_that_ask_for_something_else_have_another_key(other: dict[str, Any]) -> None:
    key = request_key(11, request(**other))
    assert key is not None
    assert key != KEY


def test_another_version_has_another_key() -> None:
    assert request_key(12, request()) != KEY


@pytest.mark.parametrize(
    "topics", [(), topics_of(), topics_of(PARTITION, PARTITION), topics_of(PARTITION) * 2], ids=len
)
def test_requests_for_none_or_several_partitions_have_no_key(topics: tuple[FetchTopic, ...]) -> None:
    assert request_key(11, request(topics=topics)) is None
