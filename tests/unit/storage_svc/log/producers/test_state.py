"""Duplicates, sequences, epochs, and the producer state after a start."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from storage_svc.log.config import LogConfig
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.producers import state as producer_state
from storage_svc.log.producers.snapshot_file import SnapshotEntry, UnreadableSnapshot, decode_snapshot
from storage_svc.log.producers.state import ProducedBatch, Producer, ProducerState

OUT_OF_ORDER, INVALID_EPOCH = 45, 47


@pytest.fixture
def produce(make_batch):
    def produce(log, sequence, count=1, *, epoch=0, producer=7):
        batch = make_batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        appended = log.append(batch)
        return appended.error_code, appended.base_offset

    return produce


@pytest.fixture
def log(tmp_path, folders):
    return folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())


def test_repeated_batches_get_their_first_offset(log, produce):
    assert [produce(log, sequence, 2) for sequence in (0, 2, 4, 6, 8)] == [(0, n) for n in (0, 2, 4, 6, 8)]
    assert [produce(log, sequence, 2) for sequence in (0, 2, 4, 6, 8)] == [(0, n) for n in (0, 2, 4, 6, 8)]
    assert log.log_end_offset == 10
    assert produce(log, 10, 1) == (0, 10)
    assert produce(log, 0, 2) == (OUT_OF_ORDER, -1)  # six back: forgotten
    assert produce(log, 2, 1) == (OUT_OF_ORDER, -1)  # part of a batch is not that batch
    assert log.log_end_offset == 11


def test_gaps_and_epochs(log, produce):
    assert produce(log, 5) == (0, 0)  # nothing is known of the producer: it may begin anywhere
    assert produce(log, 7) == (OUT_OF_ORDER, -1)
    assert produce(log, 3, epoch=1) == (OUT_OF_ORDER, -1)
    assert produce(log, 0, epoch=1) == (0, 1)
    assert produce(log, 6, epoch=0) == (INVALID_EPOCH, -1)
    assert produce(log, 0, producer=8) == (0, 2)
    assert produce(log, 1, epoch=1) == (0, 3)


def test_sequences_wrap(log, produce):
    top = 2**31 - 1
    assert produce(log, top - 1, 3) == (0, 0)  # top - 1, top, 0
    assert produce(log, 1) == (0, 3)
    assert produce(log, top - 1, 3) == (0, 0)
    assert produce(log, top, 1) == (OUT_OF_ORDER, -1)


def test_sequence_is_required(log, make_batch):
    assert log.append(make_batch(1, producer_id=7, producer_epoch=0)).error_code == 87


@pytest.mark.parametrize("how", ["stop", "crash"])
@pytest.mark.parametrize("snapshot", ["kept", "lost", "broken"])
def test_a_restart_knows_the_last_five_batches(tmp_path, folders, produce, small, how, snapshot):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), small)
    for sequence in range(0, 80, 2):
        assert produce(log, sequence, 2) == (0, sequence)
    getattr(folders, how)(directory)
    found = sorted((tmp_path / "t-0").glob("*.snapshot"))
    assert len(found) == (3 if how == "stop" else 2)
    if snapshot != "kept":
        found[-1].unlink() if snapshot == "lost" else found[-1].write_bytes(found[-1].read_bytes()[:-1])
    log = folders.open(tmp_path).create("t", 0, bytes(16), small)
    assert produce(log, 68, 2) == (OUT_OF_ORDER, -1)
    assert [produce(log, sequence, 2) for sequence in range(70, 80, 2)] == [(0, n) for n in range(70, 80, 2)]
    kept = log.producers.producers[7].batches
    assert [batch.last_offset for batch in kept] == [71, 73, 75, 77, 79]
    assert produce(log, 81) == (OUT_OF_ORDER, -1)
    assert produce(log, 80) == (0, 80)
    assert log.log_end_offset == 81


def test_batches_from_before_the_snapshot_are_found_among_those_of_others(tmp_path, folders, produce, small):
    """Producer 1 wrote three batches long ago; two segments and many batches of producer 2 come after them."""
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), small)
    for sequence in range(3):
        produce(log, sequence, producer=1)
    for sequence in range(60):
        produce(log, sequence, producer=2)
    assert len(log.segments) >= 3
    folders.stop(directory)
    log = folders.open(tmp_path).create("t", 0, bytes(16), small)
    assert len(log.producers.producers[1].batches) == 1
    assert [produce(log, sequence, producer=1) for sequence in range(3)] == [(0, 0), (0, 1), (0, 2)]
    assert produce(log, 4, producer=1) == (OUT_OF_ORDER, -1)
    assert [produce(log, sequence, producer=2) for sequence in range(54, 61)] == [
        (OUT_OF_ORDER, -1),
        *((0, 3 + sequence) for sequence in range(55, 61)),
    ]


def test_snapshot_bytes(log, tmp_path, produce):
    produce(log, 3, 2, epoch=1, producer=9)
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 9, 1, 4, 1, 1, 1_700_000_000_001, -1, -1)
    assert log.producers.encode() == struct.pack(">hI", 1, crc32c(body)) + body
    log.roll(0)
    assert (tmp_path / "t-0" / f"{2:020d}.snapshot").read_bytes() == log.producers.encode()


def test_a_snapshot_packs_the_producers_that_have_changed(monkeypatch):
    state, packed = ProducerState(), []
    pack = Producer.pack

    def noted(producer, producer_id):
        packed.append(producer_id)
        return pack(producer, producer_id)

    monkeypatch.setattr(Producer, "pack", noted)

    def snapshot() -> tuple[list[int], list[SnapshotEntry]]:
        packed.clear()
        entries = decode_snapshot(state.encode())
        return packed.copy(), entries[-1]

    def add(producer_id, sequence, offset, *, transactional=False):
        state.add(producer_id, 0, sequence, offset, 0, 5, transactional, 0)

    for producer_id in range(3):
        add(producer_id, 0, producer_id)
    state.keep()
    assert snapshot() == ([0, 1, 2], SnapshotEntry(2, 0, 0, 2, 0, 5, -1, -1))
    assert snapshot() == ([], SnapshotEntry(2, 0, 0, 2, 0, 5, -1, -1))
    add(2, 1, 3, transactional=True)
    state.keep()
    assert snapshot() == ([2], SnapshotEntry(2, 0, 1, 3, 0, 5, -1, 3))
    add(2, 2, 4)
    state.take_back()
    assert snapshot() == ([2], SnapshotEntry(2, 0, 1, 3, 0, 5, -1, 3))
    state.end(2, 1, 7, 4, 6, 0)
    assert snapshot() == ([2], SnapshotEntry(2, 1, -1, -1, 0, 6, 7, -1))


def test_many_producers_are_packed_as_they_change(monkeypatch):
    """A roll is one step of the event loop, and packing 100,000 producers takes 80 ms."""
    monkeypatch.setattr(producer_state, "_PACKED_TOGETHER", 3)
    state = ProducerState()
    for producer_id in range(5):
        state.add(producer_id, 0, 0, producer_id, 0, 5, False, 0)
        state.keep()
    assert (len(state._places), state._changed) == (3, {3, 4})


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["add", "take back", "end", "expire", "encode"]))))
def test_a_snapshot_has_the_producers_that_are_known(steps):
    state = ProducerState()
    for offset, (producer_id, step) in enumerate(steps):
        if step == "expire":
            if producer_id in state.producers:
                state.producers[producer_id].seen_ms = 0
            list(state.expire(5))
        elif step == "encode":
            state.encode()
        elif step == "end":
            state.end(producer_id, 0, 0, offset, 5, 10)
        else:
            state.add(producer_id, 0, 0, offset, 0, 5, False, 10)
            state.keep() if step == "add" else state.take_back()
    entries = decode_snapshot(state.encode())
    assert {each.producer_id: each for each in entries} == {
        key: SnapshotEntry(*struct.unpack(">qhiqiqiq", each.pack(key))) for key, each in state.producers.items()
    }
    assert len(entries) == len(state.producers)


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"", lambda d: d + b"x", lambda d: b"\0\2" + d[2:]])
def test_damaged_snapshot(log, produce, damage):
    produce(log, 0)
    state = ProducerState()
    with pytest.raises(UnreadableSnapshot):
        state.load(damage(log.producers.encode()), 1, 0)
    assert len(state) == 0


async def test_producers_expire_by_our_clock(tmp_path, folders, make_batch):
    """Timestamps of records may be of any age and do not count."""
    now = [1_700_000_000_000]
    directory = folders.open(tmp_path, clock=lambda: now[0])
    log = directory.create("t", 0, bytes(16), LogConfig())
    log.append(make_batch(1, timestamp=5, producer_id=1, producer_epoch=0, base_sequence=0))
    now[0] += 86_400_000
    log.append(make_batch(1, timestamp=5, producer_id=2, producer_epoch=0, base_sequence=0))
    await Maintenance(directory).expire_producers()
    assert set(log.producers.producers) == {1, 2}
    now[0] += 1
    await Maintenance(directory).expire_producers()
    assert set(log.producers.producers) == {2}


def test_an_idle_producer_costs_half_a_kilobyte():
    """A day of new producers stays in memory until they expire: docs/operations.md counts with this figure."""
    count, state = 2000, ProducerState()
    tracemalloc.start()
    for number in range(count):
        at = 1_700_000_000_000 + number
        batch = ProducedBatch(9, 1_000_000 + 10 * number, 9, at)
        state.producers[1_000_000 + number] = Producer(0, [batch], at + 1, at)
    state.encode()  # a roll keeps each producer's entry of the snapshot
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert allocated / count < 560
