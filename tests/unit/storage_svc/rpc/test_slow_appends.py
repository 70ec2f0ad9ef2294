"""Batches whose records take long to look at: the event loop goes on, and each partition keeps its order."""

from __future__ import annotations

import asyncio
import mmap
import time

import pytest
from broker_contract.data import Append, AppendResponse, TopicIdPartition
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec, compress
from protocol_lib.records.header import HEADER_SIZE
from protocol_lib.records.record import Record, read_records
from service_chassis.time_slices import TimeSlices
from storage_svc.log.batch.admission import admit
from storage_svc.log.batch.header import unpack_header
from storage_svc.log.batch.record_checks import TOO_SLOW, checked
from storage_svc.log.batch.room import BATCH_BYTES, QUICK_STEPS, RECOMPRESSED_BATCH_BYTES, STEPS, Room
from storage_svc.log.batch.rules import Rules
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.rpc.data import DataService
from support.crafted_batches import edited, with_records
from support.scripted_transactions import NoTransactions

NOW_MS = 1_700_000_000_000


@pytest.fixture
async def directory(tmp_path):
    directory = DataFolder.open(tmp_path, LogSettings(flush_policy=FlushPolicy.GROUP), clock=lambda: NOW_MS)
    compacted = LogConfig.from_properties({"cleanup.policy": "compact"})
    directory.create_many("compacted", range(2), bytes(16), compacted)
    directory.create("believed", 0, bytes(16), LogConfig(millrace_record_validation="header"))
    directory.start(asyncio.get_running_loop())
    yield directory
    directory.check_invariants()
    await directory.close()


@pytest.fixture
async def service(directory):
    service = DataService(directory, lambda _: None, NoTransactions())
    yield service
    await service.close()


def batch(count: int, *, keyless: int = -1, **options) -> bytes:
    records = [Record(n, NOW_MS, None if n == keyless else b"k", b"v") for n in range(count)]
    return build_batch(records, **options)


def send(service, *partitions: tuple[str, int, bytes], acks: int = -1) -> asyncio.Future[AppendResponse]:
    answer = asyncio.get_running_loop().create_future()
    named = [TopicIdPartition(topic, partition) for topic, partition, _ in partitions]
    batches = [records for _, _, records in partitions]
    service.append(Append(1, "client", 9, acks, 60_000, named, batches), answer.set_result)
    return answer


def codes(response: AppendResponse) -> list[tuple[int, int]]:
    return [(each.error_code, each.base_offset) for each in response.outcomes]


@pytest.fixture(scope="module")
def slow_batch() -> bytes:
    """A batch that takes long to check."""
    return batch(20_000, codec=Codec.GZIP)


@pytest.mark.parametrize("acks", [-1, 1])
async def test_a_partition_keeps_its_order_and_others_go_on(service, acks, slow_batch):
    answers = {
        "slow": send(service, ("compacted", 0, slow_batch), acks=acks),
        "behind": send(service, ("compacted", 0, batch(2)), ("compacted", 1, batch(1)), acks=acks),
        "beside": send(service, ("compacted", 1, batch(1)), ("believed", 0, slow_batch), acks=acks),
        "slow again": send(service, ("compacted", 0, slow_batch), acks=acks),
        "last": send(service, ("compacted", 0, batch(3)), acks=acks),
    }
    order = []
    for name, answer in answers.items():
        answer.add_done_callback(lambda _, name=name: order.append(name))
    found = [codes(await answer) for answer in answers.values()]
    assert found == [[(0, 0)], [(0, 20_000), (0, 0)], [(0, 1), (0, 0)], [(0, 20_002)], [(0, 40_002)]]
    assert order[0] == "beside"
    later = send(service, ("compacted", 0, batch(1)), acks=acks)
    assert codes(await later) == [(0, 40_005)]


async def test_sequences_go_on_across_a_slow_batch(service):
    sent = []
    for sequence, count in ((0, 1), (1, 20_000), (20_001, 1), (20_002, 20_000)):
        records = batch(count, codec=Codec.GZIP, producer_id=5, producer_epoch=0, base_sequence=sequence)
        sent += [(records, send(service, ("compacted", 0, records))) for _ in range(2)]
    assert [codes(await answer) for _, answer in sent] == [
        [(0, offset)] for offset in (0, 0, 1, 1, 20_001, 20_001, 20_002, 20_002)
    ]


async def test_refusals(service, directory, slow_batch):
    broken = bytearray(slow_batch)
    broken[-1] ^= 1
    answers = [
        send(service, ("compacted", 0, batch(2000, keyless=1234))),
        send(service, ("compacted", 0, bytes(broken))),
        send(service, ("compacted", 0, batch(1))),
    ]
    assert [codes(await answer) for answer in answers] == [[(87, -1)], [(2, -1)], [(0, 0)]]
    (refused,) = (await answers[0]).outcomes
    assert [index for index, _ in refused.record_errors] == [1234]
    assert service.refused == {87: 1, 2: 1}
    assert directory.logs["compacted", 0].log_end_offset == 1


async def test_batches_are_copied_from_memory_that_their_gateway_reuses(service, directory, slow_batch):
    area = mmap.mmap(-1, 2 * len(slow_batch))
    area.write(2 * slow_batch)
    both = [memoryview(area)[: len(slow_batch)], memoryview(area)[len(slow_batch) :]]
    answers = [send(service, ("compacted", 0, records)) for records in both]
    await asyncio.sleep(0)
    area[:] = bytes(2 * len(slow_batch))
    assert [codes(await answer) for answer in answers] == [[(0, 0)], [(0, 20_000)]]


async def test_a_partition_deleted_while_batches_wait(service, directory, slow_batch):
    answer = send(service, ("compacted", 0, slow_batch))
    await asyncio.sleep(0)
    directory.delete("compacted", 0)
    assert codes(await answer) == [(3, -1)]


async def test_closing_waits_for_batches_that_are_looked_at(directory, slow_batch):
    service = DataService(directory, lambda _: None, NoTransactions())
    answers = [send(service, ("compacted", 0, slow_batch)), send(service, ("compacted", 0, batch(1)))]
    await service.close()
    assert [codes(await answer) for answer in answers] == [[(0, 0)], [(0, 20_000)]]


def slow(records: bytes, room: Room | None = None, **properties: str) -> bool:
    rules = Rules(LogConfig.from_properties(properties))
    view = memoryview(records)
    return checked(view, unpack_header(view), rules, NOW_MS, None, room or Room()) is TOO_SLOW


def value(size: int, codec: Codec) -> bytes:
    return build_batch([Record(0, NOW_MS, b"k", bytes(size))], codec=codec)


def test_slow_batches() -> None:
    large = value(1000, Codec.NONE)
    assert slow(edited(large, 57, ">i", STEPS + 1))
    assert not slow(edited(large, 57, ">i", STEPS))
    assert not slow(value(10 * BATCH_BYTES, Codec.NONE))
    for codec in list(Codec)[1:]:
        assert slow(value(BATCH_BYTES, codec)), codec
        assert not slow(value(BATCH_BYTES - 200, codec)), codec
    for codec in Codec:
        name = "gzip" if codec is not Codec.GZIP else "lz4"
        assert slow(value(RECOMPRESSED_BATCH_BYTES, codec), **{"compression.type": name}), codec
        assert not slow(value(RECOMPRESSED_BATCH_BYTES - 200, codec), **{"compression.type": name}), codec
    assert not slow(value(100_000, Codec.ZSTD)[:-9])


class CountedTurns(TimeSlices):
    count = 0

    def turn(self) -> None:
        self.count += 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_records_whose_offsets_are_made_right_are_rewritten_in_a_thread(codec) -> None:
    one = batch(1)[HEADER_SIZE:]
    at_offset_0 = with_records(compress(codec, one * 1000), 1000, codec)
    assert slow(at_offset_0)
    turns, view = CountedTurns(), memoryview(at_offset_0)
    rewritten, header = checked(view, unpack_header(view), Rules(LogConfig()), NOW_MS, turns, None)
    assert [record.offset for record in read_records(rewritten)] == list(range(1000))
    assert header[6:9] == (999, NOW_MS, NOW_MS)
    assert turns.count >= 4


def test_headers_of_a_record_count_as_records_do() -> None:
    many = [Record(0, NOW_MS, b"k", b"v", (("", None),) * STEPS), Record(1, NOW_MS, b"k", b"v")]
    assert slow(build_batch(many))
    assert not slow(build_batch(many[1:], base_offset=1))


def test_a_turn_checks_for_so_long_and_no_longer() -> None:
    room, small = Room(), value(1000, Codec.NONE)
    whole = room.seconds
    assert not slow(small, room)
    assert 0 < room.seconds < whole
    room.seconds = 0.0
    assert slow(small, room)
    room.renew()
    assert not slow(small, room)


def test_a_small_sound_batch_is_checked_in_a_turn_without_room() -> None:
    room, rules = Room(), Rules(LogConfig())
    room.seconds = 0.0
    for count, is_small in ((QUICK_STEPS, True), (QUICK_STEPS + 1, False)):
        view = memoryview(build_batch([Record(index, NOW_MS, b"k", b"v") for index in range(count)]))
        admitted = admit(view, rules, NOW_MS, room=room)
        assert admitted == (view, unpack_header(view)) if is_small else admitted is TOO_SLOW


def test_a_thousand_batches_without_room_hold_up_no_turn() -> None:
    """A frame of a gateway has as many, of many clients."""
    room, rules = Room(), Rules(LogConfig())
    room.seconds = 0.0
    view = memoryview(batch(QUICK_STEPS))
    seconds = []
    for _ in range(3):
        started = time.thread_time()
        for _ in range(1000):
            admit(view, rules, NOW_MS, room=room)
        seconds.append(time.thread_time() - started)
    assert min(seconds) < 0.02
