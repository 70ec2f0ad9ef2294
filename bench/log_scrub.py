"""R6: how fast the scrub goes through a log that was synced long ago, from the page cache, with nothing else to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from raw import batch
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from table import Row

SETTINGS = LogSettings(flush_policy=FlushPolicy.OS, scrub_delay_ms=1 << 40)


def measure(folder: Path, scale: float) -> list[Row]:
    return [asyncio.run(_scrubbed(folder / str(records), records, scale)) for records in (16, 1)]


async def _scrubbed(folder: Path, records: int, scale: float) -> Row:
    directory = DataFolder.open(folder, SETTINGS)
    log = directory.create("t", 0, bytes(16), LogConfig(segment_bytes=256 << 20))
    made = batch(records, 1000)
    for _ in range(int(2e9 * scale / len(made))):
        log.append(made)
    directory.start(asyncio.get_running_loop())
    scrubber = Maintenance(directory).scrubber
    assert await scrubber.scrub([log])
    totals = scrubber.totals
    assert (totals.bytes_read, totals.segments_damaged) == (log.segments.size_bytes, 0)
    await scrubber.stop()
    await directory.close()
    cell = f"{totals.bytes_read / totals.seconds / 1e9:.2f} GB/s"
    return Row(
        f"scrub of {totals.bytes_read / 1e9:.1f} GB, {records} KB batches, its process started", ">= 0.5 GB/s", cell
    )
