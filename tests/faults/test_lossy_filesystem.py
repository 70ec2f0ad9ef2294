"""Power cuts below a whole broker: the catalog's SQLite, topic creation and memory maps included."""

from __future__ import annotations

import contextlib
import ctypes.util
import errno
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from storage_svc.log.disk.sync_queue import SyncQueue
from support.late import confluent
from up_process import RunningUp

PARTITIONS = 3
ANY_PORTS = ("--kafka-port", "0", "--http-port", "0")


class LossyDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        script = str(Path(__file__).with_name("lossy_filesystem.py"))
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        self._process = subprocess.Popen(
            [sys.executable, script, str(folder)], env=environment, stdout=subprocess.PIPE, text=True
        )
        self._wait_until_mounted()

    def _wait_until_mounted(self) -> None:
        deadline = time.monotonic() + 60
        while not os.path.ismount(self.folder):
            assert self._process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def cut(self) -> None:
        """Cut the power: nothing gets to the disk from here on."""
        with contextlib.suppress(OSError):
            os.mkdir(self.folder / ".power-cut")

    def mount_again(self) -> None:
        """Mount the file system again; no process may have files open."""
        self._unmount()
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "cut\n"
        self._wait_until_mounted()

    def _unmount(self) -> None:
        for _ in range(100):
            if subprocess.run(["umount", str(self.folder)], capture_output=True).returncode == 0:
                return
            time.sleep(0.05)
        subprocess.run(["umount", "-l", str(self.folder)], check=False)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)


@pytest.fixture
def lossy_disk(tmp_path):
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or not ctypes.util.find_library("fuse"):
        pytest.skip("needs root, /dev/fuse and libfuse 2")
    folder = tmp_path / "lossy"
    folder.mkdir()
    disk = LossyDisk(folder)
    yield disk
    disk.close()


def _create(kafka: str, topic: str) -> None:
    admin = confluent.admin.AdminClient({"bootstrap.servers": kafka})
    for future in admin.create_topics([confluent.admin.NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(30)


def _kill(up: RunningUp) -> None:
    pids = [up.pid, *(pid for pids in up.services().values() for pid in pids)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(map(_runs, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:  # it is gone, perhaps between the look at its name and the one at its content
        return False


def test_the_queue_of_syncs_says_which_file_failed(lossy_disk, tmp_path):
    descriptors = [
        os.open(folder / "file", os.O_CREAT | os.O_WRONLY) for folder in (tmp_path, lossy_disk.folder, tmp_path)
    ]
    queue = SyncQueue()
    for descriptor in descriptors:
        os.write(descriptor, b"x")
    assert queue.sync(descriptors) == [None] * 3
    lossy_disk.cut()
    outcomes = queue.sync(descriptors)
    assert [outcome and outcome.errno for outcome in outcomes] == [None, errno.EIO, None]
    queue.close()
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


@pytest.mark.slow
@pytest.mark.blocks_event_loop("a process in Python serves this file system, so that opening a file may take long")
@pytest.mark.timeout(900)
def test_power_cuts_below_a_broker(lossy_disk, start_load, check_once, figures, scaled):
    chance, cuts = random.Random(5), scaled(20)
    data_dir = lossy_disk.folder / "above" / "data"
    loads: list[Any] = []
    in_flight, starts = [], []
    for cut in range(cuts):
        with RunningUp(*ANY_PORTS, "--data-dir", str(data_dir)) as up:
            starts.append(up.ready_after_s)
            for number, load in enumerate(loads):
                check_once(load, up.kafka, f"topic-{number}", PARTITIONS)
            _create(up.kafka, f"topic-{cut}")
            loads.append(
                start_load(up.kafka, f"topic-{cut}", PARTITIONS, pause_s=0.001, **{"message.timeout.ms": 2000})
            )
            loads[-1].until_acknowledged(500)
            time.sleep(chance.uniform(0, 0.5))
            in_flight.append(loads[-1].until_in_flight() if cut % 2 == 0 else loads[-1].in_flight)
            lossy_disk.cut()
            _kill(up)
        loads[-1].stop()
        lossy_disk.mount_again()
    with RunningUp(*ANY_PORTS, "--data-dir", str(data_dir)) as up:
        for number, load in enumerate(loads):
            check_once(load, up.kafka, f"topic-{number}", PARTITIONS)
    hits = sum(count > 0 for count in in_flight)
    acknowledged = [len(load.acknowledged) for load in loads]
    figures(
        f"{cuts} power cuts, {hits} with records in flight; {cuts} topics created, {sum(acknowledged)} records "
        f"acknowledged, median {statistics.median(acknowledged):.0f} between cuts; ready again after "
        f"{statistics.median(starts):.1f} s (longest {max(starts):.1f} s); 0 lost"
    )
    assert hits >= cuts / 4
