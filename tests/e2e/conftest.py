"""Parts that the end-to-end tests share: the processes and files of a child."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from support.spark_session import QUICK_JAVA

#: Options of a driver of a few thousand rows.
QUICK_SPARK = {"MILLRACE_ETL_JAVA_OPTIONS": QUICK_JAVA}


@dataclass(frozen=True, slots=True)
class Traces:
    """A mark in the environment of a child and of all it starts, and a temporary folder for all of them."""

    mark: str
    temporary: Path

    def environment(self) -> dict[str, str]:
        return {**os.environ, **QUICK_SPARK, "TRACES_MARK": self.mark, "TMPDIR": str(self.temporary)}

    def processes(self) -> list[str]:
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                if f"TRACES_MARK={self.mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return found

    def files(self) -> list[Path]:
        return sorted(self.temporary.iterdir())

    def wait_gone(self) -> None:
        """Wait until no process is left: a killed process may need a moment to leave /proc."""
        end = time.monotonic() + 20
        while self.processes() and time.monotonic() < end:
            time.sleep(0.05)


@pytest.fixture
def traces(tmp_path: Path) -> Traces:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    return Traces(uuid4().hex, temporary)
