"""Damage removed from a log that is in use, ended before each write, sync, rename and deletion: nothing else is lost,
and the damaged bytes are in the log or in the quarantine folder.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from faults.simulated_disk import PowerCut, SimulatedDisk
from faults.test_crash_points import WAYS
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.partition.partition_log import PartitionLog

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)
BATCHES = 12


class Life:
    """A log of several segments, all of it durable, in which one batch is damaged."""

    def __init__(self, damaged: int) -> None:
        self.disk = SimulatedDisk()
        self.damaged = damaged
        log = self.open()
        for number in range(BATCHES):
            assert log.append(build_batch([Record(0, NOW_MS, None, b"%d." % number * 150)])).base_offset == number
        self.directory.flusher.sync_now()
        self.directory.checkpoints.store_all()
        assert len(log.segments) > 2
        segment = log.segments[log.segments.index_of(damaged)]
        self.base_offset = segment.base_offset
        located = segment.locate(damaged)
        assert located is not None
        byte = segment.read(located[0] + 80, 1)
        self.disk.append(segment.descriptor, [bytes([byte[0] ^ 1])], located[0] + 80, 1)
        self.disk.sync(segment.descriptor)
        self.bytes = segment.read(located[0], located[1].size)

    def open(self) -> PartitionLog:
        settings = LogSettings(flush_policy=FlushPolicy.GROUP)
        self.directory = DataFolder.open(Path("/data"), settings, files=self.disk, clock=lambda: NOW_MS)
        return self.directory.create("t", 0, bytes(16), CONFIG)

    def repair(self, log: PartitionLog) -> None:
        assert asyncio.run(Maintenance(self.directory).scrubber.repair(log, self.base_offset))

    def check(self) -> None:
        log = self.open()
        self.repair(log)
        assert (log.offline, log.log_end_offset) == (None, BATCHES)
        found, offset = [], 0
        while data := log.read_batches(offset, 1):
            offset = int.from_bytes(data[:8], "big") + 1
            found.append(offset - 1)
            assert data != self.bytes
        assert found == [number for number in range(BATCHES) if number != self.damaged]
        aside = self.disk.entries("/data/t-0/quarantine")
        assert [self.disk.read_file(f"/data/t-0/quarantine/{name}") for name, *_ in aside] == [self.bytes]
        assert log.append(build_batch([Record(0, NOW_MS, None, b"after")])).base_offset == BATCHES
        self.directory.flusher.sync_now()
        self.directory.check_invariants()


@pytest.mark.parametrize("damaged", [1, BATCHES - 2], ids=["closed segment", "active segment"])
@pytest.mark.parametrize("way", WAYS)
def test_every_crash_point_of_a_repair(way, damaged, figures):
    life = Life(damaged)
    life.disk.journal = []
    life.repair(life.directory.logs["t", 0])
    journal = life.disk.journal
    assert {"write", "sync", "rename"} <= {call for call, _ in journal}
    for at in range(len(journal)):
        life = Life(damaged)
        life.disk.cut_at = life.disk.changes + at
        with pytest.raises(PowerCut):
            life.repair(life.directory.logs["t", 0])
        life.disk.restart(WAYS[way](random.Random(at)))
        life.check()
    figures(f"{len(journal)} crash points of a repair, 0 other batches lost")
