"""Syncs that the event loop begins itself, and when the flusher's thread has to carry them out."""

from __future__ import annotations

import asyncio
import threading

import pytest
from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.errors import StorageFailure
from storage_svc.log.files import Files


class WatchedFiles(Files):
    """Real files; who syncs what is noted, and what comes of it can be made to differ."""

    def __init__(self) -> None:
        #: How many files were synced by each call, and whether the event loop's thread made it.
        self.begun: list[int] = []
        self.elsewhere: list[int] = []
        self.failing: int | None = None
        self.refuses = self.breaks = False

    def begin_syncs(self, queue, descriptors):
        assert threading.current_thread() is threading.main_thread()
        if self.refuses:
            return super().begin_syncs(queue, [*descriptors, -1])
        self.begun.append(len(descriptors))
        self._files = list(descriptors)
        return super().begin_syncs(queue, descriptors)

    def ended_syncs(self, queue):
        outcomes = super().ended_syncs(queue)
        if self.breaks:
            raise StorageFailure("the queue is broken")
        if outcomes is not None and self.failing in self._files:
            outcomes[self._files.index(self.failing)] = StorageFailure("not synced")
        return outcomes

    def sync_queued(self, queue, descriptors):
        self.elsewhere.append(len(descriptors))
        return super().sync_queued(queue, descriptors)

    def sync(self, descriptor):
        self.elsewhere.append(1)
        super().sync(descriptor)


@pytest.fixture
async def opened(tmp_path, folders, make_batch):
    """Files, ten logs whose folders are synced, and a way to append to some of them and wait."""
    files = WatchedFiles()
    directory = folders.open(tmp_path, FlushPolicy.GROUP, files=files)
    logs = directory.create_many("t", range(10), bytes(16), LogConfig())
    directory.start(asyncio.get_running_loop())

    async def append(count):
        ends = [log.append(make_batch(1)).last_offset + 1 for log in logs[:count]]
        return await asyncio.gather(*(log.durable(end) for log, end in zip(logs, ends, strict=False)))

    assert await append(10) == [0] * 10
    assert await append(10) == [0] * 10
    files.begun.clear()
    files.elsewhere.clear()
    yield files, logs, append
    await directory.close()


async def test_few_open_files_need_no_thread(opened):
    files, logs, append = opened
    assert await append(1) == [0]
    assert await append(8) == [0] * 8
    assert (files.begun, files.elsewhere) == ([1, 8], [])
    assert [log.recovery_point for log in logs] == [4, *[3] * 7, 2, 2]
    assert await append(9) == [0] * 9
    assert (files.begun, files.elsewhere) == ([1, 8], [9])


async def test_closed_files_are_synced_by_the_thread(opened):
    files, logs, append = opened
    log = logs[0]
    log.request_sync()
    log.segments.active.close()
    assert await append(0) == []
    await asyncio.sleep(0.05)
    assert files.begun == []
    assert await append(1) == [0]
    assert files.begun == [1]


async def test_only_the_log_whose_sync_failed_goes_offline(opened):
    files, logs, append = opened
    files.failing = logs[1].segments.active.descriptor
    assert await append(3) == [0, 56, 0]
    assert [log.offline for log in logs[:3]] == [None, "sync failed: not synced", None]
    assert logs[1].high_watermark == 2


async def test_what_the_queue_does_not_take_whole_the_thread_syncs(opened):
    files, _logs, append = opened
    files.refuses = True
    assert await append(2) == [0, 0]
    assert await append(1) == [0]
    assert (files.begun, files.elsewhere) == ([], [2, 1])
    files.refuses = False
    await asyncio.sleep(0.05)
    assert await append(1) == [0]
    assert files.begun == [1]


async def test_a_broken_queue_acknowledges_nothing_and_is_not_asked_again(opened):
    files, logs, append = opened
    files.breaks = True
    assert await append(2) == [56, 56]
    assert logs[0].offline == "sync failed: the queue is broken"
    files.breaks = False
    logs.reverse()
    assert await append(2) == [0, 0]
    assert (files.begun, files.elsewhere) == ([2], [2])
