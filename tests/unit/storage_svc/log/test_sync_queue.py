"""Syncs by the kernel's queue: of more files than it takes at a time, and of some that cannot be synced."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
from storage_svc.log.sync_queue import SYNCS_MAX, SyncQueue


@pytest.fixture
def queue():
    queue = SyncQueue()
    yield queue
    queue.close()


@pytest.fixture
def descriptors(tmp_path):
    opened = [os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR) for number in range(SYNCS_MAX + 44)]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def test_any_number_of_files(queue, descriptors):
    for _ in range(2):
        for descriptor in descriptors:
            os.write(descriptor, b"x" * 100)
        assert queue.sync(descriptors) == [None] * len(descriptors)
    assert queue.sync([]) == []


def test_each_file_has_its_own_outcome(queue, descriptors):
    reader, writer = os.pipe()
    os.close(writer)
    outcomes = queue.sync([*descriptors[:3], reader, *descriptors[3:5], writer, descriptors[5]])
    os.close(reader)
    assert [outcome and outcome.errno for outcome in outcomes] == [
        *[None] * 3,
        errno.EINVAL,
        *[None] * 2,
        errno.EBADF,
        None,
    ]


async def _ended(queue):
    """What came of what was begun, once the queue says that something has."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_reader(queue.event, told.set)
    while (outcomes := queue.ended()) is None:
        await asyncio.wait_for(told.wait(), 10)
        told.clear()
    asyncio.get_running_loop().remove_reader(queue.event)
    return outcomes


async def test_syncs_that_are_begun_say_when_they_are_over(queue, descriptors):
    assert queue.ended() is None
    for count in (1, SYNCS_MAX):
        for descriptor in descriptors[:count]:
            os.write(descriptor, b"x" * 100)
        assert queue.begin(descriptors[:count])
        assert queue.under_way == count
        assert await _ended(queue) == [None] * count
        assert (queue.under_way, queue.ended()) == (0, None)
    assert queue.sync(descriptors[:3]) == [None] * 3
    assert queue.ended() is None


async def test_nothing_is_said_of_syncs_that_were_not_all_begun(queue, descriptors):
    assert not queue.begin([*descriptors[:2], -1, descriptors[3]])
    while queue.under_way:
        assert queue.ended() is None
        await asyncio.sleep(0.001)
    assert not queue.begin([-1])
    assert (queue.under_way, queue.ended()) == (0, None)
    assert queue.begin(descriptors[:2])
    assert await _ended(queue) == [None, None]
