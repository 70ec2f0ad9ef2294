"""Hostile clients cost the broker no more memory than docs/guarantees.md states, and are closed in time.

The broker is a process with its default settings.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import CASES, MB, Case, Victims, run

SCALE = float(os.environ.get("FAULTS_SCALE", "1"))


@pytest.fixture
def victims(tmp_path: Path) -> Iterator[Victims]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    made = Victims(tmp_path)
    yield made
    made.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_attack_stays_within_the_memory(victims: Victims, case: Case) -> None:
    cost = run(victims, case, SCALE)
    assert cost.growth_bytes <= case.growth_mb * MB
    assert cost.attacked_ms
    if case.ends:
        assert cost.closed == round(5000 * SCALE)
        # A byte more than the frame timeout, however slow this machine is.
        assert cost.longest_seconds < 2 * 30
