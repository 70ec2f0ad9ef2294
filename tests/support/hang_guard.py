"""A process of pytest that hangs writes the stack of every thread to stderr and ends.

pytest-timeout ends most tests that hang, by a signal that Python handles between two steps. A thread of faulthandler
needs neither a signal nor Python's global lock, so it ends those that block signals or never return to Python. It
waits GRACE_S longer. `pytest -n` then reports a crash in that test, and ends: see `--max-worker-restart` in the
Makefile. The process that distributes tests ends if it gets no report for SILENCE_S.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from typing import Final

import pytest

GRACE_S: Final = 60.0
#: Limit of a collection and of the end of a session, in seconds.
OUTSIDE_S: Final = 600.0
#: Longer than the longest test of `pytest -n` may take.
SILENCE_S: Final = 1300.0


class HangGuard:
    """The plugin, in every process of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self._stderr = os.dup(2)  # pytest captures the other while tests run
        self._distributes = bool(getattr(config.option, "numprocesses", None))

    def _end_after(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        self._end_after(OUTSIDE_S)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        marker = item.get_closest_marker("timeout")
        self._end_after(float(marker.args[0] if marker else item.config.getini("timeout")) + GRACE_S)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def pytest_runtest_logreport(self) -> None:
        if self._distributes:
            self._end_after(SILENCE_S)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        if not self._distributes:
            self._end_after(OUTSIDE_S)
            try:
                return (yield)
            finally:
                faulthandler.cancel_dump_traceback_later()
        faulthandler.cancel_dump_traceback_later()
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(HangGuard(config), "hang-guard")
