"""Break one guarantee at a time in a copy of the source, and demand that a test notices: `make mutants`.

Each mutant of mutants.toml names the guarantee, the file, the text that is replaced (it must be there once, or
`times`) and the tests that must fail then. All of these tests must pass on the source as it is. A mutant whose tests
pass survives, and one whose text is not there any more does not apply; both fail the run.

    .venv/bin/python tests/mutants/run.py [--part 2/3] [PART_OF_A_NAME…]

A part, as `2/3`, is every third mutant from the second on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final

TOP: Final = Path(__file__).parents[2]
WORKERS: Final = 2
TIMEOUT_S: Final = 120
#: Seconds for the tests of all mutants together.
ALL_TESTS_S: Final = 900
_TESTS_FAILED: Final = 1
_LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".venv", "build", "*_cache", "__pycache__", ".hypothesis", "node_modules"
)


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    replace: str
    by: str
    tests: list[str]
    times: int = 1

    def apply(self, top: Path) -> str | None:
        """Change the file, and return its content before; None if the mutant does not apply."""
        content = (top / self.file).read_text() if (top / self.file).exists() else ""
        if content.count(self.replace) != self.times:
            return None
        (top / self.file).write_text(content.replace(self.replace, self.by))
        return content


def copy_of_the_source(target: Path) -> Path:
    """Copy this tree, and share the jars that it has fetched."""
    shutil.copytree(TOP, target, ignore=_LEFT_OUT, symlinks=True)
    for jars in (TOP / "build").glob("kafka_*"):
        (target / "build").mkdir(exist_ok=True)
        (target / "build" / jars.name).symlink_to(jars)
    return target


def run_tests(top: Path, tests: list[str], timeout_s: float = TIMEOUT_S * 3) -> tuple[int, str]:
    """Run tests in a copy of the source, and return the exit code and the output; a test that hangs has failed."""
    sources = [str(path) for pattern in ("*/src", "services/*/src", "assembly/*/src") for path in top.glob(pattern)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        ended = subprocess.run(
            command, cwd=top, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return _TESTS_FAILED, "timed out"
    return ended.returncode, ended.stdout


def verdict(mutant: Mutant, top: Path) -> str:
    """Return "caught", or the fault of the mutant or its tests."""
    original = mutant.apply(top)
    if original is None:
        return "DOES NOT APPLY"
    try:
        code, output = run_tests(top, mutant.tests)
    finally:
        (top / mutant.file).write_text(original)
    if code == _TESTS_FAILED:
        return "caught"
    return "SURVIVED" if code == 0 else f"TESTS DID NOT RUN (exit code {code})\n{output[-2000:]}"


def part(text: str) -> slice:
    """Return the slice that `NUMBER/OF` means. Raises ValueError if it means none."""
    number, of = map(int, text.split("/"))
    if not 1 <= number <= of:
        raise ValueError(text)
    return slice(number - 1, None, of)


def chosen(arguments: list[str]) -> list[Mutant]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--part", type=part, default=part("1/1"))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    described = tomllib.loads((TOP / "tests/mutants/mutants.toml").read_text())["mutant"]
    named = [each for each in described if not options.names or any(name in each["name"] for name in options.names)]
    return [Mutant(**each) for each in named[options.part]]


def main(arguments: list[str]) -> int:
    mutants = chosen(arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            copies.put(copy_of_the_source(Path(folder) / str(number)))

        def judged(mutant: Mutant | None) -> str:
            top = copies.get()
            try:
                if mutant is not None:
                    return verdict(mutant, top)
                code, output = run_tests(top, sorted({test for each in mutants for test in each.tests}), ALL_TESTS_S)
                return "" if code == 0 else output
            finally:
                copies.put(top)

        if failure := judged(None):
            print(f"The tests fail without any mutant:\n{failure}")
            return 1
        with ThreadPoolExecutor(WORKERS) as pool:
            verdicts = list(pool.map(judged, mutants))
    for mutant, each in zip(mutants, verdicts, strict=True):
        print(f"{each:<9} {mutant.name}")
    caught = verdicts.count("caught")
    print(f"{caught} of {len(mutants)} mutants caught in {time.monotonic() - started:.0f} s")
    return 0 if caught == len(mutants) > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
