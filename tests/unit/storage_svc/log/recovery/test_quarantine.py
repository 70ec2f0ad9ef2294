"""Damage in the middle of a log: copied aside and cut out, everything else stays readable, the log goes on."""

from __future__ import annotations

import pytest
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DiskFull
from storage_svc.log.inspection.verification import Totals, verify
from storage_svc.log.partition.partition_log import Origin

from tests.unit.storage_svc.log.recovery.damage import batches, flipped, log_file, position_of, quarantined


@pytest.fixture
def crashed(tmp_path, folders, fill):
    """A folder whose process died with five batches in one segment; (path, stored batches)."""
    directory = folders.open(tmp_path / "data")
    stored = fill(directory.create("t", 0, bytes(range(16)), LogConfig()), [2, 1, 3, 2, 1], size=100)
    folders.crash(directory)
    return tmp_path / "data", stored


@pytest.mark.parametrize("number", [0, 2])
def test_a_flip_anywhere_in_a_batch_costs_that_batch_only(crashed, folders, read_all, make_batch, number):
    """Fields outside the CRC are put right from the neighbours, and cost nothing."""
    path, stored = crashed
    whole = log_file(path).read_bytes()
    start, size = position_of(stored, number), len(stored[number][1])
    others = batches(stored, number)
    for at in (*range(61), 62, size // 2, size - 1):
        log_file(path).write_bytes(flipped(whole, start + at))
        directory = folders.open(path)
        log = directory.logs["t", 0]
        outside_crc = at < 8 or 12 <= at < 16
        assert (log.offline, log.log_end_offset, log.high_watermark) == (None, 9, 9), at
        assert read_all(log) == (whole if outside_crc else others), at
        assert log_file(path).read_bytes() == (whole if outside_crc else others), at
        assert log.append(make_batch(1)).base_offset == 9
        folders.crash(directory)
        if outside_crc:
            assert quarantined(path) == {}
        else:
            ((name, content),) = quarantined(path).items()
            first, following = stored[number][0], stored[number + 1][0]
            assert name == f"{0:020d}.log-{start}-{first}-{following}"
            assert content == flipped(whole, start + at)[start : start + size]
            (path / "t-0" / "quarantine" / name).unlink()


@pytest.mark.parametrize("number", [3, 0])
def test_the_last_batch_stays_where_it_is_after_a_gap(tmp_path, folders, fill, read_all, number):
    """Without the gap it would have to follow the batch before it: no later batch confirms its offset."""
    directory = folders.open(tmp_path)
    counts = [2, 1, 3, 2, 1] if number else [2, 1]
    stored = fill(directory.create("t", 0, bytes(range(16)), LogConfig()), counts, size=100)
    folders.crash(directory)
    data = log_file(tmp_path).read_bytes()
    log_file(tmp_path).write_bytes(flipped(data, position_of(stored, number) + 80))
    for _ in range(2):
        directory = folders.open(tmp_path)
        log = directory.logs["t", 0]
        assert log.log_end_offset == sum(counts)
        assert read_all(log) == batches(stored, number)
        folders.crash(directory)
    folders.stop(folders.open(tmp_path))
    assert [finding for finding in verify(str(tmp_path), Totals()) if finding.fault] == []


def test_the_last_batch_of_a_follower_stays_where_it_is_above_both_checkpoints(tmp_path, folders, fill, read_all):
    """A follower of Apache Kafka has a gap in its active segment, and its process was killed."""
    directory = folders.open(tmp_path)
    stored = fill(directory.create("t", 0, bytes(range(16)), LogConfig()), [2, 1, 3, 2, 1], size=100)
    folders.crash(directory)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / name).unlink(missing_ok=True)
    data = log_file(tmp_path).read_bytes()
    log_file(tmp_path).write_bytes(data[: position_of(stored, 3)] + data[position_of(stored, 4) :])
    for _ in range(2):
        directory = folders.open(tmp_path)
        log = directory.logs["t", 0]
        assert log.log_end_offset == 9
        assert read_all(log) == b"".join(stored[number][1] for number in (0, 1, 2, 4))
        folders.crash(directory)


def test_a_batch_between_a_gap_and_damage_stays_where_it_is(crashed, folders, read_all):
    """Compaction leaves such gaps."""
    path, stored = crashed
    data = flipped(log_file(path).read_bytes(), position_of(stored, 3) + 80)
    log_file(path).write_bytes(data[: position_of(stored, 1)] + data[position_of(stored, 2) :])
    log = folders.open(path).logs["t", 0]
    assert read_all(log) == b"".join(stored[number][1] for number in (0, 2, 4))


def test_readers_go_over_the_hole(crashed, folders):
    path, stored = crashed
    log_file(path).write_bytes(flipped(log_file(path).read_bytes(), position_of(stored, 2) + 80))  # offsets 3 to 5
    log = folders.open(path).logs["t", 0]
    for offset, first in ((0, 0), (2, 2), (3, 6), (5, 6), (6, 6), (8, 8)):
        spans = log.spans(offset, 1, min_one=True)
        ((header, _),) = read_batches(b"".join(segment.read(at, length) for segment, at, length in spans))
        assert header.base_offset == first


def test_several_holes_and_a_torn_tail(crashed, folders, read_all):
    path, stored = crashed
    data = log_file(path).read_bytes()
    data = flipped(flipped(data, position_of(stored, 1) + 70), position_of(stored, 3) + 70)
    log_file(path).write_bytes(data + b"torn")
    directory = folders.open(path)
    log = directory.logs["t", 0]
    assert (log.log_end_offset, directory.truncated_bytes) == (9, 4)
    assert directory.quarantined_bytes == len(stored[1][1]) + len(stored[3][1])
    assert directory.damaged_places == 2
    assert read_all(log) == b"".join(stored[number][1] for number in (0, 2, 4))
    assert len(quarantined(path)) == 2
    folders.crash(directory)
    assert read_all(folders.open(path).logs["t", 0]) == b"".join(stored[number][1] for number in (0, 2, 4))


def test_damage_across_batches_and_of_a_length(crashed, folders, read_all):
    """Where the length leads nowhere, the next batch is searched for byte by byte."""
    path, stored = crashed
    data = log_file(path).read_bytes()
    second, fourth = position_of(stored, 1), position_of(stored, 3)
    log_file(path).write_bytes(data[: second + 9] + b"\xa5" * (fourth - second - 30) + data[fourth - 21 :])
    log = folders.open(path).logs["t", 0]
    assert log.log_end_offset == 9
    assert read_all(log) == stored[0][1] + stored[3][1] + stored[4][1]
    assert list(quarantined(path)) == [f"{0:020d}.log-{second}-2-6"]


def test_a_batch_inside_a_record_is_not_the_next_one(tmp_path, folders, make_batch, fill, read_all):
    """A topic of copied batches: the outer one's length is damaged."""
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), LogConfig())
    stored = fill(log, [1])
    inner = (50).to_bytes(8, "big") + make_batch(1, timestamp=7)[8:]
    outer = make_batch(1, key=b"copy " + inner)
    assert log.append(outer).base_offset == 1
    stored += fill(log, [1, 1])
    folders.crash(directory)
    log_file(tmp_path).write_bytes(flipped(log_file(tmp_path).read_bytes(), len(stored[0][1]) + 10))
    log = folders.open(tmp_path).logs["t", 0]
    assert (log.log_end_offset, read_all(log)) == (4, b"".join(batch for _, batch in stored))


def test_unwritten_sectors_are_a_power_cut_not_damage(crashed, folders, read_all, fill):
    """Unsynced batches are lost from the first missing sector on: producers send them again, in order.

    Later batches that were acknowledged without a sync (acks=1) are found in a copy.
    """
    path, stored = crashed
    directory = folders.open(path)
    stored += fill(directory.logs["t", 0], [5, 5, 5], size=400)
    folders.cut_power(directory)
    data = log_file(path).read_bytes()
    start = position_of(stored, 6)  # of the second of the three
    sector = -(-start // 512) * 512
    data = data[:sector] + bytes(512) + data[sector + 512 :]
    log_file(path).write_bytes(data)
    directory = folders.open(path)
    assert directory.logs["t", 0].log_end_offset == 14
    assert read_all(directory.logs["t", 0]) == b"".join(batch for _, batch in stored[:6])
    assert quarantined(path) == {f"{0:020d}.log-{start}-14-": data[start:]}
    assert (directory.truncated_bytes, directory.quarantined_bytes) == (len(data) - start, len(data) - start)
    folders.crash(directory)
    log_file(path).write_bytes(data)
    (path / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nt 0 24\n")  # it was synced: the disk lost it
    log = folders.open(path).logs["t", 0]
    assert log.log_end_offset == 24
    assert read_all(log) == batches(stored, 6)


@pytest.mark.parametrize("number", range(10))
def test_unwritten_sectors_are_damage_when_only_the_process_ended(tmp_path, folders, fill, read_all, number):
    """Ten synced batches, and a kill before any checkpoint: the system has every write, so a sector was lost since."""
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    stored = fill(directory.create("t", 0, bytes(16), LogConfig()), [5] * 10, size=400)
    directory.flusher.sync_now()
    folders.crash(directory)
    data = log_file(tmp_path).read_bytes()
    sector = -(-position_of(stored, number) // 512) * 512
    log_file(tmp_path).write_bytes(data[:sector] + bytes(512) + data[sector + 512 :])
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    log = directory.logs["t", 0]
    assert read_all(log) == batches(stored, number)
    # Nothing comes after the last batch: its write may have been under way.
    assert (log.log_end_offset, log.offline) == (45 if number == 9 else 50, None)
    assert len(quarantined(tmp_path)) == (0 if number == 9 else 1)


def test_a_damaged_end_does_not_take_later_segments_along(tmp_path, folders, fill, read_all):
    """The first batch of the later segment is damaged too: other good ones follow it."""
    directory = folders.open(tmp_path, FlushPolicy.GROUP)
    log = directory.create("t", 0, bytes(16), LogConfig())
    stored = fill(log, [5, 5], size=400)
    log.roll(0)
    stored += fill(log, [5, 5, 5], size=400)
    directory.flusher.sync_now()
    folders.crash(directory)
    for name, at in ((f"{0:020d}.log", len(stored[0][1]) + 80), (f"{10:020d}.log", 80)):
        file = tmp_path / "t-0" / name
        file.write_bytes(flipped(file.read_bytes(), at))
    log = folders.open(tmp_path, FlushPolicy.GROUP).logs["t", 0]
    assert log.log_end_offset == 25
    assert read_all(log) == b"".join(stored[number][1] for number in (0, 3, 4))


def test_damage_at_the_durable_end_is_kept_too(crashed, folders, read_all):
    path, stored = crashed
    (path / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nt 0 9\n")
    start = position_of(stored, 4)
    data = flipped(log_file(path).read_bytes(), start + 80)
    log_file(path).write_bytes(data)
    directory = folders.open(path)
    log = directory.logs["t", 0]
    assert (log.log_end_offset, read_all(log)) == (8, data[:start])
    assert quarantined(path) == {f"{0:020d}.log-{start}-8-": data[start:]}


def test_damage_at_the_end_of_a_segment_leaves_the_next_ones(tmp_path, folders, fill, small, read_all):
    directory = folders.open(tmp_path)
    stored = fill(directory.create("t", 0, bytes(16), small), [5] * 30)
    bases = list(directory.logs["t", 0].segments.bases)
    folders.crash(directory)
    second = log_file(tmp_path, bases[1])
    second.write_bytes(flipped(second.read_bytes(), second.stat().st_size - 1))
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(16), small)
    lost = bases[2] - 5
    assert (log.segments.bases, log.log_end_offset) == (bases, 150)
    assert read_all(log) == b"".join(batch for base, batch in stored if base != lost)
    assert len(quarantined(tmp_path)) == 1
    folders.crash(directory)
    assert folders.open(tmp_path).logs["t", 0].log_end_offset == 150


class FullDisk(Files):
    full = True

    copy = -1

    def open(self, path, *, create):
        descriptor = super().open(path, create=create)
        self.copy = descriptor if "/quarantine/" in path else self.copy
        return descriptor

    def append(self, descriptor, parts, position, size):
        if self.full and descriptor == self.copy:
            raise DiskFull("no space left")
        super().append(descriptor, parts, position, size)


def test_without_room_to_copy_it_aside_the_log_waits_offline(crashed, folders, make_batch, read_all):
    path, stored = crashed
    data = flipped(log_file(path).read_bytes(), position_of(stored, 2) + 80)
    log_file(path).write_bytes(data)
    files = FullDisk()
    directory = folders.open(path, files=files)
    log = directory.logs["t", 0]
    assert "no space left" in log.offline
    assert quarantined(path) == {}
    assert (log.append(make_batch(1)).error_code, log.log_end_offset) == (56, 3)
    assert log_file(path).read_bytes() == data
    assert read_all(log) == data[: position_of(stored, 2)]
    folders.stop(directory)
    files.full = False
    log = folders.open(path, files=files).logs["t", 0]
    assert (log.offline, log.log_end_offset, len(quarantined(path))) == (None, 9, 1)


def test_the_same_damage_again_is_the_same_file_other_damage_another(crashed, folders):
    """A start that was killed between copying and rewriting; and a second damage at the same place."""
    path, stored = crashed
    whole = log_file(path).read_bytes()
    for at in (80, 80, 90):
        log_file(path).write_bytes(flipped(whole, position_of(stored, 2) + at))
        folders.crash(folders.open(path))
    name = f"{0:020d}.log-{position_of(stored, 2)}-3-6"
    assert sorted(quarantined(path)) == [name, f"{name}.2"]


def test_after_a_clean_stop_an_end_that_moved_is_looked_into(crashed, folders, read_all):
    path, stored = crashed
    folders.stop(folders.open(path))
    whole = log_file(path).read_bytes()
    last = position_of(stored, 4)
    for at in (7, 23, 26):  # the base offset, the last offset delta
        log_file(path).write_bytes(flipped(whole, last + at))
        (path / ".kafka_cleanshutdown").touch()
        directory = folders.open(path)
        log = directory.logs["t", 0]
        assert (log.log_end_offset, read_all(log)) == ((9, whole) if at == 7 else (8, whole[:last]))
        folders.crash(directory)


@pytest.mark.parametrize(("topic", "found"), [("__consumer_offsets", True), ("t", False)])
def test_an_internal_topic_is_checked_as_a_whole(tmp_path, folders, fill, topic, found):
    """Damage in synced batches, which in other topics the scrub finds."""
    directory = folders.open(tmp_path)
    log = directory.create(topic, 0, bytes(range(16)), LogConfig(segment_bytes=300_000))
    for count in [2, 1, 3] + [100] * 100:
        batch = make_records(count)
        assert log.append(batch, origin=Origin.COORDINATOR).error_code == 0
    assert len(log.segments) > 1
    directory.flusher.sync_now()
    log.request_sync()
    directory.flusher.sync_now()
    directory.checkpoints.store_all()
    folders.crash(directory)
    path = tmp_path / f"{topic}-0" / f"{0:020d}.log"
    path.write_bytes(flipped(path.read_bytes(), 80))
    directory = folders.open(tmp_path)
    assert (directory.quarantined_bytes > 0) is found


def make_records(count):
    return build_batch([Record(offset, 1_700_000_000_000, b"k", bytes(40)) for offset in range(count)])
