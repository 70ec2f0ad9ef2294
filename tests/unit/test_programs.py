"""Programs of the tests and the benchmarks: a name that one imports is seen to be missing before it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from faults.histories.nemesis import PROGRAM_ENVIRONMENT

ROOT = Path(__file__).parents[2]


def _programs(folder: Path) -> list[str]:
    marked = [path for path in folder.rglob("*.py") if '\nif __name__ == "__main__"' in path.read_text()]
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in marked)


@pytest.mark.parametrize("folder", ["tests", "bench"])
def test_every_program_finds_what_it_imports(folder: str) -> None:
    names = _programs(ROOT / folder)
    assert len(names) > 5
    imports = "\n".join(f"import {name}" for name in names)
    process = subprocess.run(
        [sys.executable, "-c", imports], cwd=ROOT, env=PROGRAM_ENVIRONMENT, capture_output=True, text=True
    )
    assert (process.returncode, process.stderr) == (0, "")
