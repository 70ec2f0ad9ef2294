"""Retention and the expiry of producers run at their intervals, from `start` to `stop`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from unit.storage_svc.log.compacting import start, stop

OFTEN = {"retention_check_interval_ms": 10, "producer_id_check_interval_ms": 10, "producer_id_expiration_ms": 500}


async def test_old_segments_and_silent_producers_go(
    folders: Any, tmp_path: Path, make_batch: Callable[..., bytes]
) -> None:
    now_ms = [1_700_000_000_000]
    directory = folders.open(tmp_path, settings=OFTEN, clock=lambda: now_ms[0])
    log = directory.create("t", 0, bytes(16), LogConfig(retention_ms=1000))
    batch = make_batch(1, timestamp=now_ms[0], producer_id=1, producer_epoch=0, base_sequence=0)
    assert log.append(batch).error_code == 0
    log.roll(now_ms[0])
    maintenance = start(directory)
    await asyncio.sleep(0.05)
    assert (len(log.segments), set(log.producers.producers)) == (2, {1})
    now_ms[0] += 1001
    await asyncio.sleep(0.05)
    assert (len(log.segments), set(log.producers.producers)) == (1, set())
    assert (log.log_start_offset, directory.deleted_bytes["time"]) == (1, len(batch))
    batch = make_batch(1, timestamp=now_ms[0], producer_id=2, producer_epoch=0, base_sequence=0)
    assert log.append(batch).error_code == 0
    log.roll(now_ms[0])
    await maintenance.stop()
    now_ms[0] += 1001
    await asyncio.sleep(0.05)
    assert (len(log.segments), set(log.producers.producers)) == (2, {2})
    await stop(directory, maintenance)


class SyncedAside(Files):
    """Real files, which the event loop's thread must not sync while `running`."""

    def __init__(self) -> None:
        self.paths_synced: list[str] = []
        self.running = False

    def sync_path(self, path: str) -> None:
        if self.running:
            assert threading.current_thread() is not threading.main_thread(), path
            self.paths_synced.append(path)
        super().sync_path(path)


async def test_the_event_loop_goes_on_while_many_logs_expire(
    folders: Any, tmp_path: Path, make_batch: Callable[..., bytes]
) -> None:
    now_ms = [1_700_000_000_000]
    files = SyncedAside()
    directory = folders.open(tmp_path, clock=lambda: now_ms[0], files=files)
    logs = directory.create_many("t", range(60), bytes(16), LogConfig(retention_ms=1000))
    batch = make_batch(1, timestamp=now_ms[0], producer_id=1, producer_epoch=0, base_sequence=0)
    for log in logs:
        assert log.append(batch).error_code == 0
    maintenance = start(directory)
    now_ms[0] += 1001
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    files.running, before = True, turns
    await maintenance.apply_retention()
    assert turns - before > 60
    files.running = False
    counting.cancel()
    assert [(log.log_start_offset, len(log.segments)) for log in logs] == [(1, 1)] * 60
    assert {log.snapshots.path(1) for log in logs} <= set(files.paths_synced)
    await stop(directory, maintenance)
