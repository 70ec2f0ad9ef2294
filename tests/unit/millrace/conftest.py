"""Processes, and a home of its own for each test of the command line."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of the configuration, without a profile."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("MILLRACE_PROFILE", raising=False)
    return tmp_path


def is_alive(pid):
    """Return whether a process has not ended; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
