"""Bytes of deleted segments by the reason of their deletion, and bytes that no sync has covered."""

from __future__ import annotations

from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import apply_retention, drop_below_start

NOW_MS = 1_700_000_000_000


def _folder(path) -> tuple[DataFolder, PartitionLog]:
    directory = DataFolder.open(path, LogSettings(flush_policy=FlushPolicy.OS), clock=lambda: NOW_MS)
    return directory, directory.create("t", 0, bytes(16), LogConfig())


def _append(log: PartitionLog, *, age_ms: int = 0) -> int:
    batch = build_batch([Record(0, NOW_MS - age_ms, b"k", b"v")])
    assert log.append(batch).error_code == 0
    return len(batch)


def _roll(log: PartitionLog, *, age_ms: int = 0) -> int:
    size = _append(log, age_ms=age_ms)
    log.roll(NOW_MS)
    return size


def test_each_segment_counts_under_its_own_reason(tmp_path) -> None:
    directory, log = _folder(tmp_path)
    size = _roll(log)
    for age_ms in (0, 0, 9000, 9000, 9000, 0):
        _roll(log, age_ms=age_ms)
    log.raise_log_start(1)
    log.configure(LogConfig(retention_bytes=4 * size, retention_ms=5000))
    assert apply_retention(log, NOW_MS) == 6 * size
    assert directory.deleted_bytes == {"log_start": size, "size": 2 * size, "time": 3 * size}
    _append(log)
    log.raise_log_start(7)
    assert drop_below_start(log) == size
    assert directory.deleted_bytes == {"log_start": 2 * size, "size": 2 * size, "time": 3 * size}
    directory.release()


def test_bytes_are_unflushed_until_a_sync_covers_their_segment(tmp_path) -> None:
    directory, log = _folder(tmp_path)
    size = _append(log)
    assert log.appended_bytes - log.synced_bytes == size
    log.roll(NOW_MS)
    _append(log)
    directory.flusher.sync_now()  # the flusher of all logs before `start`: it covers the older segment
    assert log.appended_bytes - log.synced_bytes == size
    log.request_sync()
    directory.flusher.sync_now()
    assert log.appended_bytes - log.synced_bytes == 0
    _append(log)
    assert log.appended_bytes - log.synced_bytes == size
    directory.release()
