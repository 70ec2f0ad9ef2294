"""Appending: to a long log against an empty one, and to many partitions against one; 16 KB batches, nothing synced.

Both of a pair take turns; before each turn the disk gets time to write the data of the last one.
"""

from __future__ import annotations

import os
import time
from itertools import cycle, islice
from pathlib import Path

from raw import batch
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from table import Row, alternating

ROUNDS = 7
RECORDS = batch(16, 1000)


def _rate(logs: list[PartitionLog], size: float) -> float:
    """Return bytes a second."""
    os.sync()
    count = int(size / len(RECORDS))
    began = time.perf_counter()
    for log in islice(cycle(logs), count):
        log.append(RECORDS)
    return count * len(RECORDS) / (time.perf_counter() - began)


def measure(folder: Path, scale: float) -> list[Row]:
    directory = DataFolder.open(folder, LogSettings(flush_policy=FlushPolicy.OS))
    (long,) = directory.create_many("long", range(1), bytes(16), LogConfig())
    long_size = 4e9 * scale
    while long.segments.size_bytes < long_size:
        _rate([long], long_size / 8)
    numbers = iter(range(1 << 20))
    turn = 256e6 * scale

    def empty() -> float:
        number = next(numbers)
        (log,) = directory.create_many(f"empty{number}", range(1), bytes(16), LogConfig())
        rate = _rate([log], turn)
        directory.delete(log.topic, 0)
        return rate

    to_empty, to_long = alternating(ROUNDS, empty, lambda: _rate([long], turn))
    many = directory.create_many("many", range(100), bytes(16), LogConfig())
    (single,) = directory.create_many("single", range(1), bytes(16), LogConfig())
    to_one, to_many = alternating(ROUNDS, lambda: _rate([single], turn), lambda: _rate(many, turn))
    directory.release()
    return [
        Row(
            f"appending to a log of {long_size / 1e9:.1f} GB against an empty one",
            ">= 90 %",
            f"{to_long / to_empty:.0%} of {to_empty / 1e6:,.0f} MB/s",
        ),
        Row(
            "appending to 100 partitions against one", ">= 70 %", f"{to_many / to_one:.0%} of {to_one / 1e6:,.0f} MB/s"
        ),
    ]
