"""Answers known ahead: used only for the offset they are for, while storage would say the same, and while it lives."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
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
from gateway_svc.clients.slices import FileRange, Part, SliceFiles
from gateway_svc.fetching import read_ahead as ahead_reads
from gateway_svc.fetching.answer_layout import AnswerLayout
from gateway_svc.fetching.read_ahead import GOOD_S, READS, AheadReads, RequestBytes
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.requests.call import Route, Services

SIZE = 100_000
#: Of version 11 without a session, and of version 12, whose answers go on behind the records.
LAYOUTS = {version: AnswerLayout((version, "t", bytes(16), 0, 0, False), b"") for version in (11, 12)}
READ = ReadRequest(1, "c", 11, 500, 1, SIZE, 0, True, [ReadPartition("t", 0, 10, SIZE)])
SLICES = [[Slice("t-0/0.log", 5, number * SIZE, SIZE)] for number in range(24)]


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


def services_with(storage: Storage, files: SliceFiles | None = None) -> Services:
    """What an answer needs of them."""
    loop, records = asyncio.get_running_loop(), SimpleNamespace(records=storage)
    return cast(Services, SimpleNamespace(storage=records, files=files, metrics=GatewayMetrics(), loop=loop))


def answered(ahead: AheadReads, storage: Storage, read: ReadRequest, size: int = SIZE, version: int = 11) -> None:
    again = dataclasses.replace(read, partitions=[*read.partitions])
    ahead.answered(again, size, LAYOUTS[version], services_with(storage))


def response(first: int, count: int) -> AheadResponse:
    reads = [AheadRead(offset, SLICES[offset]) for offset in range(first, first + count)]
    return AheadResponse(3, 0, 90, 80, 1, reads)


async def prepared(storage: Storage, count: int = 4) -> tuple[AheadReads, float]:
    """From offset 11 on; and when they were asked for."""
    ahead = AheadReads(None)
    now = time.monotonic()
    answered(ahead, storage, READ)
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
    storage, ahead = Storage(), AheadReads(None)
    now = time.monotonic()
    answered(ahead, storage, dataclasses.replace(READ, isolation_level=1))
    await asyncio.sleep(0)
    storage.done[0](response(11, 1))
    assert ahead.take(11, now) == ReadResult(0, 90, 80, 1, [], SLICES[11])


async def test_another_offset_is_asked_of_storage_and_ends_it() -> None:
    ahead, now = await prepared(Storage())
    assert ahead.take(10, now) is None
    assert ahead.take(11, now) is None


async def test_who_asks_faster_goes_on_where_he_is() -> None:
    """What came meanwhile was read the longer way before it was known."""
    ahead, now = await prepared(Storage())
    assert ahead.take(13, now) == ReadResult(0, 90, 80, 1, None, SLICES[13])
    assert ahead.take(14, now) is not None
    ahead, now = await prepared(Storage())
    assert ahead.take(15, now) is None
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
    assert ahead.take(12, time.monotonic() + GOOD_S) is None


async def test_more_is_asked_for_behind_the_last_when_few_are_left() -> None:
    storage = Storage()
    ahead, now = await prepared(storage, 10)
    for offset, asked in ((11, [10]), (12, [10, 20])):
        assert ahead.take(offset, now) is not None
        answered(ahead, storage, dataclasses.replace(READ, partitions=[ReadPartition("t", 0, offset, SIZE)]))
        await asyncio.sleep(0)
        assert [each.read.partitions[0].fetch_offset for each in storage.asked] == asked
    storage.done[1](response(21, 2))
    assert [ahead.take(offset, now) is not None for offset in range(13, 24)] == [True] * 10 + [False]


async def test_of_large_answers_fewer_are_asked_for() -> None:
    counts = []
    for size in (SIZE, 4 << 20, 8 << 20, 64 << 20):
        storage = Storage()
        answered(AheadReads(None), storage, READ, size)
        await asyncio.sleep(0)
        counts += [each.count for each in storage.asked]
    assert counts == [16, 8, 4, 2]


async def test_what_comes_for_a_reader_who_is_elsewhere_is_dropped() -> None:
    storage = Storage()
    ahead, now = await prepared(storage, 2)
    answered(ahead, storage, dataclasses.replace(READ, partitions=[ReadPartition("t", 0, 11, SIZE)]))
    await asyncio.sleep(0)
    assert ahead.take(11, now) is not None
    storage.done[1](response(13, 2))
    assert [ahead.take(offset, now) is not None for offset in (12, 13, 14)] == [True] * 3


async def test_who_reads_little_or_has_no_storage_to_see_is_left_alone() -> None:
    storage, ahead = Storage(), AheadReads(None)
    answered(ahead, storage, READ, SIZE // 2 - 1)
    answered(ahead, storage, READ, 60_000)
    storage.revisions = None
    answered(ahead, storage, READ)
    await asyncio.sleep(0)
    assert storage.asked == []


async def test_answers_in_vain_are_given_up_for_a_while() -> None:
    storage, ahead = Storage(), AheadReads(None)
    asked = []
    for _ in range(100):
        answered(ahead, storage, READ)
        await asyncio.sleep(0)
        asked.append(len(storage.asked))
        if len(storage.done) > (asked[-2] if len(asked) > 1 else 0):
            storage.done[-1](response(11, 4))
        assert ahead.take(5, 0) is None
    assert (asked[3], asked[4], asked[67], asked[68]) == (4, 4, 4, 5)


# -- requests that are answered where they were received --------------------------------------------------------------

ROUTE = {"api_key": 1, "api_name": "Fetch", "kind": None, "handler": None, "decode": None, "header_tail": b""}


class Writer:
    """Takes what is sent."""

    def __init__(self) -> None:
        self.sent: list[Part] = []

    def send(self, parts: Sequence[Part]) -> None:
        self.sent += parts


class Reader:
    """A consumer without a session, to which answers from offset 11 on are known."""

    def __init__(self, folder: Path, version: int = 11) -> None:
        (folder / "t-0").mkdir(exist_ok=True)
        self.path = folder / "t-0" / "0.log"
        self.path.write_bytes(os.urandom(4 * SIZE))
        self.version = version
        self.storage, self.writer = Storage(), Writer()
        self.services = services_with(self.storage, SliceFiles(str(folder)))
        self.counts = self.services.metrics.api("Fetch")
        route = Route(version=version, by_parts=True, may_park=True, counts=self.counts, **ROUTE)  # type: ignore[arg-type]
        self.ahead = AheadReads(RequestBytes(route, self.frame(0, 10), 20))

    @staticmethod
    def frame(correlation_id: int, offset: int, behind: bytes = b"behind") -> bytes:
        """Alike for who compares bytes."""
        return b"head" + correlation_id.to_bytes(4, "big") + b"before the o" + offset.to_bytes(8, "big") + behind

    async def know(self, *lengths: int, pieces: int = 1) -> None:
        self.ahead.answered(
            dataclasses.replace(READ, partitions=[*READ.partitions]), SIZE, LAYOUTS[self.version], self.services
        )
        await asyncio.sleep(0)
        file_id = self.path.stat().st_ino
        reads = [
            AheadRead(11 + number, [Slice("t-0/0.log", file_id, 100 * number, length)] * pieces)
            for number, length in enumerate(lengths)
        ]
        self.storage.done[-1](AheadResponse(3, 0, 90, 80, 1, reads))

    def ask(self, frame: bytes) -> bool:
        """As it arrives: among other bytes."""
        store = bytearray(b"...." + frame + b"....")
        return self.ahead.answer(store, 4, 4 + len(frame), self.services, self.writer.send)

    def told(self) -> bytes:
        """The bytes that were sent, files' included."""
        told = b""
        for part in self.writer.sent:
            if isinstance(part, FileRange):
                told += os.pread(part.file.fileno(), part.length, part.position)
                part.release()
            else:
                told += part
        self.writer.sent.clear()
        return told


@pytest.fixture(params=[11, 12])
def reader_of(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Reader]]:
    """What they know is good for as long as a test may take."""
    monkeypatch.setattr(ahead_reads, "GOOD_S", 60.0)
    readers: list[Reader] = []

    def make() -> Reader:
        readers.append(Reader(tmp_path, request.param))
        return readers[-1]

    yield make
    for reader in readers:
        assert reader.services.files is not None
        reader.services.files.close()


async def test_a_request_that_is_known_is_answered_as_any_is(reader_of: Callable[[], Reader]) -> None:
    reader = reader_of()
    await reader.know(SIZE, SIZE + 5)
    content, layout = reader.path.read_bytes(), LAYOUTS[reader.version]
    for number, length in enumerate([SIZE, SIZE + 5]):
        assert reader.ask(reader.frame(-1 + 2**32, 11 + number))
        records = content[100 * number : 100 * number + length]
        assert reader.told() == b"".join(layout.answer(-1, ReadResult(0, 90, 80, 1), [records], length))  # type: ignore[arg-type]
    assert not reader.ask(reader.frame(1, 13))
    topic, head = reader.services.metrics.topics["t"], len(layout.head(0, ReadResult(0), SIZE)) + len(layout.after) - 4
    assert (topic.fetches, topic.bytes_out) == (2, 2 * SIZE + 5)
    assert (reader.counts.answers, sum(reader.counts.buckets)) == ({(reader.version, "NONE"): 2}, 2)
    assert (reader.counts.received_bytes, reader.counts.answered_bytes) == (2 * 34, 2 * head + 2 * SIZE + 5)


async def test_more_is_asked_for_behind_the_last_that_was_known(reader_of: Callable[[], Reader]) -> None:
    reader = reader_of()
    await reader.know(SIZE)
    assert reader.ask(reader.frame(1, 11))
    await asyncio.sleep(0)
    assert [each.read.partitions[0].fetch_offset for each in reader.storage.asked] == [10, 11]
    reader.told()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(Reader.frame(1, 12), id="another offset"),
        pytest.param(Reader.frame(1, 11, b"behinD"), id="another end"),
        pytest.param(Reader.frame(1, 11) + b"!", id="longer"),
        pytest.param(Reader.frame(1, 11)[:-1], id="shorter"),
        pytest.param(b"Head" + Reader.frame(1, 11)[4:], id="another version"),
        pytest.param(Reader.frame(1, 11).replace(b"before", b"befOre"), id="another middle"),
    ],
)
async def test_a_request_that_differs_is_not_answered(reader_of: Callable[[], Reader], frame: bytes) -> None:
    reader = reader_of()
    await reader.know(SIZE)
    assert not reader.ask(frame)
    assert reader.ask(reader.frame(1, 11))  # the right one still is
    reader.told()


async def test_nothing_is_answered_once_the_log_has_changed(reader_of: Callable[[], Reader]) -> None:
    reader = reader_of()
    await reader.know(SIZE)
    assert reader.storage.revisions is not None
    reader.storage.revisions.move(3)
    assert not reader.ask(reader.frame(1, 11))


async def test_a_file_that_is_another_by_now_is_not_sent(reader_of: Callable[[], Reader]) -> None:
    reader = reader_of()
    await reader.know(SIZE)
    other = reader.path.with_name("other")
    other.write_bytes(reader.path.read_bytes())
    other.rename(reader.path)
    assert not reader.ask(reader.frame(1, 11))
    assert reader.writer.sent == []


@pytest.mark.parametrize(("length", "pieces"), [(65_535, 1), (SIZE, 2)], ids=["small", "of two files"])
async def test_answers_of_small_or_several_slices_are_put_together_when_asked(
    reader_of: Callable[[], Reader], length: int, pieces: int
) -> None:
    reader = reader_of()
    await reader.know(length, pieces=pieces)
    assert not reader.ask(reader.frame(1, 11))
    assert reader.ahead.take(11, time.monotonic()) is not None


async def test_who_has_a_session_is_answered_in_it() -> None:
    storage = Storage()
    ahead, now = await prepared(storage)
    frame = bytearray(Reader.frame(1, 11))
    assert not ahead.answer(frame, 0, len(frame), services_with(storage), Writer().send)
    assert ahead.take(11, now) is not None
