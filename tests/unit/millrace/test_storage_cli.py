"""`millrace storage`, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import millrace
import pytest
from confluent_kafka import Producer


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a broker that was stopped."""
    data = tmp_path_factory.mktemp("volume") / "data"
    with millrace.Broker(data_dir=data, topics="orders:1") as broker:
        refused = run("verify", data)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        for number in range(10):
            producer.produce("orders", f"value {number}", "key", 0)
        assert producer.flush(60) == 0
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is in use by another process" in refused.stderr
    return data


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millrace", "storage", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_verify(volume: Path, tmp_path: Path) -> None:
    done = run("verify", volume)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(": 0 faults, 0 notes\n")

    log = volume / "orders-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-1] + b"!")
    done = run("verify", "--quiet", volume)
    log.write_bytes(whole)
    assert done.returncode == 1
    assert done.stdout.startswith(f"fault  orders-0/{log.name}: damaged at position ")

    done = run("verify", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a data folder" in done.stderr


def test_dump_log(volume: Path) -> None:
    folder = volume / "orders-0"
    done = run("dump-log", "--deep", folder / f"{0:020d}.log", folder / f"{10:020d}.snapshot")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"Dumping {folder / f'{0:020d}.log'}"
    assert lines[1].startswith("baseOffset: 0 ")
    assert [line.rsplit(": ")[-1] for line in lines if line.startswith("|")] == [f"value {n}" for n in range(10)]
    assert lines[-1].endswith("lastSequence: 9 lastOffset: 9 offsetDelta: " + lines[-1].rsplit(" ", 1)[1])
    done = run("dump-log", folder / "partition.metadata")
    assert (done.returncode, done.stdout) == (2, "")
