"""Durations and deadlines are measured by monotonic clocks: a wall clock may be set back or forward at any moment.

Each read of a wall clock has a comment, `# wall clock: REASON`, on its line or above it. Each module of storage that
reads a clock which it is handed has one at some such read. Reasons that hold: a time for people, a time in Kafka's
formats, a time that outlives the process.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.remarks import remark

TOP = Path(__file__).parents[2]
FOLDERS = (
    "admin-api",
    "assembly",
    "bench",
    "build",
    "gateway-svc",
    "protocol-lib",
    "services",
    "spark",
    "storage-svc",
    "tests",
)
#: Functions of wall clocks, by the module or class that has them. A file's own times come from the same clock.
WALL_CLOCKS = {
    "time": {"time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime", "clock_gettime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
RULE = "wall clock"
FILE_TIMES = {"st_mtime", "st_mtime_ns", "st_ctime", "st_ctime_ns", "st_atime", "st_atime_ns"}

#: Words in each source that refers to a wall clock: no other source is parsed.
NAMES = re.compile(
    rf"\b({'|'.join(sorted({*FILE_TIMES, *itertools.chain(*WALL_CLOCKS.values())}, key=len, reverse=True))})\b"
)

#: Names under which storage's parts call the wall clock that they are handed.
HANDED = {"wall_clock_ms", "_wall_clock_ms", "_now_ms", "_clock", "now_ms", "clock"}


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((TOP / folder).rglob("*.py")):
            if ".venv" not in path.parts and "node_modules" not in path.parts:
                yield str(path.relative_to(TOP)), path.read_text()


def wall_clock(node: ast.AST) -> str | None:
    """Return the name of the wall clock that a node refers to."""
    if isinstance(node, ast.ImportFrom) and node.module == "time":
        found = [each.name for each in node.names if each.name in WALL_CLOCKS["time"]]
        return f"time.{found[0]}" if found else None
    if not isinstance(node, ast.Attribute):
        return None
    if node.attr in FILE_TIMES:
        return node.attr
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return f"{name}.{node.attr}" if node.attr in WALL_CLOCKS.get(name.removeprefix("_"), ()) else None


def test_each_read_of_a_wall_clock_has_a_reason() -> None:
    assert [
        f"{path}:{node.lineno}: {clock}"
        for path, source in sources(*FOLDERS)
        if NAMES.search(source)
        for node in ast.walk(ast.parse(source))
        if (clock := wall_clock(node)) is not None and not remark(source, node.lineno, RULE)
    ] == []


def handed(node: ast.AST) -> bool:
    """Return whether a node reads a clock that its object was handed."""
    is_call = isinstance(node, ast.Call) and not node.args
    return is_call and isinstance(node.func, ast.Attribute) and node.func.attr in HANDED


def test_each_module_of_storage_that_is_handed_a_wall_clock_has_a_reason() -> None:
    users = {}
    for path, source in sources("storage-svc/src"):
        if reads := [node.lineno for node in ast.walk(ast.parse(source)) if handed(node)]:
            users[path] = any(remark(source, line, RULE) for line in reads)
    assert len(users) > 10
    assert [path for path, has_reason in users.items() if not has_reason] == []


@pytest.mark.parametrize(
    ("source", "reads"),
    [
        ("time.time()", ["time.time"]),
        ("from time import time_ns", ["time.time_ns"]),
        ("datetime.datetime.now()", ["datetime.now"]),
        ("os.stat(path).st_mtime", ["st_mtime"]),
        ("time.monotonic()", []),
        ("time.time()  # wall clock: for people", []),
        ("# wall clock: for people\n# and so on\ntime.time()", []),
        ("# wall clock: for people\n\ntime.time()", ["time.time"]),
    ],
)
def test_a_read_of_a_wall_clock(source: str, reads: list[str]) -> None:
    nodes = list(ast.walk(ast.parse(source)))
    assert [wall_clock(node) for node in nodes if wall_clock(node) and not remark(source, node.lineno, RULE)] == reads
