"""An hour of clients that come and go, at four times the rate in a quarter of the time, leaves no more than it must.

What stays is in docs/operations.md: producer ids and transactional ids live for a day and a week, as Kafka's do. The
figures are the memory of each service by kind, its growth, and its share of a processor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from processes import cpu_seconds, memory_kinds
from up_process import RunningUp

from tests.faults.soak.load import INGREDIENTS
from tests.support.waiting import until

SPEED: Final = 4
SAMPLE_S: Final = 5.0
#: MB that a service may grow by, however short the load is, and by the hour of the load.
GROWTH_MB, GROWTH_MB_AN_HOUR = 8.0, 12.0
#: The first part of the samples, in which caches and the allocator fill.
WARM: Final = 0.25


@dataclass(frozen=True)
class Sample:
    """A process at a moment: its memory in bytes, and counts."""

    at: float
    anonymous: int
    mapped: int
    threads: int
    descriptors: int
    cpu_s: float

    @classmethod
    def take(cls, pid: int) -> Sample:
        folder = Path(f"/proc/{pid}")
        threads, descriptors = (len(os.listdir(folder / name)) for name in ("task", "fd"))
        return cls(time.monotonic(), *memory_kinds(pid), threads, descriptors, cpu_seconds([pid]))


@contextmanager
def running_load(up: RunningUp, log_path: Path, steps: dict[str, int]) -> Iterator[None]:
    """Run the load for the length of a block, then note the number of steps of each ingredient."""
    command = [sys.executable, "-m", "tests.faults.soak.load", up.kafka, up.http, str(SPEED)]
    folders = [str(Path(__file__).parents[1]), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    with open(log_path, "wb") as log:
        load = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=Path(__file__).parents[2],
            env=environment,
        )
        try:
            yield
            output, _ = load.communicate(b"", timeout=120)
        finally:
            load.kill()
            load.wait()
    assert load.returncode == 0, log_path.read_text(errors="replace")[-4000:]
    steps.update(json.loads(output))


def grown_mb(samples: list[Sample]) -> float:
    """Return the growth of anonymous memory after the warm part: from the mean of its first quarter to its last's."""
    warm = samples[round(len(samples) * WARM) :]
    part = max(1, len(warm) // 4)
    first, last = (sum(each.anonymous for each in some) / part for some in (warm[:part], warm[-part:]))
    return (last - first) / 1e6


def line(service: str, samples: list[Sample]) -> str:
    first, last = samples[0], samples[-1]
    share = (last.cpu_s - first.cpu_s) / (last.at - first.at)
    return (
        f"{service} {first.anonymous / 1e6:.1f} to {last.anonymous / 1e6:.1f} MB anonymous, {last.mapped / 1e6:.1f}"
        f" mapped, {last.threads} threads, {last.descriptors} descriptors, {share:.2f} of a core"
    )


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_an_hour_of_passing_clients_leaves_no_memory(
    tmp_path: Path, figures: Any, scaled: Callable[[int], int]
) -> None:
    duration_s = scaled(3600) / SPEED
    taken: dict[str, list[Sample]] = {}
    steps: dict[str, int] = {}
    data = ("--data-dir", str(tmp_path / "data"))
    with RunningUp("--kafka-port", "0", "--http-port", "0", *data) as up:
        pids = {service: pid for service, (pid,) in up.services().items()}
        before = {service: Sample.take(pid) for service, pid in pids.items()}
        ends_at = time.monotonic() + duration_s
        with running_load(up, tmp_path / "load.log", steps):
            while time.monotonic() < ends_at:
                time.sleep(min(SAMPLE_S, duration_s / 8))
                for service, pid in pids.items():
                    taken.setdefault(service, []).append(Sample.take(pid))
        after: dict[str, Sample] = {}

        def connections_are_closed() -> bool:
            after.update({service: Sample.take(pid) for service, pid in pids.items()})
            # The partitions of the coordinators' topics and those of the load have an open file or two each.
            return all(after[each].descriptors < before[each].descriptors + 350 for each in pids)

        until(connections_are_closed, lambda: [line(service, [before[service], after[service]]) for service in pids])
    hours = duration_s * SPEED / 3600
    figures(f"{hours:.2f} hours of load in {duration_s:.0f} s; steps: {steps}")
    grown = {service: grown_mb(samples) for service, samples in taken.items()}
    for service, samples in taken.items():
        figures(f"{line(service, samples)}; grown by {grown[service]:.1f} MB after the first quarter")
    assert steps.keys() == {each.name for each in INGREDIENTS}
    assert {service: mb for service, mb in grown.items() if mb > GROWTH_MB + GROWTH_MB_AN_HOUR * hours} == {}
    assert max(sample.threads for samples in taken.values() for sample in samples) < 40
