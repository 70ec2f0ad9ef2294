"""Jars from Maven for tests: the jars of an Ivy module file, fetched once for a checkout by pyspark's Ivy.

python tests/support/maven.py fetches the jars of all tests together, before any of them waits for one
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
BUILD = TESTS.parent / "build"
MODULES = (HERE / "kafka_broker.xml", HERE / "hdfs.xml", TESTS / "oracles" / "kafka_messages.xml")
#: A server that does not answer, or breaks off, is asked again.
TRIES = 3


@functools.cache
def jars(module: Path) -> Path:
    """Return the folder of the jars; it is filled again when the module file has changed."""
    folder = BUILD / module.stem
    target = folder / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    with (BUILD / "ivy.lock").open("w") as lock:  # all modules share a cache, which is not for two at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = module.read_text()
        made_for = folder / module.name
        if not made_for.exists() or made_for.read_text() != wanted:
            shutil.rmtree(target, ignore_errors=True)
            _fetch(module, target)
            made_for.write_text(wanted)
    return target


def _fetch(module: Path, target: Path) -> None:
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    (ivy,) = (Path(pyspark.origin).parent / "jars").glob("ivy-*.jar")
    pattern = f"{target}/[artifact]-[revision](-[classifier]).[ext]"
    command = ["java", "-jar", str(ivy), "-ivy", str(module), "-retrieve", pattern]
    for attempt in range(TRIES):
        time.sleep(5 * attempt)
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        if done.returncode == 0:
            break
    assert done.returncode == 0, f"the jars of {module.name} were not fetched:\n{(done.stdout + done.stderr)[-3000:]}"


def need_java(*, compiler: bool = False) -> None:
    """Skip where there is no Java, or none that can run a source file; fail in CI."""
    missing = "" if shutil.which("java") and shutil.which("keytool") else "Java is not installed"
    if compiler and not missing:
        modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, timeout=60).stdout
        missing = "" if "jdk.compiler@" in modules else "Java is installed without its compiler"
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


if __name__ == "__main__":
    if shutil.which("java"):
        for each in MODULES:
            jars(each)
