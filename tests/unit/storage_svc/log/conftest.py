"""Data folders on real files, and record batches to put into them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder import system_run
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000


def descriptors(path: Path) -> int:
    """Return how many descriptors this process has of files below the path; other code of the process opens and closes
    its own.
    """
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            count += path in Path(os.readlink(f"/proc/self/fd/{name}")).parents
    return count


class Folders:
    """Opens data folders and checks their invariants when the test is over."""

    def __init__(self) -> None:
        self._open: list[DataFolder] = []

    def open(self, path: Path, policy: FlushPolicy = FlushPolicy.OS, **options: Any) -> DataFolder:
        settings = LogSettings(flush_policy=policy, **options.pop("settings", {}))
        directory = DataFolder.open(path, settings, clock=options.pop("clock", lambda: NOW_MS), **options)
        self._open.append(directory)
        return directory

    def crash(self, directory: DataFolder) -> None:
        """Leave the folder as a process that dies does."""
        directory.check_invariants()
        directory.release()
        self._open.remove(directory)

    def cut_power(self, directory: DataFolder) -> None:
        """Leave the folder as a power cut does that loses nothing: the next start belongs to another system run."""
        self.crash(directory)
        os.unlink(f"{directory.root}/{system_run.NAME}")

    def stop(self, directory: DataFolder) -> None:
        directory.check_invariants()
        asyncio.run(directory.close())
        self._open.remove(directory)

    def finish(self) -> None:
        for directory in self._open:
            directory.check_invariants()
            directory.release()


@pytest.fixture
def folders() -> Iterator[Folders]:
    opened = Folders()
    yield opened
    opened.finish()


@pytest.fixture
def make_batch() -> Callable[..., bytes]:
    def make(
        count: int = 1, *, size: int = 20, timestamp: int = NOW_MS, key: bytes | None = b"k", **options: Any
    ) -> bytes:
        records = [Record(offset, timestamp + offset, key, bytes([65 + offset % 26]) * size) for offset in range(count)]
        return build_batch(records, **options)

    return make


@pytest.fixture
def fill(make_batch: Callable[..., bytes]) -> Callable[..., list[tuple[int, bytes]]]:
    """Append batches of these record counts; (base offset, bytes as stored) of each."""

    def fill(log: PartitionLog, counts: list[int], **options: Any) -> list[tuple[int, bytes]]:
        stored = []
        for count in counts:
            batch = make_batch(count, timestamp=NOW_MS + log.log_end_offset, **options)
            appended = log.append(batch)
            assert appended.error_code == 0, appended
            head = appended.base_offset.to_bytes(8, "big") + batch[8:12] + log.leader_epoch.to_bytes(4, "big")
            stored.append((appended.base_offset, head + batch[16:]))
        return stored

    return fill


@pytest.fixture
def small() -> LogConfig:
    """Segments of a few batches, an index entry for nearly every batch."""
    return LogConfig(segment_bytes=2000, index_interval_bytes=100)


@pytest.fixture
def read_all() -> Callable[[PartitionLog], bytes]:
    def read(log: PartitionLog) -> bytes:
        offset, out = log.log_start_offset, b""
        while data := log.read_batches(offset, 500):
            out += data
            position = 0
            while position < len(data):
                length = int.from_bytes(data[position + 8 : position + 12], "big")
                delta = int.from_bytes(data[position + 23 : position + 27], "big")
                offset = int.from_bytes(data[position : position + 8], "big") + delta + 1
                position += 12 + length
        return out

    return read
