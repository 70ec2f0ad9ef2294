"""Consume-transform-produce, ended before each of its writes, syncs, renames and creations in turn: all or nothing.

The script copies by transactions of both versions, some aborted, across the coordinator's log, the records and the
offsets (transaction_life.py). After each crash the markers of prepared transactions are written once more, the others
are aborted by the sweep for time-outs or by new producers, and the next transaction of each application commits.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from faults.simulated_disk import PowerCut
from faults.test_crash_points import WAYS
from faults.transaction_life import Life
from storage_svc.coordinator.transactions import marker_delivery

#: Turns of the event loop for each sync: many syncs with little in each, and few with much.
RHYTHMS = (1, 4)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    """Write markers again at once: those of a start meet groups that are still being loaded."""
    monkeypatch.setattr(marker_delivery, "RETRY_S", 0)


def _journal(rhythm: int) -> list[tuple[str, str]]:
    life = Life(rhythm)
    life.disk.journal = []
    life.script()
    assert life.check() == 8
    life.crashed()
    return life.disk.journal


def _crashed(way: str, rhythm: int, at: int) -> Life:
    life = Life(rhythm)
    life.disk.cut_at = at
    with pytest.raises(PowerCut):
        life.script()
    life.crashed()
    life.disk.restart(WAYS[way](random.Random(at)))
    return life


def _check(life: Life) -> int:
    visible = life.check()
    life.go_on()
    assert life.check() == visible + 2
    life.crashed()
    return visible


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("rhythm", RHYTHMS)
@pytest.mark.parametrize("way", WAYS)
def test_every_crash_point_of_the_commit_path(way, rhythm, figures, scaled):
    journal = _journal(rhythm)
    assert {call for call, _ in journal} == {"create", "write", "truncate", "sync", "rename"}
    topics = {path.split("/")[2].rpartition("-")[0] for _, path in journal if path.count("/") > 2}
    assert topics == {"__transaction_state", "__consumer_offsets", "copy"}
    # At the smallest scale still closer than the writes of one transaction, so that each number of them is seen.
    points = range(0, len(journal), max(1, len(journal) // max(200, scaled(len(journal)))))
    visible = Counter()
    for at in points:
        life = _crashed(way, rhythm, at)
        life.start_again(by_time_out=at % 2 == 0)
        visible[_check(life)] += 1
    figures(f"{len(points)} crash points of {len(journal)} changes; transactions visible afterwards: {dict(visible)}")
    assert set(visible) == set(range(9))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", WAYS)
def test_every_crash_point_of_the_start_after_each(way, figures, scaled):
    """Loading, repairs and markers are cut short at every change they make, after many of the crashes."""
    journal = _journal(1)
    count = 0
    for first in range(0, len(journal), max(1, len(journal) // scaled(10))):
        again, is_cut = 0, True
        while is_cut:
            life = _crashed(way, 1, first)
            life.disk.cut_at = life.disk.changes + again
            try:
                life.start_again(by_time_out=first % 2 == 0)
                is_cut = False
                life.disk.cut_at = None
            except PowerCut:
                life.crashed()
                life.disk.restart(WAYS[way](random.Random(again)))
                life.start_again(by_time_out=first % 2 == 1)
                count += 1
            _check(life)
            again += 1
    figures(f"{count} crashes of starts")
    assert count > scaled(10) * 10
