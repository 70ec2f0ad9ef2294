"""Recovery from a write that a power cut tore, and from a second cut after that."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.simulated_disk import SimulatedDisk
from protocol_lib.errors import ErrorCode
from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.partition.outcome import Origin

from tests.unit.storage_svc.log.recovery.damage import log_file, quarantined

ROOT = Path("/simulated/data")
SECTOR = 512
#: The number of bytes of a small offset that are zeros.
OFFSET_ZEROS = 7


@pytest.fixture
def lay_out(tmp_path, folders, fill, make_batch):
    """Write four batches to one segment, the third beginning that many bytes before a sector ends; return (path,
    batches).
    """

    def lay_out(reach):
        torn = len(make_batch(5, size=300))
        size = next(each for each in range(1, 2 * SECTOR) if (len(make_batch(size=each)) + torn + reach) % SECTOR == 0)
        directory = folders.open(tmp_path)
        log = directory.create("t", 0, bytes(range(16)), LogConfig())
        stored = fill(log, [1], size=size) + fill(log, [5, 1, 1], size=300)
        folders.cut_power(directory)
        return tmp_path, [batch for _, batch in stored]

    return lay_out


@pytest.mark.parametrize("reach", range(OFFSET_ZEROS + 2))
def test_a_lost_sector_that_ends_in_the_next_batch_tears_the_log(lay_out, folders, read_all, reach):
    """The next batch is found good while up to seven bytes of its offset are lost, which are zeros anyway.

    With eight its offset is lost too.
    """
    path, batches = lay_out(reach)
    start, following = len(batches[0]), len(batches[0] + batches[1])
    sector = following + reach - SECTOR
    assert start < sector
    assert sector % SECTOR == 0
    data = b"".join(batches)
    data = data[:sector] + bytes(SECTOR) + data[sector + SECTOR :]
    assert (data[following:] == batches[2] + batches[3]) is (reach <= OFFSET_ZEROS)
    log_file(path).write_bytes(data)
    directory = folders.open(path)
    log = directory.logs["t", 0]
    assert (log.log_end_offset, log.offline, read_all(log)) == (1, None, batches[0])
    assert log_file(path).read_bytes() == batches[0]
    assert quarantined(path) == {f"{0:020d}.log-{start}-1-": data[start:]}
    assert directory.truncated_bytes == len(data) - start


@pytest.mark.parametrize(("begins", "ends"), [(1, 0), (0, -OFFSET_ZEROS - 2), (-256, -256)])
def test_zeros_that_are_no_whole_sector_are_damage(lay_out, folders, read_all, begins, ends):
    """A batch without headers ends in a zero itself."""
    path, batches = lay_out(OFFSET_ZEROS)
    start, following = len(batches[0]), len(batches[0] + batches[1])
    end = following + OFFSET_ZEROS
    data = b"".join(batches)
    zeros = range(end - SECTOR + begins, end + ends)
    data = data[: zeros.start] + bytes(len(zeros)) + data[zeros.stop :]
    log_file(path).write_bytes(data)
    directory = folders.open(path)
    log = directory.logs["t", 0]
    assert (log.log_end_offset, read_all(log)) == (8, batches[0] + batches[2] + batches[3])
    assert quarantined(path) == {f"{0:020d}.log-{start}-1-6": data[start:following]}
    assert directory.truncated_bytes == 0


def test_every_flipped_byte_of_such_a_sector_is_damage(lay_out, folders, read_all):
    path, batches = lay_out(OFFSET_ZEROS)
    start, following = len(batches[0]), len(batches[0] + batches[1])
    data = bytearray(b"".join(batches))
    for at in range(following + OFFSET_ZEROS - SECTOR, following):
        data[at] ^= 0x10
    log_file(path).write_bytes(data)
    log = folders.open(path).logs["t", 0]
    assert (log.log_end_offset, read_all(log)) == (8, batches[0] + batches[2] + batches[3])
    assert quarantined(path) == {f"{0:020d}.log-{start}-1-6": bytes(data[start:following])}


class AllBut:
    """The disk after a power cut: everything that was written but one sector, and files at their greatest size."""

    def __init__(self, sector: int) -> None:
        self._lost = range(sector * SECTOR, (sector + 1) * SECTOR)

    def of_writes(self, changes):
        for _, position, data in changes:
            if data is not None:
                yield position, data[: max(0, self._lost.start - position)]
                rest_at = max(0, self._lost.stop - position)
                yield position + rest_at, data[rest_at:]

    def of_entries(self, changes):
        return (names for _, names in changes)


@pytest.fixture
def lose(folders):
    """Cut the power, lose one unsynced sector, and return the log as the next start finds it."""

    def lose(disk, directory, sector):
        folders.crash(directory)
        disk.cut()
        disk.restart(AllBut(sector))
        directory = folders.open(ROOT, directory.settings.flush_policy, files=disk)
        return directory, directory.logs["t", 0]

    return lose


@pytest.mark.parametrize("policy", FlushPolicy)
def test_what_was_cut_does_not_come_back_at_the_next_power_cut(folders, fill, read_all, lose, policy):
    """The torn batch is followed by a good one. It is sent again, and torn at another sector.

    If its first attempt were still there, no sector of it would be zeros now, and the good one would stay after a gap.
    """
    disk = SimulatedDisk()
    directory = folders.open(ROOT, policy, files=disk)
    log = directory.create("t", 0, bytes(range(16)), LogConfig())
    ((_, first),) = fill(log, [1])
    log.request_sync()
    directory.flusher.sync_now()
    directory.checkpoints.write_all()
    fill(log, [1], key=b"1" * 2000)
    fill(log, [1])
    directory, log = lose(disk, directory, 1)
    assert (log.log_end_offset, read_all(log)) == (1, first)
    fill(log, [1], key=b"2" * 2000)
    directory, log = lose(disk, directory, 2)
    assert (log.log_end_offset, read_all(log)) == (1, first)


@pytest.mark.parametrize("policy", FlushPolicy)
def test_what_recovery_cuts_is_synced_before_anything_is_written_there(folders, fill, policy):
    disk = SimulatedDisk()
    directory = folders.open(ROOT, policy, files=disk)
    log = directory.create("t", 0, bytes(range(16)), LogConfig())
    fill(log, [1])
    log.request_sync()
    directory.flusher.sync_now()
    directory.checkpoints.write_all()
    fill(log, [1])
    folders.crash(directory)
    path = f"{ROOT}/t-0/{0:020d}.log"
    disk.disk.find(path).truncate(150)
    disk.journal = []
    directory = folders.open(ROOT, policy, files=disk)
    fill(directory.logs["t", 0], [1])
    assert [call for call, at in disk.journal if at == path][:2] == ["truncate", "sync"]


def test_what_a_full_disk_had_no_room_for_does_not_come_back(folders, fill, make_batch, read_all, lose):
    """Two of three batches that were written together had room. All are refused and cut off, and a smaller one is
    written.

    If the cut were undone, the second would stand whole after it. Its producer sends the first one again, which would
    then be out of order.
    """
    disk = SimulatedDisk()
    directory = folders.open(ROOT, FlushPolicy.GROUP, files=disk)
    log = directory.create("t", 0, bytes(range(16)), LogConfig())
    stored = fill(log, [1])
    directory.flusher.sync_now()
    refused = [make_batch(size=600, producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in range(3)]
    disk.bytes_max = disk.used_bytes() + 2 * len(refused[0]) + 100
    staged = [log.stage(memoryview(batch), Origin.CLIENT, 1_700_000_000_000) for batch in refused]
    log.write_staged()
    assert [each.error_code for each in staged] == [int(ErrorCode.KAFKA_STORAGE_ERROR)] * 3
    disk.bytes_max = None
    stored += fill(log, [1])
    _, log = lose(disk, directory, 10)
    assert (log.log_end_offset, read_all(log)) == (2, b"".join(batch for _, batch in stored))
    assert [log.append(batch).base_offset for batch in refused] == [2, 3, 4]
