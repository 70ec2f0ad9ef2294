"""A failed test runs once more, alone, after all others have ended. If it passes then, it is unsteady and fails no run.

    UNSTEADY tests/wire/test_fetch.py::test_x       and the text of its first failure, in the summary

An unsteady test is a defect: the next change mends it. Crashes, errors of collection, interruptions and more than
RERUNS_MAX failures are no moods of a machine: nothing runs again after them.

The targets of the Makefile ask for it with `--once-more`. The process that prints the verdict (the only one, or the one
that `pytest -n` distributes from) starts another pytest for the second runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest
from _pytest.terminal import TerminalReporter

RERUNS_MAX: Final = 20
#: The file for the names of tests that passed, in the process of the second runs.
SECOND_RUNS: Final = "MILLRACE_TEST_SECOND_RUNS"
#: The second runs take as long as the first ones of these tests; this ends what hangs.
SECOND_RUNS_S: Final = 1800.0


class SecondRuns:
    """The plugin of the process that runs failed tests again: it writes the names of those that pass."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._passed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._passed[report.nodeid] = self._passed.get(report.nodeid, True) and not report.failed

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps([name for name, passed in self._passed.items() if passed]))


class Unsteady:
    """The plugin of the process that prints the verdict."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._first_failures: list[pytest.TestReport] = []

    @pytest.hookimpl(trylast=True)  # the processes of `pytest -n` have ended then
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        terminal: TerminalReporter = self._config.pluginmanager.getplugin("terminalreporter")
        failed = [report for kind in ("failed", "error") for report in terminal.stats.get(kind, [])]
        names = sorted({report.nodeid for report in failed})
        if exitstatus != pytest.ExitCode.TESTS_FAILED or not names or len(names) > RERUNS_MAX:
            return
        if any(not isinstance(report, pytest.TestReport) or report.when == "???" for report in failed):
            return  # an error of collection, a crash
        terminal.write_sep("=", f"{len(names)} failed: once more, alone")
        passed = self._run_again(names)
        for kind in ("failed", "error"):
            kept = [report for report in terminal.stats.pop(kind, []) if report.nodeid not in passed]
            if kept:
                terminal.stats[kind] = kept
        self._first_failures = [report for report in failed if report.nodeid in passed]
        if passed:
            terminal.stats["unsteady"] = self._first_failures
        if set(names) == passed:
            session.exitstatus = pytest.ExitCode.OK

    def _run_again(self, names: list[str]) -> set[str]:
        """Return the names of the tests that pass in a new process; show its output unless all do."""
        rootdir = self._config.rootpath
        options = ["-q", "-p", "no:cacheprovider", "-n0", f"--rootdir={rootdir}"]
        with tempfile.TemporaryDirectory(prefix="millrace-second-runs-") as folder:
            passed, output = Path(folder, "passed"), Path(folder, "output")
            passed.write_text("[]")
            with output.open("wb") as file, contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    [sys.executable, "-m", "pytest", *options, *names],
                    cwd=rootdir,
                    env={**os.environ, SECOND_RUNS: str(passed)},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=SECOND_RUNS_S,
                    check=False,
                )
            found = set(json.loads(passed.read_text())) & set(names)
            if found != set(names):
                sys.stdout.write(output.read_text(errors="replace"))
        return found

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        for report in self._first_failures:
            terminalreporter.write_sep("_", f"first failure of {report.nodeid}")
            terminalreporter.write_line(report.longreprtext)
        for name in dict.fromkeys(report.nodeid for report in self._first_failures):
            terminalreporter.write_line(f"UNSTEADY {name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--once-more", action="store_true", help="run failed tests again at the end")


def pytest_configure(config: pytest.Config) -> None:
    if file := os.environ.get(SECOND_RUNS):
        config.pluginmanager.register(SecondRuns(Path(file)), "second-runs")
    elif config.getoption("once_more") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Unsteady(config), "unsteady")
