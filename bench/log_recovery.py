"""Recovery: how fast batches of 16 KB are checked when a log is opened after an unclean stop, from the page cache."""

from __future__ import annotations

import statistics
from pathlib import Path

from raw import batch
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from table import Row

PARTITIONS = 4
SETTINGS = LogSettings(flush_policy=FlushPolicy.OS)


def measure(folder: Path, scale: float) -> list[Row]:
    directory = DataFolder.open(folder, SETTINGS)
    logs = directory.create_many("t", range(PARTITIONS), bytes(16), LogConfig())
    records = batch(16, 1000)
    for _ in range(int(1e9 * scale / PARTITIONS / len(records))):
        for log in logs:
            log.append(records)
    size = sum(log.segments.size_bytes for log in logs)
    directory.release()
    rates = []
    for _ in range(5):
        directory = DataFolder.open(folder, SETTINGS)
        rates.append(size / directory.recovery_seconds / 1e9)
        directory.release()
    cell = f"{statistics.median(rates):.2f} GB/s"
    return [Row(f"recovery scan of {size / 1e9:.1f} GB in {PARTITIONS} partitions, 16 KB batches", ">= 1 GB/s", cell)]
