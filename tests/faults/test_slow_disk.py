"""A disk whose every sync and every look at a segment takes long, under all the work that storage does at once.

The event loop's thread never syncs. The catalog is not part of this: its thread lets SQLite sync (test_catalog.py).
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from broker_contract import data_pb2 as data
from broker_contract import topics_pb2 as topics
from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.app import Storage
from storage_svc.coordinator.classic.events import Commit
from storage_svc.coordinator.limits import CommitRequest, NewOffset
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.producer_look_back import ProducerLookBack
from support.storage_lives import NOW_MS, append, create, delete, delete_records, produce, started

#: A few of them in a row on the event loop would also be a stall for tests/support/loop_guard.py.
DELAY_S = 0.04
SYNCS = ("sync", "sync_path", "sync_queued")
SETTINGS = {"log_cleaner_backoff_ms": 5, "offsets_topic_num_partitions": 2, "offsets_commit_timeout_ms": 60_000}


class SlowDisk:
    """Delays calls of the real file layer, and notes those that the event loop's thread makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop_thread = threading.get_ident()
        self.count = 0
        self.on_loop: list[str] = []
        for name in SYNCS:
            monkeypatch.setattr(Files, name, self._slow(getattr(Files, name)))
        monkeypatch.setattr(ProducerLookBack, "_read", self._slow(ProducerLookBack._read))

    def _slow(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            if threading.get_ident() == self._loop_thread:
                self.on_loop.append("".join(traceback.format_stack(limit=8)))
            else:
                time.sleep(DELAY_S)
            return call(*arguments, **options)

        return slow


def _batch(sequence: int) -> bytes:
    records = [Record(0, NOW_MS, None, b"v" * 100)]
    return build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)


def _roll_often(storage: Storage) -> None:
    """Let a segment of every log hold a few batches."""
    for log in storage.logs.logs.values():
        log.configure(replace(log.config, segment_bytes=600))


async def _commit(storage: Storage, group: str, count: int) -> None:
    """Commit while earlier commits wait for their sync."""
    waiting = []
    for offset in range(count):
        codes: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        wanted = [NewOffset("plain", 0, offset, -1, "note" * 40)]
        request = CommitRequest(group, Commit(request=0, member_id="", generation_id=-1), wanted)
        storage.coordinator.offsets.commit(request, codes.set_result)
        waiting.append(codes)
        await asyncio.sleep(DELAY_S / 4)
    assert [list(codes) for codes in await asyncio.gather(*waiting)] == [[ErrorCode.NONE]] * count


async def _retain(storage: Storage) -> None:
    """Delete by size until old segments are gone."""
    log = storage.logs.logs["short", 0]
    log.configure(replace(log.config, retention_bytes=1200))
    while log.log_start_offset == 0:
        await produce(storage, "short", [b"v" * 100])
        await storage.maintenance.apply_retention()


async def _look_up(storage: Storage) -> None:
    target = data.ListOffsetsRequest.Target
    for timestamp in (-1, -2, -3, NOW_MS):
        wanted = [target(topic="plain", partition=0, timestamp=timestamp, current_leader_epoch=-1)]
        answer = await storage.offsets.list_offsets(data.ListOffsetsRequest(targets=wanted))
        assert answer.offsets[0].error_code == 0


async def _create_by_asking(storage: Storage) -> None:
    refs = [topics.TopicRef(name=f"asked{number}") for number in range(4)]
    answer = await storage.topics.describe_topics(topics.DescribeTopicsRequest(topics=refs, auto_create=True))
    assert [topic.error_code for topic in answer.topics] == [0] * 4
    assert await delete(storage, "asked0") == 0


async def _compact(storage: Storage) -> None:
    log = storage.logs.logs["compact", 0]
    for _ in range(12):
        await produce(storage, "compact", [b"v" * 100], key=b"k")
    while not log.compaction.cleaned_to:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_the_event_loop_never_waits_for_a_slow_disk(tmp_path, monkeypatch):
    before = await started(tmp_path, log_cleaner_backoff_ms=3_600_000, offsets_topic_num_partitions=2)
    for name in ("plain", "short", "again"):
        assert await create(before, name) == 0
    assert await create(before, "compact", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01") == 0
    for sequence in range(12):
        assert (await append(before, "again", _batch(sequence))).error_code == 0
    await _commit(before, "first", 1)
    await before.stop()

    storage = await started(tmp_path, **SETTINGS)
    disk = SlowDisk(monkeypatch)
    _roll_often(storage)
    async with asyncio.timeout(100):
        await asyncio.gather(
            *(produce(storage, "plain", [b"v" * 100] * 6) for _ in range(3)),
            _retain(storage),
            _look_up(storage),
            _create_by_asking(storage),
            _compact(storage),
            _commit(storage, "g", 8),
            _commit(storage, "h", 8),
            append(storage, "again", _batch(2)),
        )
        assert (await delete_records(storage, "plain", 5)).error_code == 0
        assert await delete(storage, "plain") == 0
    assert disk.on_loop == []
    assert disk.count > 50
    monkeypatch.undo()
    await storage.stop()
