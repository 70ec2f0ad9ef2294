"""Small compacted logs, and the records that a reader finds in them."""

from __future__ import annotations

import asyncio
from typing import Any

from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record, read_records
from storage_svc.log.config import LogConfig
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.partition.partition_log import PartitionLog

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
COMPACT = LogConfig(
    cleanup_policy=frozenset(("compact",)), segment_bytes=1500, index_interval_bytes=200, delete_retention_ms=1000
)


def records_of(log: PartitionLog) -> list[Record]:
    """Return every record from the log start on, as a reader gets them."""
    found: list[Record] = []
    offset = log.log_start_offset
    while data := log.read_batches(offset, 400):
        for header, batch in read_batches(data):
            found += [record for record in read_records(bytes(batch)) if record.offset >= offset]
            offset = header.last_offset + 1
    return found


def append(
    log: PartitionLog, *pairs: tuple[bytes | None, bytes | None], timestamp: int = NOW_MS, **fields: Any
) -> None:
    records = [Record(index, timestamp + index, key, value) for index, (key, value) in enumerate(pairs)]
    log.configure(LogConfig(cleanup_policy=frozenset(("delete",)), segment_bytes=log.config.segment_bytes))
    appended = log.append(build_batch(records, **fields))
    log.configure(COMPACT)
    assert appended.error_code == 0, appended


def make_cleanable(directory: DataFolder, log: PartitionLog) -> None:
    """Roll, so that every record is older than the active segment, and sync."""
    if log.segments.active.size:
        log.roll(directory.clock())
    log.request_sync()
    directory.flusher.sync_now()


def start(directory: DataFolder) -> Maintenance:
    """Start a data folder and its maintenance as app.py does."""
    loop = asyncio.get_running_loop()
    directory.start(loop)
    maintenance = Maintenance(directory)
    maintenance.start(loop)
    return maintenance


async def stop(directory: DataFolder, maintenance: Maintenance) -> None:
    """Stop both as app.py does."""
    await maintenance.stop()
    await directory.close()
