"""The console's files: what is vendored, how large they are, and that nothing in them reaches for another host."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from admin_api.console_files import FOLDER, MEDIA_TYPES

VENDOR = FOLDER / "vendor"
MODULES = Path(__file__).parents[2] / "console" / "modules"
SERVED = sorted(path for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES)
OWN = [path for path in SERVED if VENDOR not in path.parents]
_COMMENT = re.compile(r"/\*\*.*?\*/\s*|^\s*// .*?\n", re.DOTALL | re.MULTILINE)
_IMPORT = re.compile(r"""^import [^"`;]*"([^"]+)";|import\("([^"]+)"\)""", re.MULTILINE)


def test_vendored_files_have_their_listed_hashes():
    listed = re.findall(r"([0-9a-f]{64})  (\S+)", (VENDOR / "VENDORED.md").read_text())
    found = [(hashlib.sha256((VENDOR / name).read_bytes()).hexdigest(), name) for _, name in listed]
    assert found == listed
    assert {name for _, name in listed} | {"VENDORED.md"} == {path.name for path in VENDOR.iterdir()}


def test_assets_stay_small():
    contents = [path.read_bytes() for path in SERVED]
    code = sum(len(_COMMENT.sub("", path.read_text())) for path in OWN if path.suffix == ".js")
    assert sum(map(len, contents)) <= 200_000
    assert sum(len(gzip.compress(each, 9)) for each in contents) <= 70_000
    assert code <= 120_000


def test_every_import_is_a_file_of_the_console():
    for path in OWN:
        found = _IMPORT.findall(path.read_text()) if path.suffix == ".js" else []
        for name in map("".join, found):
            assert name.startswith("."), f"{path.name} imports {name}"
            assert (path.parent / name).resolve() in SERVED, f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "forbidden", ["dangerouslySetInnerHTML", "innerHTML", "eval(", "new Function", "document.write"]
)
def test_values_become_text_alone(forbidden):
    assert [path.name for path in OWN if forbidden in path.read_text()] == []


def test_modules_without_a_browser():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    ended = subprocess.run([node, "--test", MODULES / "pure.test.mjs"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
