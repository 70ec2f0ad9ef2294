"""Power cuts around a change of a log's flush policy: a batch written under group is acknowledged once it is on
disk, with everything before it, under any policy."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
from faults.disk_model import Any, Earliest, Leaves, Nothing
from faults.power_cuts import ROOT
from faults.simulated_disk import PowerCut, SimulatedDisk
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.outcome import Origin

#: A segment holds two batches.
BATCH = build_batch([Record(0, 0, None, bytes(700))])
UNDER_OS = LogConfig(segment_bytes=2 * len(BATCH), flush_policy=FlushPolicy.OS)
UNDER_GROUP = LogConfig(segment_bytes=2 * len(BATCH), flush_policy=FlushPolicy.GROUP)


#: The number of different sets of surviving changes that are tried at each cut.
LEAVES = 7


class Broker:
    def __init__(self, disk: SimulatedDisk) -> None:
        #: The offset up to which batches were promised to be on disk.
        self.promised_end = 0
        self.directory = DataFolder.open(ROOT, LogSettings(), files=disk, clock=lambda: 0)
        (self.log,) = self.directory.create_many("t", [0], bytes(range(16)), UNDER_OS)

    def append(self, count: int, config: LogConfig) -> None:
        self.log.configure(config)
        for _ in range(count):
            appended = self.log.append(BATCH, origin=Origin.CLIENT)
            assert appended.error_code == 0
            if config is UNDER_GROUP:
                self.log.on_durable(appended.last_offset + 1, partial(self._acknowledge, appended.last_offset + 1))

    def _acknowledge(self, end: int, code: int) -> None:
        assert code == 0
        self.promised_end = end

    def offsets(self) -> list[int]:
        """Return the numbers of the batches that are there."""
        log = self.log
        return [n for n in range(log.log_end_offset) if log.read_batches(n, 1)[:8] == n.to_bytes(8, "big")]


def _leaves(disk: SimulatedDisk) -> list[Leaves]:
    chances = [random.Random(seed) for seed in range(3)]
    return [Nothing(), *map(Any, chances), *(Earliest(disk.disk, chance) for chance in chances)]


def _cut_everywhere(work: Callable[[Broker], None]) -> None:
    """Run the work with a cut at each of its changes and at its end."""
    at = 0
    cut = True
    while cut:
        for number in range(LEAVES):
            disk = SimulatedDisk()
            broker = Broker(disk)
            broker.directory.flusher.sync_now()
            disk.cut_at = disk.changes + at
            cut = False
            try:
                work(broker)
            except PowerCut:
                cut = True
            disk.cut()
            disk.restart(_leaves(disk)[number])
            assert Broker(disk).offsets()[: broker.promised_end] == list(range(broker.promised_end))
        at += 1
    assert at > 3


@pytest.mark.parametrize(("before", "then"), [(1, 1), (2, 1), (3, 2), (4, 3)])
def test_what_group_acknowledges_outlives_a_cut_with_all_that_os_wrote_before_it(before: int, then: int) -> None:
    def work(broker: Broker) -> None:
        broker.append(before, UNDER_OS)
        broker.append(then, UNDER_GROUP)
        broker.directory.flusher.sync_now()
        assert broker.promised_end == before + then

    _cut_everywhere(work)


@pytest.mark.parametrize("then", [1, 2])
def test_what_group_wrote_is_not_acknowledged_because_os_writes_behind_it(then: int) -> None:
    def work(broker: Broker) -> None:
        broker.append(1, UNDER_GROUP)
        broker.append(then, UNDER_OS)
        assert (broker.promised_end, broker.log.high_watermark) == (0, 0)
        broker.directory.flusher.sync_now()
        assert (broker.promised_end, broker.log.high_watermark) == (1, 1 + then)
        broker.append(1, UNDER_OS)
        assert broker.log.high_watermark == 2 + then

    _cut_everywhere(work)
