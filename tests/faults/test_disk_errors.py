"""A disk that fails once, at any call, or is full at any size: nothing false is acknowledged, nothing true is lost.

A sync that fails has lost the pages for good, though the system calls them clean: a later sync that succeeds says
nothing of them (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
"""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

from faults.disk_model import Nothing
from faults.simulated_disk import SimulatedDisk
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog

STORAGE_ERROR = 56
CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=200)


class Broker:
    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.acknowledged: dict[int, bytes] = {}
        self.refused = 0
        self.number = 0
        self.log = self.start()

    def start(self) -> PartitionLog:
        settings = LogSettings(flush_policy=FlushPolicy.GROUP)
        self.directory = DataFolder.open(Path("/data"), settings, files=self.disk, clock=lambda: 1_700_000_000_000)
        return self.directory.create("t", 0, bytes(16), CONFIG)

    def append(self) -> int:
        batch = build_batch([Record(0, 1_700_000_000_000, None, str(self.number).encode() * 70)])
        self.number += 1
        appended = self.log.append(batch)
        codes = [appended.error_code]
        if not appended.error_code:
            self.log.on_durable(appended.last_offset + 1, codes.append)
            self.directory.flusher.sync_now()
        if codes[-1]:
            assert codes[-1] == STORAGE_ERROR
            self.refused += 1
        elif len(codes) == 2:
            self.acknowledged[appended.base_offset] = batch[16:]
        return codes[-1]

    def check(self) -> None:
        """Check that all acknowledged batches are read."""
        there, offset = {}, 0
        while data := self.log.read_batches(offset, 1 << 20):
            for header, batch in read_batches(data):
                there[header.base_offset] = bytes(batch)[16:]
                offset = header.last_offset + 1
        assert {offset: there.get(offset) for offset in self.acknowledged} == self.acknowledged


def test_one_error_at_any_call(figures):
    broker = Broker()
    broker.disk.journal = []
    for _ in range(12):
        assert broker.append() == 0
    changes = len(broker.disk.journal)
    acknowledged, offline = 0, 0
    for failing in range(changes):
        broker = Broker()
        left = [failing]

        def fault(call: str, path: str, broker: Broker = broker, left: list[int] = left) -> None:
            if call == "read":
                return
            left[0] -= 1
            if left[0] == -1:
                if call == "sync":
                    broker.disk.disk.find(path).unsynced.clear()
                raise OSError(errno.EIO, "Input/output error")

        broker.disk.fault = fault
        for _ in range(12):
            broker.append()
        broker.check()
        acknowledged += len(broker.acknowledged)
        offline += broker.log.offline is not None
        broker.disk.fault = lambda call, path: None
        broker.disk.cut()
        broker.disk.restart(Nothing())
        broker.log = broker.start()
        broker.check()
        assert broker.append() == 0
    figures(f"{changes} errors, {offline} took the log offline; {acknowledged} batches acknowledged, 0 lost")
    assert changes > offline > 10
    assert acknowledged > 5 * changes


def test_full_at_any_size(figures):
    """Producers get error 56, readers all that was acknowledged; with space again the next record is acknowledged."""
    empty = Broker()
    assert empty.append() == 0
    refused, sizes = 0, range(empty.disk.used_bytes(), empty.disk.used_bytes() + 3000, 37)
    for size in sizes:
        broker = Broker()
        broker.disk.bytes_max = size
        for _ in range(40):
            broker.append()
        assert broker.refused > 0
        assert broker.log.offline is None
        refused += broker.refused
        broker.check()
        with contextlib.suppress(StorageFailure):
            broker.directory.checkpoints.write_all()
        broker.disk.bytes_max = None
        assert broker.append() == 0
        broker.directory.check_invariants()
        broker.disk.cut()
        broker.disk.restart(Nothing())
        broker.log = broker.start()
        broker.check()
    figures(f"{len(sizes)} sizes, {refused} batches refused, 0 acknowledged ones lost")


def test_of_logs_that_are_synced_together_only_the_one_whose_sync_failed_goes_offline():
    disk = SimulatedDisk()
    settings = LogSettings(flush_policy=FlushPolicy.GROUP)
    directory = DataFolder.open(Path("/data"), settings, files=disk, clock=lambda: 1_700_000_000_000)
    logs = directory.create_many("t", range(5), bytes(16), LogConfig())
    codes: dict[int, list[int]] = {number: [] for number in range(5)}
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"value")])

    def append_to_each() -> None:
        for number, log in enumerate(logs):
            appended = log.append(batch)
            if appended.error_code:
                codes[number].append(appended.error_code)
            else:
                log.on_durable(appended.last_offset + 1, codes[number].append)
        directory.flusher.sync_now()

    def fault(call: str, path: str) -> None:
        if call == "sync" and path == logs[2].segments.active.path:
            disk.disk.find(path).unsynced.clear()
            raise OSError(errno.EIO, "Input/output error")

    append_to_each()
    disk.fault = fault
    append_to_each()
    append_to_each()
    assert codes == {0: [0, 0, 0], 1: [0, 0, 0], 2: [0, STORAGE_ERROR, STORAGE_ERROR], 3: [0, 0, 0], 4: [0, 0, 0]}
    disk.restart(Nothing())
    directory = DataFolder.open(Path("/data"), settings, files=disk, clock=lambda: 1_700_000_000_000)
    assert [directory.logs["t", number].log_end_offset for number in range(5)] == [3, 3, 1, 3, 3]
