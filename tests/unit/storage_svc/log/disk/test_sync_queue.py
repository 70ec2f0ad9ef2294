"""Syncs by the kernel's queue: of more files than it takes at a time, and of some that cannot be synced."""

from __future__ import annotations

import errno
import os

import pytest
from storage_svc.log.disk.sync_queue import SYNCS_MAX, SyncQueue


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
    nobodys = 2**31 - 1
    outcomes = queue.sync([*descriptors[:3], reader, *descriptors[3:5], nobodys, descriptors[5]])
    os.close(reader)
    os.close(writer)
    codes = [outcome and outcome.errno for outcome in outcomes]
    assert codes == [*[None] * 3, errno.EINVAL, *[None] * 2, errno.EBADF, None]
