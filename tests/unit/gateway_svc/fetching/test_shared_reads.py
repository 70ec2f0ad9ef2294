"""Reads that ask the same in one turn are one read at storage; any other is its own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import pytest
from broker_contract.data import (
    AheadRequest,
    AheadResponse,
    Append,
    AppendResponse,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    TopicIdPartition,
)
from broker_contract.revisions import Revisions
from gateway_svc.fetching.shared_reads import ANSWERS_A_TURN, ASKED_A_TURN, SharedReads
from gateway_svc.storage.protocols import Records

EMPTY = ReadResponse([ReadResult(0, 5, 5, 0)])


class StoragePorts:
    """A storage that answers a read when the test calls `done`, or at once."""

    def __init__(self, at_once: ReadResponse | None = None) -> None:
        self.at_once = at_once
        self.asked: list[ReadRequest] = []
        self.done: list[Callable[[ReadResponse], None]] = []
        self.given_up: list[int] = []

    def append(self, request: Append, done: Callable[[AppendResponse], None]) -> None:
        raise AssertionError("nobody appends")

    revisions: Revisions | None = None

    def read_ahead(self, request: AheadRequest, done: Callable[[AheadResponse], None]) -> None:
        raise AssertionError("nobody reads ahead")

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        self.asked.append(request)
        self.done.append(done)
        number = len(self.asked) - 1
        if self.at_once is not None:
            done(self.at_once)
        return lambda: self.given_up.append(number)


PARTITION = ReadPartition(TopicIdPartition("t", 0), 7, 1000)


def request(correlation_id: int = 1, partition: ReadPartition = PARTITION) -> ReadRequest:
    return ReadRequest(correlation_id, "c", 500, 1, 2000, 0, True, [partition])


async def test_alike_in_one_turn_is_asked_once_and_answered_to_all() -> None:
    storage, answers = StoragePorts(), list[tuple[int, ReadResponse]]()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for number in range(3):
        reads.read(
            dataclasses.replace(request(number), client_id=str(number)), lambda a, n=number: answers.append((n, a))
        )  # type: ignore[misc]
    assert [asked.correlation_id for asked in storage.asked] == [0]
    storage.done[0](EMPTY)
    await asyncio.sleep(0)
    assert answers == [(0, EMPTY), (1, EMPTY), (2, EMPTY)]


OTHERS = [
    *(
        dataclasses.replace(request(), partitions=[dataclasses.replace(PARTITION, **{name: value})])  # type: ignore[arg-type]
        for name, value in {
            "fetch_offset": 8,
            "max_bytes": 999,
            "leader_epoch": 0,
        }.items()
    ),
    *(
        dataclasses.replace(request(), partitions=[dataclasses.replace(PARTITION, topic_partition=other)])
        for other in (
            TopicIdPartition("u", 0),
            TopicIdPartition("t", 1),
            TopicIdPartition("t", 0, bytes(15) + b"\1"),
        )
    ),
    *(
        dataclasses.replace(request(), **{name: value})
        for name, value in {
            "max_wait_ms": 501,
            "min_bytes": 2,
            "max_bytes": 1999,
            "isolation_level": 1,
            "by_reference": False,
            "partitions": [PARTITION, PARTITION],
        }.items()
    ),
]


async def test_what_differs_in_anything_is_asked_by_itself() -> None:
    for other in OTHERS:
        storage = StoragePorts()
        reads = SharedReads(storage, asyncio.get_running_loop())
        for each in (request(), other):
            reads.read(each, lambda _answer: None)
        assert storage.asked == [request(), other]


async def test_several_partitions_are_never_joined() -> None:
    storage = StoragePorts()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for _ in range(2):
        reads.read(dataclasses.replace(request(), partitions=[PARTITION, PARTITION]), lambda _answer: None)
    assert len(storage.asked) == 2


async def test_a_read_of_an_earlier_turn_is_not_joined() -> None:
    storage = StoragePorts()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for _ in range(2):
        reads.read(request(), lambda _answer: None)
        await asyncio.sleep(0)
    assert len(storage.asked) == 2


async def test_an_answer_is_not_given_to_who_asks_after_it() -> None:
    storage, answers = StoragePorts(EMPTY), list[ReadResponse]()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for _ in range(2):
        reads.read(request(), answers.append)
    assert (len(storage.asked), answers) == (2, [EMPTY, EMPTY])


@pytest.mark.parametrize("leaving", [0, 1])
async def test_one_that_gives_up_leaves_the_other(leaving: int) -> None:
    storage, answers = StoragePorts(), list[int]()
    reads = SharedReads(storage, asyncio.get_running_loop())
    give_up = [reads.read(request(), lambda _answer, n=number: answers.append(n)) for number in range(2)]  # type: ignore[misc]
    give_up[leaving]()
    give_up[leaving]()
    storage.done[0](EMPTY)
    assert (answers, storage.given_up) == ([1 - leaving], [])
    give_up[1 - leaving]()
    assert storage.given_up == []


async def test_when_all_give_up_the_read_is_given_up_and_joined_by_nobody() -> None:
    storage, answers = StoragePorts(), list[ReadResponse]()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for give_up in [reads.read(request(), answers.append) for _ in range(2)]:
        give_up()
    assert storage.given_up == [0]
    reads.read(request(), answers.append)
    assert len(storage.asked) == 2
    storage.done[1](EMPTY)
    assert answers == [EMPTY]


async def test_all_but_reads_passes_through() -> None:
    """The revisions are those of the moment: another object once storage was lost."""
    storage = StoragePorts()
    reads: Records = SharedReads(storage, asyncio.get_running_loop())
    assert (reads.append, reads.read_ahead, reads.revisions) == (storage.append, storage.read_ahead, None)
    storage.revisions = Revisions()
    assert reads.revisions is storage.revisions


# -- turns ------------------------------------------------------------------------------------------------------------


def apart(number: int) -> ReadRequest:
    """Return a request for a partition that no other request is for."""
    return request(number, ReadPartition(TopicIdPartition("t", number), 7, 1000))


async def test_storage_is_asked_so_often_in_a_turn() -> None:
    storage = StoragePorts()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for number in range(2 * ASKED_A_TURN + 1):
        reads.read(apart(number), lambda _answer: None)
    counts = []
    for _ in range(4):
        counts.append(len(storage.asked))
        await asyncio.sleep(0)
    assert counts == [ASKED_A_TURN, 2 * ASKED_A_TURN, 2 * ASKED_A_TURN + 1, 2 * ASKED_A_TURN + 1]


async def test_who_asks_the_same_is_not_counted() -> None:
    storage, answers = StoragePorts(), list[int]()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for number in range(ASKED_A_TURN + 2):
        reads.read(request(number), lambda _answer, n=number: answers.append(n))  # type: ignore[misc]
    assert len(storage.asked) == 1
    storage.done[0](EMPTY)
    for _ in range(ASKED_A_TURN):
        await asyncio.sleep(0)
    assert answers == [*range(ASKED_A_TURN + 2)]


async def test_where_storage_answers_at_once_it_is_asked_as_often_as_is_answered() -> None:
    storage, answers = StoragePorts(EMPTY), list[int]()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for number in range(2 * ANSWERS_A_TURN + 1):
        reads.read(apart(number), lambda _answer, n=number: answers.append(n))  # type: ignore[misc]
    counts = []
    for _ in range(4):
        counts.append((len(storage.asked), len(answers)))
        await asyncio.sleep(0)
    most = ANSWERS_A_TURN
    assert counts == [(most, most), (2 * most, 2 * most), (2 * most + 1, 2 * most + 1), (2 * most + 1, 2 * most + 1)]
    assert answers == [*range(2 * most + 1)]


async def test_answers_that_come_together_are_given_some_in_each_turn() -> None:
    storage, answers = StoragePorts(), list[int]()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for number in range(ANSWERS_A_TURN + 2):
        reads.read(apart(number), lambda _answer, n=number: answers.append(n))  # type: ignore[misc]
    for _ in range(3):
        await asyncio.sleep(0)
    for done in storage.done:
        done(EMPTY)
    assert answers == [*range(ANSWERS_A_TURN)]
    await asyncio.sleep(0)
    assert answers == [*range(ANSWERS_A_TURN + 2)]


async def test_who_asks_while_many_are_answered_begins_when_few_are_left() -> None:
    storage, answers = StoragePorts(), list[ReadResponse]()
    reads = SharedReads(storage, asyncio.get_running_loop())
    for _ in range(4 * ANSWERS_A_TURN):
        reads.read(request(), answers.append)
    storage.done[0](EMPTY)
    told = []
    for _ in range(4):
        told.append((len(answers), len(storage.asked)))
        reads.read(request(), answers.append)
        await asyncio.sleep(0)
    most = ANSWERS_A_TURN
    # The third turn has `most` answers left: the three that wait by then begin, as one, and the fourth by itself.
    assert told == [(most, 1), (2 * most, 1), (3 * most, 1), (4 * most, 2)]
    assert len(storage.asked) == 3


async def test_who_gives_up_before_its_turn_is_neither_asked_for_nor_answered() -> None:
    storage, answers = StoragePorts(), list[int]()
    reads = SharedReads(storage, asyncio.get_running_loop())
    count = ASKED_A_TURN + 3
    give_up = [
        reads.read(apart(number), lambda _answer, n=number: answers.append(n))  # type: ignore[misc]
        for number in range(count)
    ]
    give_up[ASKED_A_TURN]()
    await asyncio.sleep(0)
    assert [asked.correlation_id for asked in storage.asked] == [n for n in range(count) if n != ASKED_A_TURN]
    await asyncio.sleep(0)
    for done in storage.done:
        done(EMPTY)
    give_up[ASKED_A_TURN + 1]()  # it was answered, and not told yet
    for _ in range(count):
        await asyncio.sleep(0)
    assert answers == [n for n in range(count) if n not in (ASKED_A_TURN, ASKED_A_TURN + 1)]
    assert storage.given_up == []


class Broken(StoragePorts):
    """A storage that fails at each read."""

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        self.asked.append(request)
        raise ZeroDivisionError


async def test_a_read_that_fails_at_once_keeps_no_other_waiting() -> None:
    """Reads of this turn raise; reads that waited for a turn are answered, since nobody is left to raise to."""
    storage = Broken()
    reads, answers = SharedReads(storage, asyncio.get_running_loop()), list[ReadResponse]()
    for number in range(ASKED_A_TURN):
        with pytest.raises(ZeroDivisionError):
            reads.read(request(number), answers.append)
    for number in range(ASKED_A_TURN):
        reads.read(request(number), answers.append)
    for _ in range(4):
        await asyncio.sleep(0)
    assert len(storage.asked) == 2 * ASKED_A_TURN
    assert answers == [ReadResponse([ReadResult(-1)])] * ASKED_A_TURN
