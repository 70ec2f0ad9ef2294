"""The high watermark calls back in a fixed order: the log itself, then watchers, then waiters by offset."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.high_watermark import HighWatermark
from storage_svc.log.partition.read_positions import ReadPositions
from storage_svc.log.segment.segment import Segment


class Calls:
    """A high watermark at offset 5, and every call back from it, with the offset it had then."""

    def __init__(self, path: Path) -> None:
        self.seen: list[tuple[str, int]] = []
        self.segment = Segment(Files(), str(path), 0, LogConfig(), 0)
        self.segment.size = 1000
        self.positions = ReadPositions()
        self.mark = HighWatermark(5, self.segment, 100, self.positions, lambda: self.note("moved"))

    def note(self, name: str) -> None:
        self.seen.append((name, self.mark.offset))

    def wait(self, offset: int) -> None:
        self.mark.wait(offset, lambda code: self.note(f"{offset}: {code}"))


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path)


def test_an_advance_calls_back_the_log_then_watchers_then_waiters_in_order(calls: Calls) -> None:
    for offset in (9, 7, 8, 10):
        calls.wait(offset)
    calls.mark.watch("a", lambda: calls.note("a"))
    calls.mark.watch("b", lambda: calls.note("b"))
    calls.mark.advance(9, calls.segment, 300, (77, 8))
    assert calls.seen == [("moved", 5), ("a", 9), ("b", 9), ("7: 0", 9), ("8: 0", 9), ("9: 0", 9)]
    assert (calls.mark.segment, calls.mark.position, calls.mark.largest) == (calls.segment, 300, (77, 8))
    assert calls.positions.find(5, calls.segment) == 100


def test_a_watcher_that_left_is_not_called(calls: Calls) -> None:
    calls.mark.watch("a", lambda: calls.note("a"))
    assert calls.mark.watcher_count == 1
    calls.mark.unwatch("a")
    calls.mark.unwatch("a")
    calls.mark.notify_watchers()
    calls.mark.advance(6, calls.segment, 200, (-1, -1))
    assert (calls.seen, calls.mark.watcher_count) == ([("moved", 5)], 0)


def test_a_failure_reaches_every_waiter_once(calls: Calls) -> None:
    calls.wait(8)
    calls.wait(6)
    calls.mark.fail(56)
    calls.mark.fail(56)
    assert calls.seen == [("6: 56", 5), ("8: 56", 5)]


def test_a_retreat_calls_nobody(calls: Calls) -> None:
    calls.wait(6)
    calls.mark.watch("a", lambda: calls.note("a"))
    calls.mark.retreat(0, calls.segment, 0)
    assert (calls.seen, calls.mark.offset, calls.mark.position) == ([], 0, 0)
