"""The cost of unused partitions: resident memory, descriptors and the time to create them."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from table import Row

PARTITIONS = 1000


def _resident() -> float:
    """Return megabytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def measure(folder: Path, scale: float) -> list[Row]:
    directory = DataFolder.open(folder, LogSettings())
    directory.create_many("first", range(3), bytes(16), LogConfig())  # loads the parts that all share
    resident, descriptors = _resident(), _descriptors()
    began = time.perf_counter()
    directory.create_many("t", range(PARTITIONS), bytes(16), LogConfig())
    seconds = time.perf_counter() - began
    directory.flusher.sync_now()
    made = f"{_resident() - resident:.1f} MB, {_descriptors() - descriptors} descriptors"
    directory.release()
    return [
        Row(f"{PARTITIONS} idle partitions", "<= 30 MB", made),
        Row("making a partition", "", f"{seconds / PARTITIONS * 1000:.2f} ms"),
    ]
