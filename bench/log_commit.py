"""Group commit: 200 partitions get 16 KB each in one turn; the figure is the time until the last of them is durable.

In turns with it, 32 threads sync 200 files of 16 KB each, which is the best that the disk can do.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from raw import batch
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from table import Row, share

PARTITIONS = 200
THREADS = 32


class Bare:
    """A number of files that are written and synced, and nothing else."""

    def __init__(self, folder: Path, records: bytes) -> None:
        self._records = records
        self._files = [os.open(folder / f"bare-{n}", os.O_CREAT | os.O_WRONLY | os.O_APPEND) for n in range(PARTITIONS)]
        self._pool = ThreadPoolExecutor(THREADS)

    def seconds(self) -> float:
        for file in self._files:
            os.write(file, self._records)
        began = time.perf_counter()
        for _ in self._pool.map(self._sync, range(THREADS)):
            pass
        return time.perf_counter() - began

    def _sync(self, first: int) -> None:
        for file in self._files[first::THREADS]:
            os.fdatasync(file)


async def _milliseconds(folder: Path, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Return the milliseconds of the bare syncs, of the flusher's syncs, and from first append to last
    acknowledgement.
    """
    directory = DataFolder.open(folder, LogSettings(flush_policy=FlushPolicy.GROUP))
    directory.start(asyncio.get_running_loop())
    logs = directory.create_many("t", range(PARTITIONS), bytes(16), LogConfig())
    records = batch(16, 1000)
    bare = Bare(folder, records)
    found, synced, possible = [], [], []
    for _ in range(rounds):
        possible.append(bare.seconds() * 1000)
        began, before = time.perf_counter(), directory.flusher.durations.total
        for log in logs:
            log.append(records)
        await asyncio.gather(*(log.durable(log.log_end_offset) for log in logs))
        found.append((time.perf_counter() - began) * 1000)
        synced.append((directory.flusher.durations.total - before) * 1000)
    await directory.close()
    return sorted(possible[3:]), sorted(synced[3:]), sorted(found[3:])  # the first rounds make folders durable too


def measure(folder: Path, scale: float) -> list[Row]:
    measured = asyncio.run(_milliseconds(folder, max(20, int(300 * scale))))
    cells = [f"p50 {share(found, 0.5):.1f} ms, p99 {share(found, 0.99):.1f} ms" for found in measured]
    return [
        Row(f"{PARTITIONS} files x 16 KB synced by {THREADS} threads, no broker", "", cells[0]),
        Row(f"group commit of {PARTITIONS} dirty partitions x 16 KB, flush.policy=group", "p99 <= 20 ms", cells[1]),
        Row("  the same, from the first append to the last acknowledgement", "", cells[2]),
    ]
