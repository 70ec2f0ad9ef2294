"""Appends through the data service: one write a turn, acknowledgements, timeouts."""

from __future__ import annotations

import asyncio
import errno
import itertools
import mmap
import os
import threading

import pytest
from broker_contract.data import NO_TOPIC_ID, Append, AppendResponse, Buffer, TopicIdPartition
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DiskFull, StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.rpc.data import STEP_BATCHES, DataService
from support.scripted_transactions import NoTransactions

TOPIC_ID = bytes(range(16))
#: A batch, and the partition that it is for.
To = tuple[TopicIdPartition, Buffer]


class CountingFiles(Files):
    def __init__(self) -> None:
        self.writes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        #: Set once a sync has come to a gate.
        self.reached = threading.Event()
        self.full = False
        #: This many writes succeed, all later ones fail.
        self.breaks_after: int | None = None

    def append(self, descriptor, parts, position, size):
        if self.full:
            raise DiskFull(os.strerror(errno.ENOSPC))
        if self.breaks_after is not None and len(self.writes) >= self.breaks_after:
            raise StorageFailure(os.strerror(errno.EIO))
        self.writes.append(size)
        super().append(descriptor, parts, position, size)

    def sync_queue(self):
        return None  # every sync goes through `sync`

    def sync(self, descriptor):
        if threading.current_thread() is not threading.main_thread():  # a roll syncs on the event loop
            gate = self.gate
            self.reached.set()
            gate.wait(60)
        super().sync(descriptor)


class Bench:
    """A data service on real files with topic t of two partitions."""

    def __init__(self, path, policy: FlushPolicy) -> None:
        self.files = CountingFiles()
        self.directory = DataFolder.open(path, LogSettings(flush_policy=policy), files=self.files)
        self.logs = self.directory.create_many("t", range(2), TOPIC_ID, LogConfig())
        self.directory.start(asyncio.get_running_loop())
        self.service = DataService(self.directory, {TOPIC_ID: "t"}.get, NoTransactions())

    def send(self, *batches: To, acks: int = 1, timeout_ms: int = 60_000, version: int = 9):
        answer: asyncio.Future[AppendResponse] = asyncio.get_running_loop().create_future()
        partitions = [partition for partition, _ in batches]
        records = [each for _, each in batches]
        request = Append(1, "client", version, acks, timeout_ms, partitions, records)
        self.service.append(request, answer.set_result)
        return answer

    def send_run(self, *batches: bytes, topic="t", topic_id=NO_TOPIC_ID, acks=1, timeout_ms=60_000, version=9):
        answer: asyncio.Future[AppendResponse] = asyncio.get_running_loop().create_future()
        run = Append(1, "client", version, acks, timeout_ms, [TopicIdPartition(topic, 0, topic_id)], batches)
        self.service.append(run, answer.set_result)
        return answer

    async def close(self) -> None:
        self.files.gate.set()
        self.directory.check_invariants()
        await self.service.close()
        await self.directory.close()


@pytest.fixture
async def os_bench(tmp_path):
    bench = Bench(tmp_path, FlushPolicy.OS)
    yield bench
    await bench.close()


@pytest.fixture
async def bench(tmp_path):
    bench = Bench(tmp_path, FlushPolicy.GROUP)
    yield bench
    await bench.close()


def batch(count: int = 1, codec: Codec = Codec.NONE, **options) -> bytes:
    return build_batch([Record(n, 1_700_000_000_000, b"k", b"value") for n in range(count)], codec=codec, **options)


def to(partition: int, count: int = 1) -> To:
    return to_topic("t", partition, batch(count))


def to_topic(topic: str, partition: int, records: Buffer, topic_id: bytes = NO_TOPIC_ID) -> To:
    return TopicIdPartition(topic, partition, topic_id), records


def codes(response: AppendResponse) -> list[tuple[int, int]]:
    return [(each.error_code, each.base_offset) for each in response.outcomes]


async def test_one_turn_is_one_write_per_partition(os_bench):
    answers = [os_bench.send(to(n % 2, 2), to((n + 1) % 2, 1)) for n in range(40)]
    assert [codes(await answer) for answer in answers[:3]] == [[(0, 0), (0, 0)], [(0, 1), (0, 2)], [(0, 3), (0, 3)]]
    await asyncio.gather(*answers)
    assert os_bench.files.writes == [20 * (len(batch(1)) + len(batch(2)))] * 2
    assert [log.log_end_offset for log in os_bench.logs] == [60, 60]


async def test_of_hundreds_of_batches_in_one_turn_the_rest_waits_for_the_next(os_bench):
    answers = [os_bench.send(*[to(0)] * STEP_BATCHES) for _ in range(7)]
    asked = []
    while not all(answer.done() for answer in answers):
        await asyncio.sleep(0)
        asked.append(sum(answer.done() for answer in answers))
    assert [count for count, _ in itertools.groupby(asked)] == [1, 2, 3, 4, 5, 6, 7]
    assert [codes(answer.result())[0] for answer in answers] == [(0, STEP_BATCHES * number) for number in range(7)]
    size = len(batch())
    assert os_bench.files.writes == [STEP_BATCHES * size] * 7


async def test_calls_that_must_end_now_take_those_before_them_along(os_bench):
    answers = [os_bench.send(*[to(0)] * 300) for _ in range(4)]
    done: list[AppendResponse] = []
    os_bench.service.append_at_once([(Append(1, "client", 9, 1, 60_000, [to(0)[0]], [batch()]), done.append)])
    assert [codes(each) for each in done] == [[(0, 1200)]]
    assert [codes(answer.result())[0] for answer in answers] == [(0, 300 * number) for number in range(4)]


async def test_each_partition_has_its_own_outcome(os_bench):
    broken = bytearray(batch())
    broken[-1] ^= 1
    answer = await os_bench.send(
        to(0),
        to_topic("t", 1, bytes(broken)),
        to_topic("t", 2, batch()),
        to_topic("nothing", 0, batch()),
        to_topic("", 1, batch(), TOPIC_ID),
        to_topic("t", 1, batch(), bytes(reversed(TOPIC_ID))),
        to_topic("t", 1, batch(2)),
        acks=-1,
    )
    assert codes(answer) == [(0, 0), (2, -1), (3, -1), (3, -1), (0, 0), (100, -1), (0, 1)]
    assert [each.log_start_offset for each in answer.outcomes] == [0, -1, -1, -1, 0, -1, 0]
    assert answer.outcomes[1].error_message == "the batch's CRC does not match its bytes"


@pytest.mark.parametrize("acks", [-2, 2, 32767])
async def test_other_acks_are_refused(os_bench, acks):
    assert codes(await os_bench.send(to(0), to(1), acks=acks)) == [(21, -1), (21, -1)]
    assert os_bench.files.writes == []


async def test_errors_that_come_before_wrong_acks(os_bench):
    answer = await os_bench.send(
        to_topic("t", 7, batch()),
        to_topic("", 0, batch(), bytes(reversed(TOPIC_ID))),
        to_topic("t", 0, b""),
        to_topic("t", 0, bytes(8) + b"\0\0\0\x0d" + bytes(9)),
        to_topic("t", 0, batch(codec=Codec.ZSTD)),
        to(0),
        acks=5,
        version=6,
    )
    assert codes(answer) == [(3, -1), (100, -1), (87, -1), (2, -1), (76, -1), (21, -1)]
    assert all(each.error_message for each in answer.outcomes)
    assert os_bench.files.writes == []


async def test_zstd_needs_version_7(os_bench):
    zstd = to_topic("t", 0, batch(3, Codec.ZSTD))
    assert codes(await os_bench.send(zstd, version=6)) == [(76, -1)]
    assert codes(await os_bench.send(zstd, version=7)) == [(0, 0)]
    assert codes(await os_bench.send(to_topic("t", 0, b""), version=3)) == [(87, -1)]


async def test_no_partitions(os_bench):
    assert (await os_bench.send()).outcomes == []
    assert (await os_bench.send(acks=-1)).outcomes == []


async def test_acks_all_waits_for_the_sync(bench):
    bench.files.gate.clear()
    written = bench.send(to(0), acks=1)
    unanswered = bench.send(to(0), acks=0)
    durable = bench.send(to(0), to(1), acks=-1)
    assert codes(await asyncio.wait_for(written, 20)) == [(0, 0)]
    assert codes(await asyncio.wait_for(unanswered, 20)) == [(0, 1)]
    await asyncio.sleep(0.05)
    assert not durable.done()
    bench.files.gate.set()
    assert codes(await asyncio.wait_for(durable, 20)) == [(0, 2), (0, 0)]
    assert [log.high_watermark for log in bench.logs] == [3, 1]


async def test_timeout_of_acks_all(bench):
    bench.files.gate.clear()
    started = asyncio.get_running_loop().time()
    refused = to_topic("t", 7, batch())
    answer = await asyncio.wait_for(bench.send(to(0), refused, acks=-1, timeout_ms=60), 20)
    assert codes(answer) == [(7, -1), (3, -1)]
    assert asyncio.get_running_loop().time() - started >= 0.05
    bench.files.gate.set()
    assert await bench.logs[0].durable(1) == 0  # the record became durable all the same


async def test_repetition_of_a_batch_that_is_not_durable_waits_too(bench):
    bench.files.gate.clear()
    again = to_topic("t", 0, batch(2, producer_id=1, producer_epoch=0, base_sequence=0))
    first, second = bench.send(again, acks=-1), bench.send(again, acks=-1)
    await asyncio.sleep(0.05)
    assert (first.done(), second.done()) == (False, False)
    bench.files.gate.set()
    assert (codes(await first), codes(await second)) == ([(0, 0)], [(0, 0)])
    assert bench.logs[0].log_end_offset == 2


@pytest.mark.parametrize("acks", [1, -1])
async def test_repetition_of_a_batch_fails_with_it(os_bench, acks):
    produced = to_topic("t", 0, batch(2, producer_id=1, producer_epoch=0, base_sequence=0))
    os_bench.files.full = True
    answers = await asyncio.gather(os_bench.send(produced, acks=acks), os_bench.send(produced, acks=acks))
    assert [codes(each) for each in answers] == [[(56, -1)], [(56, -1)]]
    os_bench.files.full = False
    assert codes(await os_bench.send(produced, acks=acks)) == [(0, 0)]
    assert codes(await os_bench.send(produced, acks=acks)) == [(0, 0)]
    assert os_bench.logs[0].log_end_offset == 2


async def test_one_partition_that_fails_does_not_acknowledge_the_others(bench):
    """Partition 0's first batch is written; the write of the second takes the log offline."""
    bench.files.gate.clear()
    bench.files.breaks_after = 2
    first = bench.send(to(1), acks=0)
    both = bench.send(to(0), to(1), acks=-1)
    assert codes(await asyncio.wait_for(first, 20)) == [(0, 0)]
    assert codes(await asyncio.wait_for(bench.send(to(0), acks=1), 20)) == [(56, -1)]
    await asyncio.sleep(0.05)
    assert (both.done(), bench.logs[1].high_watermark) == (False, 0)
    bench.files.gate.set()
    assert codes(await asyncio.wait_for(both, 20)) == [(56, -1), (0, 1)]


async def test_a_disk_that_hangs_at_a_roll_holds_up_nobody_else(bench):
    """A batch that begins a segment, and those after it, wait until the segment before it is durable."""
    bench.files.gate.clear()
    bench.logs[0].configure(LogConfig(segment_bytes=100))
    first = bench.send(to(0), acks=1)
    rolling = [bench.send(to(0), acks=acks) for acks in (1, -1)] + [bench.send_run(batch(), batch(2), acks=0)]
    assert codes(await asyncio.wait_for(first, 20)) == [(0, 0)]
    assert codes(await asyncio.wait_for(bench.send(to(1)), 20)) == [(0, 0)]
    assert [answer.done() for answer in rolling] == [False] * 3
    assert (len(bench.logs[0].segments), bench.logs[0].log_end_offset) == (1, 1)
    bench.files.gate.set()
    answers = [codes(await asyncio.wait_for(answer, 20)) for answer in rolling]
    assert answers == [[(0, 1)], [(0, 2)], [(0, 3), (0, 4)]]
    assert list(bench.logs[0].segments.bases) == [0, 1, 2, 3, 4]


async def test_a_batch_that_waits_too_long_for_a_roll_is_dropped(bench):
    bench.files.gate.clear()
    bench.logs[0].configure(LogConfig(segment_bytes=100))
    written = bench.send(to(0), acks=-1)
    dropped = bench.send_run(batch(), batch(), timeout_ms=1)
    assert codes(await asyncio.wait_for(dropped, 20)) == [(7, -1), (7, -1)]
    later = bench.send(to(0), acks=-1)
    bench.files.gate.set()
    assert codes(await asyncio.wait_for(written, 20)) == [(0, 0)]
    assert codes(await asyncio.wait_for(later, 20)) == [(0, 1)]


async def test_batches_that_wait_for_a_roll_are_copied_from_memory_that_their_gateway_reuses(bench):
    bench.files.gate.clear()
    bench.logs[0].configure(LogConfig(segment_bytes=100))
    parts = [batch(), batch(2), batch(3)]
    area = mmap.mmap(-1, 1000)
    area.write(b"".join(parts))
    ends = [0, *itertools.accumulate(map(len, parts))]
    answer = bench.send_run(*(memoryview(area)[begin:end] for begin, end in itertools.pairwise(ends)))
    await asyncio.sleep(0)
    assert bench.logs[0].log_end_offset == 1
    area[:] = bytes(1000)
    bench.files.gate.set()
    assert codes(await asyncio.wait_for(answer, 20)) == [(0, 0), (0, 1), (0, 3)]
    stored = bytes(bench.logs[0].read_batches(3, 1 << 20))
    assert stored == (3).to_bytes(8, "big") + parts[2][8:12] + bytes(4) + parts[2][16:]


async def test_partition_deleted_while_an_append_waits(bench):
    bench.files.gate.clear()
    waiting = bench.send(to(0), acks=-1)
    await asyncio.sleep(0.02)
    bench.directory.delete("t", 0)
    assert codes(await asyncio.wait_for(waiting, 20)) == [(3, -1)]
    assert codes(await bench.send(to(0))) == [(3, -1)]


async def test_closed_service_refuses(os_bench):
    before = os_bench.send(to(0))
    await os_bench.service.close()
    assert codes(await before) == [(0, 0)]
    assert codes(await os_bench.send(to(0))) == [(6, -1)]


async def test_views_and_bytes_are_stored_alike(os_bench):
    data = batch(3)
    await asyncio.gather(
        os_bench.send(to_topic("t", 0, memoryview(b"..." + data)[3:])), os_bench.send(to_topic("t", 0, data))
    )
    stored = os_bench.logs[0].read_batches(0, 1 << 20)
    assert stored[16 : len(data)] == stored[len(data) + 16 :] == data[16:]
    assert [int.from_bytes(stored[at : at + 8], "big") for at in (0, len(data))] == [0, 3]


async def test_a_run_is_one_write_and_each_batch_has_its_outcome(os_bench):
    broken = bytearray(batch())
    broken[-1] ^= 1
    run = os_bench.send_run(batch(2), bytes(broken), batch(3), batch(1))
    behind = os_bench.send(to(0))
    by_id = os_bench.send_run(batch(), topic="", topic_id=TOPIC_ID)
    assert codes(await run) == [(0, 0), (2, -1), (0, 2), (0, 5)]
    assert (codes(await behind), codes(await by_id)) == ([(0, 6)], [(0, 7)])
    assert len(os_bench.files.writes) == 1
    assert os_bench.service.refused == {2: 1}


async def test_a_run_for_an_unknown_partition_or_with_wrong_acks(os_bench):
    good = batch()
    assert codes(await os_bench.send_run(good, good, topic="nothing")) == [(3, -1)] * 2
    assert codes(await os_bench.send_run(good, topic_id=bytes(reversed(TOPIC_ID)))) == [(100, -1)]
    assert codes(await os_bench.send_run(good, b"", acks=5)) == [(21, -1), (87, -1)]
    assert codes(await os_bench.send_run(batch(3, Codec.ZSTD), good, version=6)) == [(76, -1), (0, 0)]


@pytest.mark.parametrize("gone", [False, True])
async def test_a_run_with_acks_all_waits_for_the_sync(bench, gone):
    bench.files.gate.clear()
    broken = batch()[:-1] + b"?"
    waiting = bench.send_run(batch(2), broken, batch(1), acks=-1)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    if gone:
        bench.directory.delete("t", 0)
    bench.files.gate.set()
    good = [(3, -1), (3, -1)] if gone else [(0, 0), (0, 2)]
    assert codes(await asyncio.wait_for(waiting, 20)) == [good[0], (2, -1), good[1]]


async def test_a_run_that_takes_too_long(bench):
    assert codes(await bench.send_run(batch(), acks=-1)) == [(0, 0)]
    bench.files.gate.clear()
    late = bench.send_run(batch(), batch(), acks=-1, timeout_ms=30)
    assert codes(await asyncio.wait_for(late, 20)) == [(7, -1), (7, -1)]
    assert [each.error_message for each in (await late).outcomes] == ["not durable within the request's timeout"] * 2


async def test_a_run_to_a_topic_whose_records_are_looked_at(os_bench):
    os_bench.logs[0].configure(LogConfig(cleanup_policy=frozenset({"compact"})))
    keyless = build_batch([Record(0, 1_700_000_000_000, None, b"v")])
    run = os_bench.send_run(batch(2), keyless, batch(700), batch(1))
    assert codes(await run) == [(0, 0), (87, -1), (0, 2), (0, 702)]


async def test_a_run_is_answered_when_its_last_batch_is_durable(bench):
    """The run's first batch repeats one that an earlier sync makes durable."""
    first = batch(producer_id=1, producer_epoch=0, base_sequence=0)
    second = batch(producer_id=1, producer_epoch=0, base_sequence=1)
    bench.files.gate.clear()
    await bench.send(to_topic("t", 0, first), acks=1)
    assert await asyncio.to_thread(bench.files.reached.wait, 20)
    run = bench.send_run(first, second, acks=-1)
    await asyncio.sleep(0.02)
    first_gate, bench.files.gate = bench.files.gate, threading.Event()
    first_gate.set()
    assert await asyncio.wait_for(bench.logs[0].durable(1), 20) == 0
    assert (bench.logs[0].high_watermark, run.done()) == (1, False)
    bench.files.gate.set()
    assert codes(await asyncio.wait_for(run, 20)) == [(0, 0), (0, 1)]
