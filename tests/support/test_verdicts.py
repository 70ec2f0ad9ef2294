"""What a run of tests reports: failures that do not repeat, crashes, hangs (unsteady.py, hang_guard.py); part.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CONFTEST = """
from support import hang_guard
pytest_plugins = ["support.hang_guard", "support.part", "support.unsteady"]
hang_guard.GRACE_S = 2.0
"""
#: Each fails in its first run: in its call, or in the end of its fixture.
ONCE = """
import pathlib, pytest
def first(name):
    try:
        pathlib.Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
@pytest.mark.parametrize("name", ["a[b]", "c d"])
def test_once(name):
    assert not first(name), "its first failure"
@pytest.fixture
def ends_badly():
    yield
    assert not first("end"), "the end of a fixture"
def test_end(ends_badly):
    pass
"""
#: A crash that a second run would not repeat.
CRASH = """
import os, pathlib
def test_crash():
    if not pathlib.Path("crashed").exists():
        pathlib.Path("crashed").touch()
        os.abort()
"""
#: A hang that blocks the signal of pytest-timeout.
HANG = """
import pytest, signal, threading
@pytest.mark.timeout(1)
def test_hang():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    threading.Event().wait()
"""
UNSTEADY = [f"UNSTEADY test_0.py::{name}" for name in ("test_end", "test_once[a[b]]", "test_once[c d]")]


def run(folder: Path, *files: str, processes: int = 0, options: Sequence[str] = ()) -> tuple[int, str]:
    """Return the exit code and the output of pytest with --once-more."""
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:warnings --max-worker-restart=0\ntimeout = 60\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for number, text in enumerate(files):
        (folder / f"test_{number}.py").write_text(text)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-p xdist -p pytest_timeout",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(processes), "--once-more", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=110)
    return done.returncode, done.stdout + done.stderr


def reported(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line.startswith("UNSTEADY"))


def test_a_test_that_fails_once_fails_no_run(tmp_path: Path) -> None:
    code, output = run(tmp_path, ONCE)
    assert (code, reported(output)) == (0, UNSTEADY)
    assert "AssertionError: its first failure" in output
    assert "AssertionError: the end of a fixture" in output
    assert output.splitlines()[-1].startswith("1 passed, 3 unsteady in ")


def test_a_test_that_fails_twice_does(tmp_path: Path) -> None:
    code, output = run(tmp_path, ONCE, "def test_bad():\n    assert 1 == 2\n", processes=2)
    assert (code, reported(output)) == (1, UNSTEADY)
    assert "FAILED test_1.py::test_bad" in output
    assert output.splitlines()[-1].startswith("1 failed, 1 passed, 3 unsteady in ")


def test_a_crash_fails_the_run_and_nothing_runs_again(tmp_path: Path) -> None:
    code, output = run(tmp_path, ONCE, CRASH, processes=2)
    assert (code, reported(output)) == (1, [])
    assert "crashed while running 'test_1.py::test_crash'" in output
    assert " in test_crash\n" in output


def test_a_hang_ends_with_the_stack_of_every_thread(tmp_path: Path) -> None:
    code, output = run(tmp_path, ONCE, HANG, processes=2)
    assert (code, reported(output)) == (1, [])
    assert "crashed while running 'test_1.py::test_hang'" in output
    assert " in test_hang\n" in output
    assert " in _thread_receiver\n" in output


def test_the_parts_of_a_run_are_the_whole(tmp_path: Path) -> None:
    tests = "\n".join(f"def test_{number}():\n    assert {number} == 9" for number in range(5))
    failed = []
    for part in ("1/2", "2/2"):
        _, output = run(tmp_path, tests, options=["--part", part])
        failed.append(sorted({line.split()[1][-6:] for line in output.splitlines() if line.startswith("FAILED")}))
    assert failed == [["test_0", "test_2", "test_4"], ["test_1", "test_3"]]
