"""The bench's figures of fetches that wait."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import millrace
import pytest
from connections import Parked, parked
from flood import Flood, produce


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with millrace.Broker(topics="empty,full") as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def asleep() -> Iterator[int]:
    """A process that does nothing."""
    with subprocess.Popen(["sleep", "600"]) as process:
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.01)
        yield process.pid
        process.kill()


def test_parked_fetches_cost_a_process_that_sleeps_nothing(address: str, asleep: int) -> None:
    assert parked(address, [asleep], "empty", 3, 0.1) == Parked(cpu_share=0.0, wake_ups=0.0)


def test_a_fetch_that_is_answered_is_not_parked(address: str, asleep: int) -> None:
    produce(address, Flood("full", 10), 1)
    with pytest.raises(RuntimeError, match="a Fetch that had to wait was answered"):
        parked(address, [asleep], "full", 3, 0.5)
