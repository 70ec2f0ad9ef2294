"""The state of a log: its derived offsets, and the invariants that every test checks at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.state import LogState
from storage_svc.log.partition.transaction_end import end_transaction

BREAKS: dict[str, Callable[[LogState], None]] = {
    "log start after the high watermark": lambda state: setattr(state, "log_start_offset", 5),
    "log start before the first segment": lambda state: setattr(state, "log_start_offset", -1),
    "high watermark after the end": lambda state: setattr(state.readable, "offset", 5),
    "recovery point after the end": lambda state: setattr(state, "recovery_point", 5),
    "readable position after the segment's end": lambda state: setattr(state.readable, "position", 1 << 20),
    "size of a segment": lambda state: setattr(state.segments.active, "size", state.segments.active.size + 1),
}


@pytest.fixture
def log(folders: Any, tmp_path: Path, fill: Callable[..., Any]) -> PartitionLog:
    made: PartitionLog = folders.open(tmp_path).create("t", 0, bytes(16), LogConfig())
    fill(made, [2, 2])
    return made


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_invariant_is_found(log: PartitionLog, broken: str) -> None:
    state = log._state
    names = "log_start_offset", "recovery_point"
    before = {name: getattr(state, name) for name in names}
    readable, size = (log.readable.offset, log.readable.segment, log.readable.position), log.segments.active.size
    state.check_invariants()
    BREAKS[broken](state)
    with pytest.raises(AssertionError):
        state.check_invariants()
    for name, value in before.items():
        setattr(state, name, value)
    log.readable.retreat(*readable)
    log.segments.active.size = size


def test_the_end_of_an_epoch_is_the_start_of_the_next(log: PartitionLog, make_batch: Callable[..., bytes]) -> None:
    log.begin_leader_epoch(3)
    log.append(make_batch(1))
    log.begin_leader_epoch(5)
    ends = {-1: (-1, -1), 0: (0, 4), 2: (0, 4), 3: (3, 5), 4: (4, 5), 5: (5, 5), 6: (-1, -1)}
    assert {epoch: log.end_of_epoch(epoch) for epoch in ends} == ends


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(
    log: PartitionLog, make_batch: Callable[..., bytes]
) -> None:
    assert log.last_stable_offset == 4
    log.append(make_batch(1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    log.append(make_batch(1))
    assert (log.high_watermark, log.last_stable_offset) == (6, 4)
    log.raise_log_start(5)
    assert log.last_stable_offset == 5
    assert end_transaction(log, 7, 0, commit=True, coordinator_epoch=0).error_code == 0
    assert log.last_stable_offset == 7
