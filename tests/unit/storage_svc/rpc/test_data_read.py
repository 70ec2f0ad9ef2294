"""Reads through the data service: answered at once, parked, and woken."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from broker_contract.data import AheadRequest, AheadResponse, ReadPartition, ReadRequest, ReadResponse, TopicIdPartition
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.transaction_end import end_transaction
from storage_svc.log.segment.segment import Segment
from storage_svc.rpc.data import DataService
from storage_svc.rpc.found_records import ABORTED_BYTES, ABORTED_MIN
from storage_svc.rpc.partition_read import PIECE, PartitionReads
from storage_svc.rpc.read_answers import INLINE_BYTES_A_TURN, INLINE_BYTES_MAX
from support.scripted_transactions import NoTransactions

from tests.support.waiting import until_async

TOPIC_ID = bytes(range(16))
BATCH = build_batch([Record(n, 1_700_000_000_000, b"k", b"value") for n in range(2)])
SIZE = len(BATCH)


class Bench:
    def __init__(self, path, policy=FlushPolicy.OS, partitions=3, **settings) -> None:
        self.path = path
        self.directory = DataFolder.open(path, LogSettings(flush_policy=policy, **settings))
        self.logs = self.directory.create_many("t", range(partitions), TOPIC_ID, LogConfig())
        self.directory.start(asyncio.get_running_loop())
        self.service = DataService(self.directory, {TOPIC_ID: "t"}.get, NoTransactions())
        self.answers: list[ReadResponse] = []

    def read(self, *partitions: ReadPartition, wait=0, min_bytes=1, max_bytes=1 << 20, by_reference=False, isolation=0):
        request = ReadRequest(1, "client", wait, min_bytes, max_bytes, isolation, by_reference, list(partitions))
        return self.service.read(request, self.answers.append)

    def answer(self) -> ReadResponse:
        """Return the only answer so far."""
        (answer,) = self.answers
        self.answers.clear()
        return answer

    async def answered(self) -> ReadResponse:
        await until_async(lambda: self.answers)
        return self.answer()

    async def parked(self) -> None:
        """Wait until a long read has been looked at, and has no answer."""
        await until_async(lambda: self.service.parked_read_count)

    async def close(self) -> None:
        self.directory.check_invariants()
        await self.service.close()
        await self.directory.close()


@pytest.fixture
async def open_bench(tmp_path):
    """Open the test's one bench, with other settings than `bench` has."""
    opened = []
    yield lambda *arguments, **settings: opened.append(Bench(tmp_path, *arguments, **settings)) or opened[0]
    await opened[0].close()


@pytest.fixture
async def bench(open_bench):
    return open_bench()


def at(offset: int, partition: int = 0, max_bytes: int = 1 << 20, **options) -> ReadPartition:
    return ReadPartition(TopicIdPartition("t", partition), offset, max_bytes, **options)


def records(response: ReadResponse) -> list[tuple[int, bytes]]:
    return [(each.error_code, bytes(each.records)) for each in response.partitions]


def with_records(response: ReadResponse) -> list[int]:
    return [partition for partition, each in enumerate(response.partitions) if each.records]


def stored(base_offset: int) -> bytes:
    return base_offset.to_bytes(8, "big") + BATCH[8:12] + bytes(4) + BATCH[16:]


async def test_batches_with_the_offset(bench):
    for _ in range(3):
        bench.logs[0].append(BATCH)
    for offset, expected in ((0, (0, 2, 4)), (1, (0, 2, 4)), (2, (2, 4)), (5, (4,)), (6, ())):
        bench.read(at(offset))
        answer = bench.answer()
        assert records(answer) == [(0, b"".join(map(stored, expected)))]
        result = answer.partitions[0]
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (6, 6, 0)
        assert (result.aborted, result.slices) == (None, [])


async def test_read_committed_has_an_empty_aborted_list(bench):
    bench.read(at(0), isolation=1)
    assert bench.answer().partitions[0].aborted == []


async def test_by_reference(bench):
    for _ in range(3):
        bench.logs[1].append(BATCH)
    bench.read(at(3, 1), by_reference=True)
    (result,) = bench.answer().partitions
    (piece,) = result.slices
    path = bench.path / piece.path
    assert (piece.path, piece.position, piece.length) == (f"t-1/{0:020d}.log", SIZE, 2 * SIZE)
    assert piece.file_id == os.stat(path).st_ino
    assert path.read_bytes()[piece.position : piece.position + piece.length] == stored(2) + stored(4)
    assert result.records == b""


async def test_errors(bench):
    bench.logs[0].append(BATCH)
    bench.logs[0].begin_leader_epoch(5)
    cases = [
        (at(3), 1),
        (at(-1), 1),
        (at(0, 9), 3),
        (ReadPartition(TopicIdPartition("nothing", 0), 0, 100), 3),
        (ReadPartition(TopicIdPartition("", 0, bytes(reversed(TOPIC_ID))), 0, 100), 100),
        (ReadPartition(TopicIdPartition("", 0, TOPIC_ID), 0, 1 << 20), 0),
        (at(0, leader_epoch=4), 74),
        (at(0, leader_epoch=6), 75),
        (at(0, leader_epoch=5), 0),
    ]
    for wanted, code in cases:
        bench.read(wanted, wait=60_000)  # an error is answered at once
        assert bench.answer().partitions[0].error_code == code, wanted


async def test_below_the_log_start(bench):
    bench.logs[0].append(BATCH)
    bench.logs[0].append(BATCH)
    bench.logs[0].raise_log_start(3)
    bench.read(at(2), at(3))
    assert records(bench.answer()) == [(1, b""), (0, stored(2))]


async def test_limits(bench):
    for log in bench.logs:
        for _ in range(3):
            log.append(BATCH)

    def sizes(*partitions, **options):
        bench.read(*partitions, **options)
        return [len(each.records) // SIZE for each in bench.answer().partitions]

    assert sizes(at(0), at(0, 1), at(0, 2)) == [3, 3, 3]
    assert sizes(at(0, max_bytes=2 * SIZE), at(0, 1, max_bytes=2 * SIZE - 1)) == [2, 1]
    assert sizes(at(0), at(0, 1), at(0, 2), max_bytes=4 * SIZE) == [3, 1, 0]
    # The first partition that has anything gives one batch, at any limits.
    assert sizes(at(6), at(0, 1), at(0, 2), max_bytes=0) == [0, 1, 0]
    assert sizes(at(0, max_bytes=1), at(0, 1, max_bytes=1), at(0, 2)) == [1, 0, 3]
    assert sizes(at(0, max_bytes=-5), max_bytes=-7) == [1]


async def test_min_bytes_that_are_there_need_no_waiting(bench):
    bench.logs[0].append(BATCH)
    bench.logs[1].append(BATCH)
    bench.read(at(0), at(0, 1), wait=60_000, min_bytes=2 * SIZE)
    assert len(bench.answers) == 1


async def test_parked_read_is_woken_by_an_append(bench):
    bench.read(at(0), at(0, 1), wait=60_000)
    await asyncio.sleep(0.02)
    assert bench.answers == []
    bench.logs[2].append(BATCH)
    await asyncio.sleep(0.02)
    assert bench.answers == []
    bench.logs[1].append(BATCH)
    assert records(await bench.answered()) == [(0, b""), (0, stored(0))]


async def test_min_bytes_gather_over_appends(bench):
    bench.read(at(0), at(0, 1), wait=60_000, min_bytes=3 * SIZE)
    for partition in (0, 1):
        bench.logs[partition].append(BATCH)
        await asyncio.sleep(0.01)
    assert bench.answers == []
    bench.logs[0].append(BATCH)
    assert records(await bench.answered()) == [(0, stored(0) + stored(2)), (0, stored(0))]


async def test_max_wait(bench):
    bench.logs[0].append(BATCH)
    loop = asyncio.get_running_loop()
    started = loop.time()
    bench.read(at(0), at(0, 1), wait=60, min_bytes=SIZE + 1)
    answer = await bench.answered()
    assert 0.05 <= loop.time() - started < 20
    assert records(answer) == [(0, stored(0)), (0, b"")]


async def test_a_parked_read_reads_no_records_before_it_is_answered(bench, monkeypatch):
    bench.logs[0].append(BATCH)
    read: list[int] = []
    of_segment = Segment.read
    monkeypatch.setattr(Segment, "read", lambda segment, *a: read.append(a[1]) or of_segment(segment, *a))
    for isolation in (0, 1):
        bench.read(at(0), at(0, 1), wait=60_000, min_bytes=3 * SIZE, isolation=isolation)
        bench.read(at(0), wait=60_000, min_bytes=3 * SIZE, isolation=isolation)
    bench.logs[0].append(BATCH)
    await asyncio.sleep(0.02)
    assert (bench.answers, read) == ([], [])
    bench.logs[0].append(BATCH)
    await asyncio.sleep(0.02)
    assert len(bench.answers) == 4
    assert read == [3 * SIZE] * 4


async def test_many_records_of_a_read_that_may_wait_come_as_slices(bench):
    """A thousand parked reads may be due at once: their gateway reads the records when it has room for them."""
    large = build_batch([Record(0, 1_700_000_000_000, None, bytes(INLINE_BYTES_MAX))])
    bench.read(at(0), at(0, 1), wait=60_000)
    bench.logs[0].append(large)
    (first, other) = (await bench.answered()).partitions
    assert (first.records, [piece.length for piece in first.slices]) == (b"", [len(large)])
    assert (other.records, other.slices) == (b"", [])
    bench.read(at(0), wait=60_000)
    assert len(bench.answer().partitions[0].slices) == 1
    bench.read(at(0))
    assert len(bench.answer().partitions[0].records) == len(large)


async def test_reads_of_one_turn_share_a_limit_of_records_by_value(bench):
    half = build_batch([Record(0, 1_700_000_000_000, None, bytes(INLINE_BYTES_MAX // 2))])
    count = INLINE_BYTES_A_TURN // len(half)
    for number in range(count + 5):
        bench.read(at(0, max_bytes=len(half) + number), wait=60_000)
    for _ in range(2):
        bench.logs[0].append(half)
        await asyncio.sleep(0.02)
        by_value = [bool(each.partitions[0].records) for each in bench.answers]
        assert by_value == [True] * count + [False] * 5
        bench.answers.clear()
        for number in range(count + 5):
            bench.read(at(1, max_bytes=len(half) + number), wait=60_000)


async def test_reads_that_wait_for_different_numbers_of_bytes_are_both_answered_after_a_roll(bench):
    log = bench.logs[0]
    for min_bytes in (SIZE + 1, 10 * SIZE):
        bench.read(at(0), wait=60_000, min_bytes=min_bytes)
    log.append(BATCH)
    log.roll(log.now_ms())
    await asyncio.sleep(0.02)
    assert [records(each) for each in bench.answers] == 2 * [[(0, stored(0))]]


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Make the disk cold; the threads that read from it."""
    threads: list[threading.Thread] = []
    read = Files.read
    monkeypatch.setattr(Files, "is_resident", lambda *_: False)
    monkeypatch.setattr(Files, "read", lambda *a: threads.append(threading.current_thread()) or read(*a))
    return threads


async def test_records_on_a_cold_disk_are_read_in_a_thread(bench, cold):
    for partition in (0, 0, 1):
        bench.logs[partition].append(BATCH)
    cold.clear()
    bench.read(at(0), at(0, 2), at(0, 1))
    assert bench.answers == []
    active = bench.logs[0].segments.active
    active.close()  # it stays open until it was read
    assert records(await bench.answered()) == [(0, stored(0) + stored(2)), (0, b""), (0, stored(0))]
    assert len(cold) == 2
    assert threading.current_thread() not in cold
    assert active.descriptor == -1
    assert bench.service.read_bytes == {"cache": 0, "disk": 3 * SIZE, "file": 0}


async def test_a_read_that_may_wait_gets_slices_of_records_on_a_cold_disk(bench, cold):
    bench.read(at(0), wait=60_000)
    bench.logs[0].append(BATCH)
    (result,) = (await bench.answered()).partitions
    assert (result.records, [piece.length for piece in result.slices]) == (b"", [SIZE])


async def test_a_cold_read_is_given_up_and_fails(bench, cold, monkeypatch):
    bench.logs[0].append(BATCH)
    give_up = bench.read(at(0))
    give_up()

    def broken(*_):
        raise StorageFailure("no disk")

    monkeypatch.setattr(Files, "read", broken)
    bench.read(at(0))
    assert records(await bench.answered()) == [(56, b"")]
    assert bench.answers == []


async def test_a_cold_read_of_many_partitions_holds_few_segments(open_bench, cold):
    bench = open_bench(partitions=40)
    for log in bench.logs[1:]:
        log.append(BATCH)
    bench.service.cold_reads.segments_max = 16
    bench.read(*[at(0, partition) for partition in range(40)])
    pinned = [log.segments.active._pins for log in bench.logs]
    assert pinned == [0] + 16 * [1] + 23 * [0]
    answer = await bench.answered()
    assert records(answer) == [(0, b"")] + 16 * [(0, stored(0))] + 23 * [(0, b"")]
    assert [each.high_watermark for each in answer.partitions] == [0] + 39 * [2]
    assert bench.service.read_bytes == {"cache": 0, "disk": 16 * SIZE, "file": 0}
    assert not any(log.segments.active._pins for log in bench.logs)


async def test_a_cold_read_without_descriptors_fails_and_holds_none(bench, cold, monkeypatch):
    for partition in (0, 1):
        bench.logs[partition].append(BATCH)
    first, second = (bench.logs[partition].segments.active for partition in (0, 1))
    opened = Segment.open

    def open_first_only(segment: Segment, **options: bool) -> None:
        if segment is second and first._pins:
            raise StorageFailure("no descriptor")
        opened(segment, **options)

    monkeypatch.setattr(Segment, "open", open_first_only)
    bench.read(at(0), at(0, 1))
    assert records(bench.answer()) == [(56, b""), (56, b"")]
    assert (first._pins, second._pins) == (0, 0)


async def test_a_stop_waits_for_cold_reads(tmp_path, cold):
    bench = Bench(tmp_path)
    bench.logs[0].append(BATCH)
    bench.read(at(0))
    await bench.service.close()
    assert records(bench.answer()) == [(0, stored(0))]
    await bench.directory.close()


def test_the_kernel_tells_whether_a_read_would_wait(tmp_path):
    files, size = Files(), 1 << 20
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        os.write(descriptor, bytes(size))
        assert files.is_resident(descriptor, size, 0)
        assert files.is_resident(descriptor, 1, size - 1)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            assert not files.is_resident(descriptor, size, 0)
            assert not files.is_resident(descriptor, 1, size - 1)
        except OSError:
            pytest.skip("this file system does not tell")
        os.pread(descriptor, size, 0)
        assert files.is_resident(descriptor, size, 0)
    finally:
        os.close(descriptor)


async def test_a_limit_inside_a_batch_is_reached_by_part_of_it(bench):
    """Apache Kafka counts the bytes before the readable end, and sends only whole batches' worth of use to clients."""
    for _ in range(2):
        bench.logs[0].append(BATCH)
    bench.read(at(0, max_bytes=SIZE + 1), wait=60_000, min_bytes=SIZE + 1)
    assert records(bench.answer()) == [(0, stored(0))]
    bench.read(at(0), wait=60_000, min_bytes=SIZE + 1, max_bytes=SIZE + 1)
    assert records(bench.answer()) == [(0, stored(0))]
    bench.read(at(0, max_bytes=SIZE + 1), at(0, 1), wait=60_000, min_bytes=2 * SIZE + 1)
    assert bench.answers == []
    bench.logs[1].append(BATCH)
    assert records(await bench.answered()) == [(0, stored(0)), (0, stored(0))]


@pytest.mark.parametrize("isolation", [0, 1])
async def test_records_in_a_segment_before_the_last_are_not_waited_with(bench, isolation):
    log = bench.logs[0]
    log.append(BATCH)
    log.roll(log.now_ms())
    bench.read(at(2), wait=60_000, min_bytes=10 * SIZE, isolation=isolation)
    assert bench.answers == []
    bench.read(at(0), wait=60_000, min_bytes=10 * SIZE, isolation=isolation)
    assert records(bench.answer()) == [(0, stored(0))]
    log.append(BATCH)
    await asyncio.sleep(0.02)
    assert bench.answers == []
    log.roll(log.now_ms())
    log.append(BATCH)
    assert records(await bench.answered()) == [(0, stored(2) + stored(4))]


@pytest.mark.parametrize("is_woken", [False, True])
async def test_given_up(bench, is_woken):
    give_up = bench.read(at(0), wait=60_000)
    if is_woken:
        bench.logs[0].append(BATCH)
    give_up()
    bench.logs[0].append(BATCH)
    await asyncio.sleep(0.02)
    assert bench.answers == []
    give_up()


async def test_deleted_partition_wakes(bench):
    bench.read(at(0), at(0, 1), wait=60_000)
    bench.directory.delete("t", 1)
    assert records(await bench.answered()) == [(0, b""), (3, b"")]


async def test_only_synced_records_are_read(open_bench):
    bench = open_bench(FlushPolicy.GROUP)
    bench.logs[0].append(BATCH)
    bench.read(at(0))
    assert records(bench.answer()) == [(0, b"")]
    bench.read(at(2))  # at the log end, above the high watermark: nothing yet, no error
    assert records(bench.answer()) == [(0, b"")]
    bench.read(at(0), wait=60_000)
    assert records(await bench.answered()) == [(0, stored(0))]


async def test_a_thousand_partitions_are_not_scanned_again(open_bench, monkeypatch):
    bench = open_bench(partitions=1000)
    looked: list[int] = []
    spans = PartitionLog.spans
    monkeypatch.setattr(PartitionLog, "spans", lambda log, *a, **o: looked.append(log.partition) or spans(log, *a, **o))
    bench.read(*(at(0, n) for n in range(1000)), wait=60_000, min_bytes=3 * SIZE)
    await bench.parked()
    looked.clear()
    for partition in (7, 8):
        bench.logs[partition].append(BATCH)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert looked == [7, 8]
    assert bench.answers == []
    bench.logs[9].append(BATCH)
    assert with_records(await bench.answered()) == [7, 8, 9]


async def test_a_long_read_leaves_turns_to_others(open_bench):
    bench = open_bench(partitions=3 * PIECE)
    for log in (bench.logs[0], bench.logs[PIECE]):
        log.append(BATCH)
    give_up = bench.read(*(at(0, n) for n in range(3 * PIECE)))
    assert bench.answers == []
    bench.read(at(0, 1))  # a short one overtakes it
    assert records(bench.answer()) == [(0, b"")]
    assert with_records(await bench.answered()) == [0, PIECE]
    give_up()


async def test_a_long_read_shares_its_bytes_among_all_pieces(open_bench):
    bench = open_bench(partitions=3 * PIECE)
    for number in (0, PIECE, 2 * PIECE):
        bench.logs[number].append(BATCH)
    bench.read(*(at(0, n) for n in range(3 * PIECE)), max_bytes=2 * SIZE)
    assert with_records(await bench.answered()) == [0, PIECE]


async def test_a_long_read_finds_records_that_came_while_it_was_looked_at(open_bench, monkeypatch):
    bench = open_bench(partitions=2 * PIECE)
    look_up = PartitionReads.read

    def append_at_the_end(self, request, wanted, *rest):
        if wanted.topic_partition.partition == 2 * PIECE - 1 and not bench.logs[0].log_end_offset:
            bench.logs[0].append(BATCH)
        return look_up(self, request, wanted, *rest)

    monkeypatch.setattr(PartitionReads, "read", append_at_the_end)
    bench.read(*(at(0, n) for n in range(2 * PIECE)), wait=60_000)
    assert with_records(await bench.answered()) == [0]


@pytest.mark.parametrize("turns", range(6))
async def test_a_long_read_is_given_up_in_each_of_its_turns(open_bench, turns):
    bench = open_bench(partitions=2 * PIECE)
    give_up = bench.read(*(at(0, n) for n in range(2 * PIECE)), wait=60_000)
    for _ in range(turns):
        await asyncio.sleep(0)
    bench.logs[0].append(BATCH)
    give_up()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (bench.answers, bench.service.parked_read_count) == ([], 0)


@pytest.mark.parametrize("turns", range(6))
async def test_a_stop_answers_a_long_read_in_each_of_its_turns(open_bench, turns):
    bench = open_bench(partitions=2 * PIECE)
    bench.read(*(at(0, n) for n in range(2 * PIECE)), wait=60_000)
    for _ in range(turns):
        await asyncio.sleep(0)
    await bench.service.close()
    assert len(bench.answer().partitions) == 2 * PIECE


async def test_parked_reads_are_bounded(open_bench):
    bench = open_bench(parked_reads_max=2)
    for _ in range(2):
        bench.read(at(0), wait=60_000)
    assert bench.answers == []
    bench.read(at(0), wait=60_000)
    assert records(bench.answer()) == [(0, b"")]
    await bench.service.close()
    assert len(bench.answers) == 2
    bench.answers.clear()
    bench.read(at(0), wait=60_000)
    assert records(bench.answer()) == [(6, b"")]


async def test_answer_is_bounded(tmp_path):
    bench = Bench(tmp_path, read_bytes_max=2 * SIZE)
    for _ in range(5):
        bench.logs[0].append(BATCH)
    bench.read(at(0, max_bytes=2**31 - 1), max_bytes=2**31 - 1)
    assert records(bench.answer()) == [(0, stored(0) + stored(2))]
    await bench.close()


TRANSACTIONAL = build_batch(
    [Record(0, 1_700_000_000_000, b"k", b"value")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
)


@pytest.mark.parametrize("by_reference", [False, True])
async def test_committed_reads_wait_for_the_end_of_the_transaction(bench, by_reference):
    log = bench.logs[0]
    log.append(BATCH)
    log.append(TRANSACTIONAL)
    for isolation, aborted in ((0, None), (1, [])):
        bench.read(at(0), by_reference=by_reference, isolation=isolation)
        result = bench.answer().partitions[0]
        size = sum(piece.length for piece in result.slices) if by_reference else len(result.records)
        assert size == SIZE + (0 if isolation else len(TRANSACTIONAL))
        assert (result.high_watermark, result.last_stable_offset, result.aborted) == (3, 2, aborted)
    bench.read(at(2), wait=60_000, by_reference=by_reference, isolation=1)
    log.append(BATCH)
    await asyncio.sleep(0)
    assert bench.answers == []
    end_transaction(log, 7, 0, commit=False, coordinator_epoch=0)
    result = (await bench.answered()).partitions[0]
    assert (result.error_code, result.last_stable_offset, result.aborted) == (0, 6, [(7, 2)])
    bench.read(at(5), isolation=1)
    assert bench.answer().partitions[0].aborted == [(7, 2)]  # the marker is in reach
    bench.read(at(6), isolation=1)
    assert bench.answer().partitions[0].aborted == []


async def test_equal_reads_of_one_partition_are_woken_together(bench):
    for _ in range(3):
        bench.read(at(0), wait=60_000)
        bench.read(at(0), wait=60_000, by_reference=True)
    bench.read(at(0, max_bytes=1), wait=60_000)
    bench.read(at(0), wait=60_000, min_bytes=SIZE + 1)
    bench.logs[0].append(BATCH)
    await asyncio.sleep(0.02)
    assert [records(each) for each in bench.answers if not each.partitions[0].slices] == [[(0, stored(0))]] * 4
    assert [len(each.partitions[0].slices) for each in bench.answers].count(1) == 3
    bench.answers.clear()
    bench.logs[0].append(BATCH)
    assert records(await bench.answered()) == [(0, stored(0) + stored(2))]


def ahead(
    bench: Bench, partition: ReadPartition, count: int = 4, *, isolation: int = 0, wait: int = 0, min_bytes: int = 1
) -> AheadResponse:
    """Return the answers to the reads that follow one of the partition."""
    answers: list[AheadResponse] = []
    read = ReadRequest(1, "client", wait, min_bytes, 1 << 20, isolation, True, [partition])
    bench.service.read_ahead(AheadRequest(read, count), answers.append)
    (response,) = answers
    return response


def positions(response: AheadResponse) -> list[tuple[int, list[tuple[int, int]]]]:
    """Return each read's offset, and position and length of its slices."""
    return [(each.fetch_offset, [(piece.position, piece.length) for piece in each.slices]) for each in response.reads]


@pytest.mark.parametrize("isolation", [0, 1])
async def test_reads_ahead_equal_the_answers_to_the_next_reads(bench, isolation):
    log = bench.logs[0]
    for _ in range(5):
        log.append(BATCH)
    log.roll(log.now_ms())
    log.append(BATCH)
    found = ahead(bench, at(0, max_bytes=2 * SIZE), isolation=isolation)
    assert positions(found) == [(4, [(2 * SIZE, 2 * SIZE)]), (8, [(4 * SIZE, SIZE), (0, SIZE)])]
    assert (found.slot, found.revision) == log.current_revision()
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (12, 12, 0)
    for each in found.reads:
        bench.read(at(each.fetch_offset, max_bytes=2 * SIZE), by_reference=True, isolation=isolation)
        assert bench.answer().partitions[0].slices == each.slices


async def test_reads_ahead_are_no_more_than_asked_for_and_allowed(bench):
    for _ in range(30):
        bench.logs[0].append(BATCH)
    assert [each for each, _ in positions(ahead(bench, at(0, max_bytes=SIZE), 3))] == [2, 4, 6]
    assert len(ahead(bench, at(0, max_bytes=SIZE), 255).reads) == 16


async def test_reads_ahead_end_with_the_log(bench):
    bench.logs[0].append(BATCH)
    bench.logs[0].append(BATCH)
    bench.logs[0].raise_log_start(2)
    for partition in (at(2), at(4), at(0), at(0, partition=9), at(2, leader_epoch=3)):
        assert ahead(bench, partition, 4) == AheadResponse()


@pytest.mark.parametrize("isolation", [0, 1])
async def test_a_read_that_would_wait_is_not_read_ahead(bench, isolation):
    log = bench.logs[0]
    for _ in range(5):
        log.append(BATCH)
    asked = {"isolation": isolation, "wait": 60_000, "min_bytes": 2 * SIZE}
    assert [offset for offset, _ in positions(ahead(bench, at(0, max_bytes=2 * SIZE), **asked))] == [4]
    bench.read(at(8, max_bytes=2 * SIZE), wait=60_000, min_bytes=2 * SIZE)
    assert bench.answers == []
    log.append(BATCH)
    assert [offset for offset, _ in positions(ahead(bench, at(0, max_bytes=2 * SIZE), **asked))] == [4, 8]


async def test_aborted_transactions_are_not_read_ahead(bench):
    log = bench.logs[0]
    log.append(BATCH)
    transactional = [Record(0, 1_700_000_000_000, b"k", b"value")]
    log.append(build_batch(transactional, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    told = log.current_revision()
    assert end_transaction(log, 7, 0, commit=False, coordinator_epoch=0).error_code == 0
    assert bench.directory.revisions[told[0]] > told[1]
    log.append(BATCH)
    assert [each for each, _ in positions(ahead(bench, at(0, max_bytes=1), isolation=0))] == [2, 3, 4]
    assert ahead(bench, at(0, max_bytes=1), isolation=1) == AheadResponse()


async def test_an_answer_lists_some_thousand_aborted_transactions_at_most(bench):
    """Each counts for as many bytes of the answer's limit as the gateway needs for it."""
    for log in bench.logs[:2]:
        for number in range(520):
            batch = build_batch(
                [Record(0, 1, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=number, transactional=True
            )
            assert log.append(batch).error_code == 0
            assert end_transaction(log, 7, 0, commit=False, coordinator_epoch=0).error_code == 0
    lists = []
    for max_bytes in (1 << 20, 510 * ABORTED_BYTES + 1, 1 << 30):
        bench.read(at(0), at(0, 1), at(0, 2), max_bytes=max_bytes, isolation=1)
        lists.append([len(each.aborted) for each in bench.answer().partitions])
    assert lists == [[ABORTED_MIN, 0, 0], [510, 0, 0], [520, 520, 0]]
