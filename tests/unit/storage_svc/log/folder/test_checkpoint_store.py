"""The writes of checkpoints while the event loop runs."""

from __future__ import annotations

import asyncio
import threading

import pytest
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.checkpoint_seal import SEAL_SUFFIX
from storage_svc.log.disk.files import Files
from storage_svc.log.folder.checkpoint_store import CheckpointStore


class HeldFiles(Files):
    """Real files; replacing one waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.reached = threading.Event()
        self.may_go_on = threading.Event()

    def replace_file(self, path, data, *, sync=True):
        self.begun.append(path.rsplit("/", 1)[1])
        self.reached.set()
        assert self.may_go_on.wait(30)
        super().replace_file(path, data, sync=sync)


async def _cancelled_store(stored: CheckpointStore, files: HeldFiles) -> None:
    storing = asyncio.create_task(stored.store(checkpoints.LOG_START))
    await asyncio.get_running_loop().run_in_executor(None, files.reached.wait, 30)
    storing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await storing


async def test_the_write_of_a_cancelled_caller_stays_the_one_under_way(tmp_path):
    """A second one would wait for the lock of the first, as would `forget`, on the event loop."""
    files = HeldFiles()
    stored = CheckpointStore(files, str(tmp_path), {})
    stored.start(asyncio.get_running_loop())
    await _cancelled_store(stored, files)
    stored.write_all()  # not now: the thread still writes
    following = asyncio.create_task(stored.store(checkpoints.CLEANED))
    await asyncio.sleep(0)
    assert files.begun == [checkpoints.LOG_START + SEAL_SUFFIX]
    files.may_go_on.set()
    assert await following
    assert [name for name in files.begun if not name.endswith(SEAL_SUFFIX)] == [
        checkpoints.LOG_START,
        checkpoints.CLEANED,
    ]
    await stored.stop()


async def test_a_stop_waits_for_the_write_of_a_cancelled_caller(tmp_path):
    files = HeldFiles()
    stored = CheckpointStore(files, str(tmp_path), {})
    stored.start(asyncio.get_running_loop())
    await _cancelled_store(stored, files)
    stopping = asyncio.create_task(stored.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    files.may_go_on.set()
    await stopping
    assert (tmp_path / checkpoints.LOG_START).exists()
