"""Programs of the tests and the benchmarks: a name that one imports is seen to be missing before it is needed."""

from __future__ import annotations

import ast
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


def _starts(source: str) -> list[bool]:
    """Return for each `sys.executable, …, "-m"` of a source whether -P keeps the current folder off its path."""
    found = []
    for node in ast.walk(ast.parse(source)):
        given = node.elts if isinstance(node, ast.List) else node.args if isinstance(node, ast.Call) else []
        words = [each.value if isinstance(each, ast.Constant) else ast.unparse(each) for each in given]
        if "sys.executable" in words and "-m" in words:
            found.append("-P" in words)
    return found


def test_no_program_of_the_product_runs_modules_of_the_current_folder() -> None:
    """It is a folder of the user, or of others: a `json.py` there must not be run."""
    starts = {
        str(path.relative_to(ROOT)): found
        for folder in ("admin-api", "assembly", "gateway-svc", "protocol-lib", "services", "spark", "storage-svc")
        for path in (ROOT / folder).rglob("src/**/*.py")
        if "sys.executable" in (source := path.read_text()) and (found := _starts(source))
    }
    assert len(starts) >= 4
    assert [path for path, found in starts.items() if not all(found)] == []


def test_no_container_runs_modules_of_the_current_folder() -> None:
    """The working folder of a container may be a volume."""
    starts = [line for line in (ROOT / "assembly/Dockerfile").read_text().splitlines() if line.startswith("ENTRYPOINT")]
    assert len(starts) >= 4
    assert [line for line in starts if '"-m"' in line and '"-P"' not in line] == []
