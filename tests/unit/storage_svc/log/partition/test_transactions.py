"""Transactions in one log: the batches that may be appended, the end of committed reads, the batches they leave out."""

from __future__ import annotations

import os
import random
import shutil
import struct

import pytest
from protocol_lib.records.batch import read_batches
from protocol_lib.records.control import ControlType, EndTransactionMarker, read_marker
from protocol_lib.records.record import read_records
from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DiskFull, StorageFailure
from storage_svc.log.partition.partition_log import Origin, Retry
from storage_svc.log.partition.transaction_end import end_transaction

INVALID_EPOCH, INVALID_TXN_STATE, COORDINATOR_FENCED, STORAGE_ERROR = 47, 48, 52, 56


@pytest.fixture
def log(tmp_path, folders):
    return folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())


@pytest.fixture
def produce(make_batch):
    """Append a batch; (error code, base offset)."""

    def produce(log, producer, sequence, count=1, *, epoch=0, transactional=True, **options):
        batch = make_batch(
            count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
        )
        appended = log.append(batch, **options)
        return appended.error_code, appended.base_offset

    return produce


def end(log, producer, *, commit, epoch=0, coordinator_epoch=0):
    appended = end_transaction(log, producer, epoch, commit=commit, coordinator_epoch=coordinator_epoch)
    return appended.error_code, appended.base_offset


def committed(log, offset=0, max_bytes=1 << 20):
    """Return the view of a read_committed consumer: (base offsets of the batches, aborted transactions)."""
    spans = log.spans(offset, max_bytes, min_one=True, committed=True)
    data = b"".join(segment.read(position, length) for segment, position, length in spans)
    return [header.base_offset for header, _ in read_batches(data)], log.transactions.aborted(offset, spans)


def test_a_transaction_begins_when_the_coordinator_says_so(log, produce):
    assert produce(log, 7, 0, verified=False) == (INVALID_TXN_STATE, -1)
    assert produce(log, 7, 0, transactional=False) == (0, 0)  # none is open yet
    assert produce(log, 7, 1) == (0, 1)
    assert produce(log, 7, 2, transactional=False) == (INVALID_TXN_STATE, -1)
    assert produce(log, 7, 1, verified=False) == (0, 1)  # a repetition
    assert produce(log, 7, 0, epoch=1, verified=False) == (INVALID_TXN_STATE, -1)
    assert end(log, 7, commit=True) == (0, 2)
    assert produce(log, 7, 2, verified=False) == (INVALID_TXN_STATE, -1)
    assert produce(log, 7, 2, transactional=False) == (0, 3)
    assert log.log_end_offset == 4


def test_markers_are_control_batches_of_kafkas_format(log, produce):
    produce(log, 7, 0, epoch=3)
    assert end(log, 7, commit=True, epoch=3, coordinator_epoch=9) == (0, 1)
    ((header, batch),) = read_batches(log.read_batches(1, 1000))
    assert (header.is_control, header.is_transactional, header.records_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    (record,) = read_records(batch)
    assert read_marker(record) == EndTransactionMarker(ControlType.COMMIT, 9)


def test_markers_are_fenced_by_both_epochs(log, produce):
    produce(log, 7, 0, epoch=1)
    assert end(log, 7, commit=False, epoch=0) == (INVALID_EPOCH, -1)
    assert end(log, 7, commit=True, epoch=1, coordinator_epoch=5) == (0, 1)
    assert end(log, 7, commit=True, epoch=1, coordinator_epoch=4) == (COORDINATOR_FENCED, -1)
    assert end(log, 7, commit=True, epoch=1, coordinator_epoch=5) == (0, 2)  # repeated after a crash


def test_a_marker_of_version_2_is_newer_than_its_transaction(log, produce):
    """Kafka's ProducerAppendInfo: one of the same epoch is a late one, unless nothing is open (it is repeated)."""

    def end_2(epoch):
        appended = end_transaction(log, 7, epoch, commit=True, coordinator_epoch=0, transaction_version=2)
        return appended.error_code, appended.base_offset

    assert produce(log, 7, 0, epoch=1) == (0, 0)
    assert end_2(1) == (INVALID_EPOCH, -1)
    assert end_2(2) == (0, 1)
    assert end_2(2) == (0, 2)
    assert end_2(1) == (INVALID_EPOCH, -1)
    assert produce(log, 7, 0, epoch=2) == (0, 3)
    assert end_2(2) == (INVALID_EPOCH, -1)
    assert end(log, 7, commit=False, epoch=2) == (0, 4)  # as version 1, and tools that end what hangs


def test_a_verified_batch_waits_and_must_be_verified_again(tmp_path, folders, make_batch):
    """A batch that begins a segment is staged once the one before it is durable: much may have happened by then."""
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    log = directory.create("t", 0, bytes(16), LogConfig(segment_bytes=1 << 20))
    filling = make_batch(1, size=(1 << 20) - 1000)
    assert log.append(filling).error_code == 0
    batch = make_batch(1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, size=2000)
    assert log.append(batch, may_wait=True) is Retry.AFTER_SYNC
    directory.flusher.sync_now()
    view, now_ms = memoryview(batch), log.now_ms()
    staged = log.stage(view, Origin.CLIENT, now_ms, may_wait=True, may_verify=True)
    assert staged is Retry.AFTER_VERIFY
    assert log.append(batch, may_wait=True, verified=False).error_code == INVALID_TXN_STATE
    assert log.append(batch, may_wait=True).error_code == 0


def test_a_marker_of_a_new_epoch_fences_the_old_one(log, produce):
    """A coordinator writes one when it aborts for a producer it has lost (transaction version 2 does at every end)."""
    produce(log, 7, 0, 3)
    assert end(log, 7, commit=False, epoch=1) == (0, 3)
    assert produce(log, 7, 3) == (INVALID_EPOCH, -1)
    assert produce(log, 7, 3, epoch=1) == (45, -1)
    assert produce(log, 7, 0, epoch=1) == (0, 4)


def test_committed_readers_stop_at_the_first_open_transaction(log, produce):
    produce(log, 1, 0, transactional=False)
    for producer in (7, 8):
        produce(log, producer, 0, 2)
    produce(log, 1, 1, transactional=False)
    assert (log.last_stable_offset, log.high_watermark) == (1, 6)
    assert committed(log) == ([0], [])
    assert committed(log, 1) == ([], [])
    end(log, 7, commit=True)  # at 6
    assert (log.last_stable_offset, committed(log)) == (3, ([0, 1], []))
    end(log, 8, commit=False)  # at 7
    assert (log.last_stable_offset, committed(log)) == (8, ([0, 1, 3, 5, 6, 7], [(8, 3)]))


def test_the_index_names_what_was_aborted(tmp_path, log, produce):
    index = tmp_path / "t-0" / f"{0:020d}.txnindex"
    for producer, sequence in ((7, 0), (8, 0), (7, 1)):
        produce(log, producer, sequence)
    end(log, 9, commit=False)  # at 3: nothing was open
    assert not index.exists()
    end(log, 7, commit=False)  # at 4, while 8 is open since 1
    end(log, 8, commit=True)  # at 5
    assert index.read_bytes() == struct.pack(">hqqqq", 0, 7, 0, 4, 1)


def test_the_aborted_list_covers_what_was_read(tmp_path, folders, produce, small):
    """Transactions of producer 7, each two batches and a marker, every other one aborted, over several segments."""
    log = folders.open(tmp_path).create("t", 0, bytes(16), small)
    firsts = []
    for number in range(40):
        _, first = produce(log, 7, 2 * number)
        produce(log, 7, 2 * number + 1)
        if number % 2:
            firsts.append(first)
        end(log, 7, commit=not number % 2)
    assert len(log.segments) > 3
    for start in range(0, log.log_end_offset, 5):
        for size in (1, 400, 1000, 5000):
            batches, aborted = committed(log, start, size)
            below = batches[-1] + 1
            wanted = [(7, first) for first in firsts if first < below and first + 2 >= start]
            assert aborted[: len(wanted)] == wanted, (start, size)
            assert all(first < below + 1 for _, first in aborted)


def test_a_decision_counts_once_it_is_durable(tmp_path, folders, produce):
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    log = directory.create("t", 0, bytes(16), LogConfig())
    produce(log, 7, 0)
    directory.flusher.sync_now()
    end(log, 7, commit=True)
    assert (log.last_stable_offset, log.high_watermark, log.log_end_offset) == (0, 1, 2)
    directory.flusher.sync_now()
    assert (log.last_stable_offset, log.high_watermark) == (2, 2)


class FailingFiles(Files):
    """Real files; writes to files of one suffix fail while `error` is set."""

    suffix = ""
    error: Exception | None = None

    def append(self, descriptor, parts, position, size):
        if self.error is not None and os.readlink(f"/proc/self/fd/{descriptor}").endswith(self.suffix):
            super().append(descriptor, parts, position, size)  # some of it may have been written
            raise self.error
        super().append(descriptor, parts, position, size)


@pytest.mark.parametrize("suffix", [".txnindex", ".log"])
@pytest.mark.parametrize("error", [DiskFull("full"), StorageFailure("broken")])
def test_a_marker_that_cannot_be_written_moves_nothing(tmp_path, folders, produce, suffix, error):
    files = FailingFiles()
    directory = folders.open(tmp_path, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig())
    produce(log, 7, 0)
    files.suffix, files.error = suffix, error
    assert end(log, 7, commit=False) == (STORAGE_ERROR, -1)
    assert (log.last_stable_offset, log.log_end_offset) == (0, 1)
    assert (tmp_path / "t-0" / f"{0:020d}.txnindex").read_bytes() == b""
    files.error = None
    if isinstance(error, DiskFull):
        assert end(log, 7, commit=False) == (0, 1)
        assert (log.last_stable_offset, committed(log)) == (2, ([0, 1], [(7, 0)]))
    else:
        assert end(log, 7, commit=False) == (STORAGE_ERROR, -1)


@pytest.fixture
def written(tmp_path, folders, produce, small):
    """A log of several segments with committed, aborted and open transactions: (directory, the expected state at a
    start).
    """
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), small)
    for number in range(45):
        producer = 7 + number % 3
        produce(log, producer, number // 3)
        if number >= 3 and number % 4:
            end(log, producer, commit=number % 2 == 0, coordinator_epoch=number)
    assert len(log.segments) > 3
    assert 0 < log.last_stable_offset < log.log_end_offset
    return directory, facts(log)


def facts(log):
    found = {segment.base_offset: list(segment.transaction_index) for segment in log.segments}
    return log.last_stable_offset, log.log_end_offset, found, committed(log), sorted(log.producers.encode()[10:])


@pytest.mark.parametrize("how", ["stop", "crash"])
@pytest.mark.parametrize("damage", ["none", "index", "snapshots", "both", "no index"])
def test_a_start_finds_every_transaction_again(tmp_path, folders, small, written, how, damage):
    directory, wanted = written
    indexes = {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*.txnindex")}
    assert len(indexes) > 2
    getattr(folders, how)(directory)
    if damage in ("index", "both"):
        for number, path in enumerate(sorted((tmp_path / "t-0").glob("*.txnindex"))):
            content = path.read_bytes()
            edits = content[:-1], b"\0\1" + content[2:], content + content[-34:], content[:18] + b"\x7f" + content[19:]
            path.write_bytes(edits[number % 4])
    if damage == "no index" and how == "crash":
        for path in (tmp_path / "t-0").glob("*.txnindex"):
            path.unlink()
    if damage in ("snapshots", "both"):
        for path in (tmp_path / "t-0").glob("*.snapshot"):
            path.write_bytes(path.read_bytes()[:-1])
    log = folders.open(tmp_path).create("t", 0, bytes(16), small)
    assert facts(log) == wanted
    assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*.txnindex")} == indexes


def test_an_open_transaction_goes_on_after_a_start(tmp_path, folders, produce):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), LogConfig())
    produce(log, 7, 0)
    folders.crash(directory)
    log = folders.open(tmp_path).logs["t", 0]
    assert produce(log, 7, 1) == (0, 1)
    assert end(log, 7, commit=True) == (0, 2)
    assert produce(log, 7, 2, verified=False) == (INVALID_TXN_STATE, -1)


def test_producers_with_an_open_transaction_do_not_expire(log, produce):
    for producer in (7, 8):
        produce(log, producer, 0)
    end(log, 8, commit=True)
    list(log.producers.expire(2**62))
    assert set(log.producers.producers) == {7}


def test_a_coordinators_transactional_records_have_no_sequence(log, produce):
    """Offsets committed in a transaction: they are written for the producer, not by it."""
    assert produce(log, 7, -1, epoch=2, origin=Origin.COORDINATOR) == (0, 0)
    assert produce(log, 7, -1, epoch=1, origin=Origin.COORDINATOR) == (INVALID_EPOCH, -1)
    assert log.last_stable_offset == 0
    assert end(log, 7, commit=True, epoch=2) == (0, 1)
    assert log.last_stable_offset == 2


def test_any_flip_in_a_transaction_index_is_found_or_harmless(tmp_path, folders, small, written):
    """The format has no checksum; a wrong entry would show aborted records."""
    directory, wanted = written
    folders.stop(directory)
    stopped = tmp_path.with_name(tmp_path.name + "-stopped")
    shutil.copytree(tmp_path, stopped)
    for name in sorted(path.name for path in (stopped / "t-0").glob("*.txnindex"))[:2]:
        content = (stopped / "t-0" / name).read_bytes()
        for at in range(min(len(content), 68)):
            shutil.rmtree(tmp_path)
            shutil.copytree(stopped, tmp_path)
            (tmp_path / "t-0" / name).write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
            directory = folders.open(tmp_path)
            log = directory.create("t", 0, bytes(16), small)
            assert committed(log) == wanted[3], (name, at)
            folders.crash(directory)


def visible(log, most, max_bytes):
    """Read the whole log as a read_committed consumer; return the records' offsets and the longest list it got."""
    offset, offsets, longest = 0, [], 0
    while offset < log.last_stable_offset:
        spans, aborted = log.transactions.read(offset, max_bytes, most, min_one=True)
        assert spans, f"no progress at {offset}"
        longest = max(longest, len(aborted))
        waiting, left_out = sorted(aborted, key=lambda each: each[1]), set()
        data = b"".join(segment.read(position, length) for segment, position, length in spans)
        for header, batch in read_batches(data):
            while waiting and waiting[0][1] <= header.last_offset:
                left_out.add(waiting.pop(0)[0])
            if header.is_control:
                left_out.discard(header.producer_id)
            elif header.last_offset >= offset and header.producer_id not in left_out:
                offsets += [each.offset for each in read_records(batch) if each.offset >= offset]
            end = header.last_offset + 1
        offset = end
    return offsets, longest


@pytest.mark.parametrize("seed", range(5))
def test_a_short_list_of_aborted_transactions_hides_the_same_records(tmp_path, folders, produce, make_batch, seed):
    draw = random.Random(seed)
    log = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig(segment_bytes=3000))
    sequences, is_open, committed_offsets, own = dict.fromkeys(range(8), 0), set(), [], {}
    for _ in range(300):
        producer = draw.randrange(8)
        if producer in is_open and draw.random() < 0.4:
            commit = draw.random() < 0.3
            assert end(log, producer, commit=commit)[0] == 0
            is_open.discard(producer)
            committed_offsets += own.pop(producer) if commit else []
            own.pop(producer, None)
        else:
            code, base = produce(log, producer, sequences[producer], count := draw.randint(1, 3))
            assert code == 0
            sequences[producer] += count
            is_open.add(producer)
            own.setdefault(producer, []).extend(range(base, base + count))
    for producer in is_open:
        end(log, producer, commit=False)
    expected = sorted(committed_offsets)
    assert visible(log, 1 << 20, 1 << 20)[0] == expected
    for most in (0, 1, 3, 10):
        offsets, longest = visible(log, most, 1 << 20)
        assert offsets == expected
        assert longest <= max(most, 7) + 1  # all producers but one may be open at an offset
    assert visible(log, 2, 1)[0] == expected  # a batch at a time


def test_a_list_of_aborted_transactions_is_as_long_as_it_may_be(log, produce):
    assert produce(log, 1, 0) == (0, 0)  # it holds back the last stable offset of all entries
    for number in range(10):
        assert produce(log, 2, number)[0] == 0
        assert end(log, 2, commit=False)[0] == 0
    assert end(log, 1, commit=True)[0] == 0
    for number in range(10):
        assert produce(log, 2, 10 + number)[0] == 0
        assert end(log, 2, commit=False)[0] == 0
    assert [len(log.transactions.read(offset, 1 << 20, 4, min_one=True)[1]) for offset in (0, 1, 22, 30)] == [4] * 4
    assert log.transactions.read(0, 1 << 20, 4, min_one=True)[1] == [(2, 1), (2, 3), (2, 5), (2, 7)]
    assert len(log.transactions.read(0, 1 << 20, 20, min_one=True)[1]) == 20
    assert log.transactions.read(0, 0, 4, min_one=False) == ([], [])
