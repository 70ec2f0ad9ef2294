"""A scripted life of a partition, ended before each of its writes, syncs, renames and deletions in turn.

The script appends, rolls, commits and aborts transactions, deletes records and segments, checkpoints and stops.
Wherever it ends, the next start finds a valid prefix of the batches sent, with all acknowledged ones. power_cuts.py
lists the other checks. Then the rest of the script runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from faults.disk_model import Any, Leaves, Nothing
from faults.power_cuts import PowerCuts, Tally
from faults.simulated_disk import SimulatedDisk
from storage_svc.log.segment import index_file


class CrashPoints(PowerCuts):
    """The power goes at one change, and perhaps at one more while starting again."""

    def __init__(self, leaves: Callable[[random.Random], Leaves | None], again: list[int]) -> None:
        super().__init__()
        self._how = leaves
        self._again = again

    def _leaves(self, chance: random.Random) -> Leaves | None:
        return self._how(chance)

    def _cut_again(self, chance: random.Random) -> int | None:
        return self._again.pop() if self._again else None

    def script(self) -> None:
        self._survive(self._open)
        self.append(0, [(2, 300), (1, 100), (3, 200)], [0, 1, None])
        self.transact(0, [2, 1], True)
        self.append(0, [(4, 500)], [0, None, None])
        self.sync()
        self.append(0, [(4, 500), (4, 400)], [0, 1, None])
        self.checkpoint()
        self.transact(0, [1, 2], False)
        self.append(0, [(4, 600)], [2, None, None])
        self.sync()
        self.delete_records(0, 0.4)
        self.append(0, [(4, 700), (4, 600)], [0, 1, None])
        self.sync()
        self.append(0, [(4, 700)], [0, None, None])
        self.sync()
        self.delete_oldest(0)
        self.stop_and_start()
        self.append(0, [(4, 700)], [1, None, None])
        self.sync()


WAYS: dict[str, Callable[[random.Random], Leaves | None]] = {
    "the process ends": lambda chance: None,
    "power cut": lambda chance: Nothing(),
    "power cut, some of it written": Any,
}


def _journal() -> list[tuple[str, str]]:
    machine = CrashPoints(WAYS["power cut"], [])
    machine.disk.journal = []
    machine.script()
    return machine.disk.journal


def _crash(way: str, at: int, again: list[int]) -> SimulatedDisk:
    machine = CrashPoints(WAYS[way], again)
    machine.seed = at
    machine.disk.cut_at = at
    machine.script()
    machine.consistent()
    return machine.disk


def _crash_at(points: Sequence[int], way: str, journal: list[tuple[str, str]]) -> Tally:
    calls = {call for call, _ in journal}
    assert calls == {"create", "write", "truncate", "sync", "rename", "unlink"}
    assert sum(call == "rename" and path.endswith(".log") for call, path in journal) > 0
    tally = PowerCuts.tally = Tally()
    for at in points:
        _crash(way, at, [])
    assert tally.cuts == len(points)
    assert tally.cuts_in_flight > len(points) // 3
    return tally


@pytest.fixture
def small_index(monkeypatch):
    """An index whose entries are written in steps of a few."""
    monkeypatch.setattr(index_file, "MEMORY_BYTES", 30)


@pytest.mark.parametrize("way", WAYS)
def test_each_crash_point_in_one_way(way, small_index):
    """Every third point in each of the ways."""
    journal = _journal()
    _crash_at(range(list(WAYS).index(way), len(journal), len(WAYS)), way, journal)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_every_crash_point(way, small_index, figures, scaled):
    journal = _journal()
    points = range(0, len(journal), len(journal) // scaled(len(journal)))
    tally = _crash_at(points, way, journal)
    figures(f"{len(points)} crash points of {', '.join(sorted({call for call, _ in journal}))}; {tally}")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_every_crash_point_of_the_start_after_each(way, figures, scaled):
    """Starting is cut short at every change it makes, after many of the crashes."""
    journal = _journal()
    tally = PowerCuts.tally = Tally()
    for at in range(0, len(journal), max(1, len(journal) // scaled(12))):
        again = 0
        while True:
            before = tally.cuts
            _crash(way, at, [again])
            if tally.cuts == before + 1:
                break
            again += 1
    figures(str(tally))
    assert tally.cuts_while_starting > scaled(12)


def test_aborted_records_stay_aborted_over_two_power_cuts():
    """The transaction index that a start rebuilds must be on the disk before checkpoints go past its segment."""
    machine = CrashPoints(WAYS["power cut"], [])
    machine.start(0)
    machine.transact(0, [1], False)
    for _ in range(2):
        machine.append(0, [(4, 600)], [None, None, None])
        machine.sync()
    machine.disk.cut()
    machine._recover()
    machine.checkpoint()
    machine.disk.cut()
    machine._recover()


def test_a_partition_whose_maker_died_before_its_folder_was_synced():
    machine = CrashPoints(WAYS["power cut"], [])
    machine.start(0)
    machine.disk.cut()
    machine.disk.restart(None)
    machine._open()
    machine.append(0, [(2, 100)], [0, None, None])
    machine.sync()
    assert machine.partitions[0].acknowledged_end == 2
    machine.disk.cut()
    machine._recover()
