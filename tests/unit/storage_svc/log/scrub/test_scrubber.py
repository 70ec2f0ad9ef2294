"""Scrubbing: damage that no start looks for is found while the log is used, and removed from it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
from broker_contract import data_pb2 as pb
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk import helper_process
from storage_svc.log.disk.files import Files
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.inspection.verification import Totals, verify
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.transaction_end import end_transaction
from storage_svc.log.scrub import job as scrub_job
from storage_svc.log.scrub import scrubber
from storage_svc.rpc.offsets import OffsetsService
from storage_svc.rpc.quarantined_files import kept_files
from unit.storage_svc.log.compacting import COMPACT, TOPIC_ID, append, make_cleanable, records_of, start, stop
from unit.storage_svc.log.conftest import NOW_MS
from unit.storage_svc.log.unreadable import spoil

from tests.support.waiting import until_async

NEVER_BY_ITSELF = LogSettings(flush_policy=FlushPolicy.GROUP, scrub_delay_ms=1 << 40, cleaner_backoff_ms=50)
SMALL = LogConfig(segment_bytes=40_000, file_delete_delay_ms=0)


def open_directory(path: Path, settings: LogSettings = NEVER_BY_ITSELF) -> DataFolder:
    return DataFolder.open(path, settings, clock=lambda: NOW_MS)


def filled(
    path: Path, fill: Any, config: LogConfig = SMALL
) -> tuple[DataFolder, PartitionLog, list[tuple[int, bytes]]]:
    """Return a log with several segments of batches of 2 KB, all durable."""
    directory = open_directory(path)
    log = directory.create("t", 0, bytes(range(16)), config)
    stored = fill(log, [2] * 60, size=1000)
    log.request_sync()
    directory.flusher.sync_now()
    assert log.high_watermark == 120
    return directory, log, stored


def flip_batch(log: PartitionLog, offset: int, at: int = 100) -> str:
    """Damage the batch of an offset; the name that its bytes get in the quarantine folder."""
    segment = log.segments[log.segments.index_of(offset)]
    located = segment.locate(offset)
    assert located is not None
    position, header = located
    # In place, as a disk does it: the file that is open must be the one that is damaged.
    with open(segment.path, "r+b") as file:
        file.seek(position + at)
        byte = file.read(1)
        file.seek(position + at)
        file.write(bytes([byte[0] ^ 4]))
    return f"{segment.base_offset:020d}.log-{position}-{header.base_offset}-{header.last_offset + 1}"


def quarantined(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "t-0" / "quarantine").glob("*"))


def faults(path: Path) -> list[str]:
    return [str(finding) for finding in verify(str(path), Totals()) if finding.fault]


@pytest.mark.parametrize("offset", [4, 50, 118], ids=["first segment", "in the middle", "active segment"])
async def test_damage_is_taken_out_while_the_log_is_used(tmp_path, fill, make_batch, read_all, offset):
    directory, log, stored = filled(tmp_path, fill)
    name = flip_batch(log, offset)
    maintenance = start(directory)
    assert await maintenance.scrubber.scrub([log])
    assert (log.offline, log.log_end_offset, log.high_watermark) == (None, 120, 120)
    assert read_all(log) == b"".join(batch for base, batch in stored if base != offset)
    assert quarantined(tmp_path) == [name.removesuffix("120") if offset == 118 else name]
    assert [file.path.rpartition("/")[2] for file in kept_files(log.folder)] == quarantined(tmp_path)
    totals = maintenance.scrubber.totals
    assert (totals.rounds, totals.segments_damaged, totals.failures) == (1, 1, 0)
    assert (totals.quarantined_bytes, totals.damaged_places) == (len(stored[0][1]), 1)
    assert totals.bytes_read == sum(len(batch) for _, batch in stored)
    appended = log.append(make_batch(1))
    assert (appended.base_offset, await log.durable(121)) == (120, 0)
    assert await maintenance.scrubber.scrub([log])
    assert maintenance.scrubber.totals.segments_damaged == 1
    directory.check_invariants()
    await stop(directory, maintenance)
    assert faults(tmp_path) == []
    directory = open_directory(tmp_path)
    assert read_all(directory.logs["t", 0]).startswith(b"".join(batch for base, batch in stored if base != offset))
    assert directory.logs["t", 0].log_end_offset == 121
    directory.release()


@pytest.mark.parametrize("gap", [False, True], ids=["followed", "with a gap"])
async def test_a_batch_that_clients_cannot_read_stays_and_is_named(tmp_path, fill, read_all, monkeypatch, gap):
    lines = Mock()
    monkeypatch.setattr(scrubber, "_log", lines)
    directory, log, stored = filled(tmp_path, fill)
    if gap:  # the segments are read as recovery reads them
        log.epochs.assign(5, 120)
        (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    for offset in (50, 118):
        segment = log.segments[log.segments.index_of(offset)]
        spoil(Path(segment.path), offset)
    maintenance = start(directory)
    totals = maintenance.scrubber.totals
    for _ in range(2):
        assert await maintenance.scrubber.scrub([log])
        assert totals.unreadable_batches == 2
    fault = "record 0: a record is not as long as it says"
    assert (
        lines.error.call_args_list
        == [
            call("unreadable batch", topic="t", partition=0, offset=offset, last_offset=offset + 1, reason=fault)
            for offset in (50, 118)
        ]
        * 2
    )
    assert (totals.segments_damaged, totals.failures, quarantined(tmp_path)) == (0, 0, [])
    assert len(read_all(log)) == sum(len(batch) for _, batch in stored)
    log.raise_log_start(119)
    assert totals.unreadable_batches == 2
    log.raise_log_start(120)
    assert totals.unreadable_batches == 0
    assert await maintenance.scrubber.scrub([log])
    assert totals.unreadable == {}
    await stop(directory, maintenance)


@pytest.mark.parametrize("at", [3, 7, 15], ids=["base offset, high", "base offset, low", "leader epoch"])
async def test_fields_outside_the_crc_are_put_right(tmp_path, fill, read_all, at):
    directory, log, stored = filled(tmp_path, fill)
    flip_batch(log, 50, at)
    maintenance = start(directory)
    assert await maintenance.scrubber.scrub([log])
    assert read_all(log) == b"".join(batch for _, batch in stored)
    assert quarantined(tmp_path) == []
    await stop(directory, maintenance)
    assert faults(tmp_path) == []


async def test_aborted_transactions_stay_aborted(tmp_path, fill, make_batch):
    directory, log, _ = filled(tmp_path, fill)
    batch = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    assert log.append(batch).base_offset == 120
    assert end_transaction(log, 7, 0, commit=False, coordinator_epoch=0).error_code == 0
    log.request_sync()
    directory.flusher.sync_now()
    flip_batch(log, 118)
    maintenance = start(directory)
    assert await maintenance.scrubber.scrub([log])
    assert log.transactions.aborted(0, log.spans(0, 1 << 20, min_one=True, committed=True)) == [(7, 120)]
    await stop(directory, maintenance)
    assert faults(tmp_path) == []


async def test_a_start_after_a_crash_is_followed_by_a_scrub(tmp_path, fill, folders, read_all):
    """The start itself looks only at the headers of synced batches and the last 256 KB of a segment."""
    directory, log, stored = filled(tmp_path, fill, LogConfig())
    stored += fill(log, [1] * 100, size=4000)
    log.request_sync()
    directory.flusher.sync_now()
    directory.checkpoints.write_all()
    flip_batch(log, 4)
    directory.release()
    (tmp_path / "last-scrub").write_bytes(b"%d\n" % NOW_MS)
    directory = open_directory(tmp_path, LogSettings(scrub_delay_ms=1))
    log = directory.logs["t", 0]
    assert read_all(log) != (sound := b"".join(batch for base, batch in stored if base != 4))
    maintenance = start(directory)
    await until_async(lambda: maintenance.scrubber.totals.rounds)
    assert read_all(log) == sound
    await until_async((tmp_path / "last-scrub").exists)
    assert (tmp_path / "last-scrub").read_bytes() == b"%d\n" % NOW_MS
    await stop(directory, maintenance)


@pytest.mark.parametrize(("content", "scrubs"), [(None, True), (b"%d\n" % NOW_MS, False), (b"9%d\n" % NOW_MS, True)])
async def test_after_a_clean_stop_it_waits_until_the_interval_is_over(tmp_path, fill, content, scrubs):
    directory, *_ = filled(tmp_path, fill)
    await directory.close()
    if content is not None:
        (tmp_path / "last-scrub").write_bytes(content)
    directory = open_directory(tmp_path, LogSettings(scrub_delay_ms=1))
    maintenance = start(directory)
    if scrubs:
        await until_async(lambda: maintenance.scrubber.totals.rounds)
    else:
        await asyncio.sleep(0.3)
        assert maintenance.scrubber.totals.rounds == 0
    await stop(directory, maintenance)


async def test_a_new_folder_has_nothing_to_scrub(tmp_path, make_batch):
    directory = open_directory(tmp_path, LogSettings(scrub_delay_ms=1))
    maintenance = start(directory)
    assert directory.create("t", 0, bytes(16), LogConfig()).append(make_batch(1)).error_code == 0
    await asyncio.sleep(0.3)
    assert maintenance.scrubber.totals.rounds == 0
    await stop(directory, maintenance)


async def test_damage_that_a_reader_meets_is_repaired(tmp_path, fill, read_all):
    directory, log, stored = filled(tmp_path, fill)
    flip_batch(log, 50)
    maintenance = start(directory)
    target = pb.ListOffsetsRequest.Target(topic="t", timestamp=NOW_MS + 51, current_leader_epoch=-1)
    request = pb.ListOffsetsRequest(targets=[target])
    service = OffsetsService(directory)
    assert (await service.list_offsets(request)).offsets[0].error_code == 2
    await until_async(lambda: maintenance.scrubber.totals.rounds)
    found = (await service.list_offsets(request)).offsets[0]
    assert (found.error_code, found.offset) == (0, 52)
    assert read_all(log) == b"".join(batch for base, batch in stored if base != 50)
    await stop(directory, maintenance)


async def test_a_log_that_damage_kept_from_being_compacted_is_compacted_afterwards(tmp_path):
    directory = open_directory(tmp_path)
    log = directory.create("t", 0, TOPIC_ID, COMPACT)
    for number in range(60):
        append(log, (b"%d" % (number % 7), b"%d" % number * 40))
    make_cleanable(directory, log)
    flip_batch(log, 3, 80)
    maintenance = start(directory)
    await until_async(lambda: maintenance.scrubber.totals.segments_damaged)
    await until_async(lambda: log.compaction.cleaned_to is not None)
    assert log.compaction.uncleanable is None
    assert len(quarantined(tmp_path)) == 1
    await stop(directory, maintenance)


async def test_a_full_disk_leaves_everything_as_it_was(tmp_path, fill, read_all):
    directory, log, _ = filled(tmp_path, fill)
    flip_batch(log, 50)
    before = read_all(log)
    (tmp_path / "t-0" / "quarantine").write_bytes(b"in the way")
    maintenance = start(directory)
    assert not await maintenance.scrubber.scrub([log])
    assert (log.offline, read_all(log), maintenance.scrubber.totals.failures) == (None, before, 1)
    assert list((tmp_path / "t-0").glob("*.cleaned")) == []
    await stop(directory, maintenance)


def test_a_sound_log_looks_sound_and_what_is_gone_is_passed_over(tmp_path, fill):
    directory, log, _ = filled(tmp_path, fill)
    segments = [(segment.base_offset, segment.size) for segment in log.segments]

    def seen() -> list[tuple[int, int, bool]]:
        looks = scrub_job.look(Files(), log.folder, segments, 120)
        return [(look.segment.base_offset, look.size, look.damaged) for look in looks]

    assert seen() == [(base, size, False) for base, size in segments]
    (tmp_path / "t-0" / f"{segments[1][0]:020d}.log").unlink()
    assert seen() == [(base, size, False) for base, size in [segments[0], *segments[2:]]]
    directory.release()


async def test_a_batch_after_a_gap_keeps_its_offset_where_the_active_segment_is_empty(tmp_path):
    """Compaction leaves one record, the last one; no batch follows that could show where it belongs."""
    directory = open_directory(tmp_path)
    log = directory.create("t", 0, TOPIC_ID, COMPACT)
    for number in range(50):
        append(log, (b"config", b"%d" % number))
    make_cleanable(directory, log)
    maintenance = Maintenance(directory)
    maintenance.cleaner.clean_now(log)
    assert (log.segments.active.size, log.log_end_offset) == (0, 50)
    (before,) = records_of(log)
    directory.start(asyncio.get_running_loop())
    assert await maintenance.scrubber.scrub([log])
    assert maintenance.scrubber.totals.segments_damaged == 0
    assert records_of(log) == [before]
    assert before.offset == 49
    await stop(directory, maintenance)
    assert faults(tmp_path) == []


async def test_the_last_batch_of_an_active_segment_keeps_its_offset_after_a_gap(tmp_path, fill, read_all):
    """A follower of Apache Kafka has such segments; the high watermark shows where the batch ends."""
    directory = open_directory(tmp_path)
    log = directory.create("t", 0, TOPIC_ID, LogConfig())
    fill(log, [2, 3])
    directory.release()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    data = path.read_bytes()
    position = 12 + int.from_bytes(data[8:12], "big")
    path.write_bytes(data[:position] + (40).to_bytes(8, "big") + data[position + 8 :])
    (tmp_path / "replication-offset-checkpoint").write_bytes(b"0\n1\nt 0 43\n")
    (tmp_path / "replication-offset-checkpoint.crc32c").unlink(missing_ok=True)
    directory = open_directory(tmp_path)
    log = directory.logs["t", 0]
    assert (log.log_end_offset, log.offline) == (43, None)
    directory.start(asyncio.get_running_loop())
    maintenance = Maintenance(directory)
    stored = read_all(log)
    assert await maintenance.scrubber.scrub([log])
    assert maintenance.scrubber.totals.segments_damaged == 0
    assert read_all(log) == stored == path.read_bytes()
    await stop(directory, maintenance)


async def test_jobs_reach_the_helpers_without_the_event_loop(tmp_path, monkeypatch):
    """A pipe takes 64 KB; the rest waits until the helper has started."""
    directory = open_directory(tmp_path)
    log = directory.create("t", 0, TOPIC_ID, COMPACT)
    for number in range(50):
        append(log, (b"config", b"%d" % number))
    make_cleanable(directory, log)
    threads = []
    send = helper_process.send

    def noted(helper: Any, job: Any) -> None:
        threads.append(threading.current_thread())
        send(helper, job)

    monkeypatch.setattr(helper_process, "send", noted)
    maintenance = start(directory)
    await until_async(lambda: maintenance.cleaner.totals.runs)
    assert await maintenance.scrubber.scrub([log])
    assert len(threads) >= 2
    assert threading.main_thread() not in threads
    await stop(directory, maintenance)
