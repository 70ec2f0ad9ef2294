"""Break one guarantee at a time in a copy of the source, and demand that a test notices: `make mutants`.

Each mutant of mutants.toml names the guarantee, a mark in the source, the change there (marks.py, script_marks.py) and
the tests that must fail then. All of these tests must pass on the source as it is. A mutant whose tests pass survives.
One that only breaks the code, by a name that is not there, is not caught either.

    .venv/bin/python -m tests.mutants.run [--part 2/3] [--changed BASE] [--at-most 40] [PART_OF_A_NAME…]

A part, as `2/3`, is every third mutant from the second on. `--changed` chooses the mutants whose marked file, test file
or line of the table differs from the commit BASE; with a part, these and the part. `--at-most` thins out what was
chosen evenly, for each part in another way.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.mutants import marks
from tests.mutants.marks import Marked, Mutant
from tests.mutants.script_marks import MarkedScript, find_scripts
from tests.support.part import part

TOP: Final = Path(__file__).parents[2]
TABLE: Final = "tests/mutants/mutants.toml"
WORKERS: Final = 2
TIMEOUT_S: Final = 360
#: Seconds for the tests of all mutants together.
ALL_TESTS_S: Final = 900
_TESTS_FAILED: Final = 1
Source = Marked | MarkedScript
_LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".venv", "build", "*_cache", "__pycache__", ".hypothesis", "node_modules"
)
#: Modules of others that most tests import: one process imports them, and each run of tests is a fork of that process.
_SHARED: Final = [
    "_pytest.assertion.rewrite", "aiokafka", "cramjam", "crc32c", "fastapi", "google.protobuf", "grpc.aio",
    "hypothesis.strategies", "prometheus_client", "pydantic_settings", "pytest", "uvicorn", "uvloop",
]  # fmt: skip


def marked_files() -> list[Source]:
    """Return the files of the packages that have marks."""
    return [*marks.find_marks(TOP), *find_scripts(TOP)]


def copy_of_the_source(target: Path) -> Path:
    """Copy this tree, and share the jars that it has fetched."""
    shutil.copytree(TOP, target, ignore=_LEFT_OUT, symlinks=True)
    for jars in (TOP / "build").glob("kafka_*"):
        (target / "build").mkdir(exist_ok=True)
        (target / "build" / jars.name).symlink_to(jars)
    return target


def _pytest(top: Path, tests: Sequence[str], output: Path) -> None:
    """Run tests and end this process with pytest's exit code."""
    import pytest

    os.setsid()
    os.chdir(top)
    sources = [str(path) for pattern in ("*/src", "services/*/src", "assembly/*/src") for path in top.glob(pattern)]
    os.environ |= {"PYTHONPATH": os.pathsep.join(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    sys.path[:0] = [*sources, str(top)]
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests])
    sys.stdout.flush()
    os._exit(code)


def run_tests(top: Path, tests: Sequence[str], timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
    """Run tests in a copy of the source, and return the exit code and the output; a test that hangs has failed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_SHARED)
    output = top.with_suffix(".output")
    output.unlink(missing_ok=True)
    process = context.Process(target=_pytest, args=(top, tests, output))
    process.start()
    process.join(timeout_s)
    if process.is_alive() and process.pid is not None:
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return _TESTS_FAILED, "timed out"
    # A process that could not begin has the exit code of failed tests, too.
    return (process.exitcode or 0, output.read_text(errors="replace")) if output.exists() else (-1, "did not begin")


def verdict(mutant: Mutant, files: Sequence[Source], top: Path) -> str:
    """Return "caught", or the fault of the mutant or its tests."""
    changed = [file for file in files if any(mark == mutant.mark for mark, _ in file.marks)]
    if sum(mark == mutant.mark for file in changed for mark, _ in file.marks) != mutant.times:
        return "MARK NOT FOUND"
    try:
        for file in changed:
            (top / file.path).write_text(file.changed_by(mutant))
        code, output = run_tests(top, mutant.tests)
    finally:
        for file in changed:
            (top / file.path).write_text(file.source)
    if "NameError: " in output:
        return f"BROKEN CODE\n{output[-2000:]}"
    if code == _TESTS_FAILED:
        return "caught"
    return "SURVIVED" if code == 0 else f"TESTS DID NOT RUN (exit code {code})\n{output[-2000:]}"


def fault_without_mutant(mutants: Sequence[Mutant], copies: Sequence[Path]) -> str:
    """Return the output of tests that fail without any mutant, or nothing."""
    tests = sorted({test for each in mutants for test in each.tests})
    paths = sorted({test.partition("::")[0] for test in tests})
    shares = [[test for test in tests if paths.index(test.partition("::")[0]) % WORKERS == at] for at in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        ended = pool.map(lambda top, share: run_tests(top, share, ALL_TESTS_S) if share else (0, ""), copies, shares)
        return "\n".join(output for code, output in ended if code)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=TOP, capture_output=True, text=True, check=True).stdout


def changed_since(base: str, mutants: Sequence[Mutant], files: Sequence[Source]) -> list[Mutant]:
    """Return the mutants whose marked file, tests or entry of the table differ from a commit."""
    paths = set(_git("diff", "--name-only", base).splitlines())
    marked = {mark for file in files if str(file.path) in paths for mark, _ in file.marks}
    before = marks.parse_table(_git("show", f"{base}:{TABLE}")) if TABLE in paths else mutants

    def is_changed(mutant: Mutant) -> bool:
        in_files = mutant.mark in marked or any(test.partition("::")[0] in paths for test in mutant.tests)
        return in_files or mutant not in before

    return [mutant for mutant in mutants if is_changed(mutant)]


def chosen(arguments: list[str], mutants: Sequence[Mutant], files: Sequence[Source]) -> list[Mutant]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", type=part)
    parser.add_argument("--changed", metavar="BASE")
    parser.add_argument("--at-most", type=int, default=len(mutants))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    named = [each for each in mutants if not options.names or any(name in each.name for name in options.names)]
    number, of = options.part or (1, 1)
    wanted = changed_since(options.changed, named, files) if options.changed else []
    if options.part or not options.changed:
        wanted += [each for each in named[number - 1 :: of] if each not in wanted]
    every = -(-len(wanted) // max(options.at_most, 1)) or 1
    return wanted[number % every :: every]


def main(arguments: list[str]) -> int:
    files = marked_files()
    mutants = chosen(arguments, marks.parse_table((TOP / TABLE).read_text()), files)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-mutants-") as folder:
        copies = [copy_of_the_source(Path(folder) / str(number)) for number in range(WORKERS)]
        if failure := fault_without_mutant(mutants, copies):
            print(f"The tests fail without any mutant:\n{failure}")
            return 1
        free: SimpleQueue[Path] = SimpleQueue()
        for each in copies:
            free.put(each)

        def judged(mutant: Mutant) -> str:
            top = free.get()
            try:
                return verdict(mutant, files, top)
            finally:
                free.put(top)

        print(f"{len(mutants)} mutants; their tests pass without them ({time.monotonic() - started:.0f} s)", flush=True)
        with ThreadPoolExecutor(WORKERS) as pool:
            verdicts = list(pool.map(judged, mutants))
    for mutant, found in zip(mutants, verdicts, strict=True):
        print(f"{found:<9} {mutant.name}")
    caught = verdicts.count("caught")
    print(f"{caught} of {len(mutants)} mutants caught in {time.monotonic() - started:.0f} s")
    return 0 if caught == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
