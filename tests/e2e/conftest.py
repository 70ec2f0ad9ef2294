"""Parts that the end-to-end tests share: the connector's jars, and the processes and files of a child."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from spark_etl import session
from spark_etl.settings import EtlSettings

REPOSITORY = Path(__file__).parents[2]
JARS = REPOSITORY / "build" / "demo" / "jars"  # where `make demo` keeps them
#: Options of a driver of a few thousand rows, which ends before the code of the optimising compiler pays off.
QUICK_SPARK = {"MILLRACE_ETL_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


@pytest.fixture(scope="session")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jars that Spark lacks: fetched once for a checkout."""
    if not all(any(JARS.glob(pattern)) for pattern in session.JARS):
        JARS.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "MILLRACE_ETL_TEMP_DIR": str(tmp_path_factory.mktemp("ivy"))}
        command = [sys.executable, "-m", "spark_etl", "jars", str(JARS)]
        if subprocess.run(command, env=environment, timeout=110).returncode != 0:  # a server that broke off, perhaps
            subprocess.run(command, env=environment, check=True, timeout=110)
    return JARS


@pytest.fixture(scope="module")
def etl_session(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session with every jar of the ETL, for tests that call its parts in this process."""
    settings = EtlSettings(
        etl_master="local[2]",
        etl_driver_memory="700m",
        etl_shuffle_partitions=1,
        etl_temp_dir=tmp_path_factory.mktemp("spark"),
        etl_jars_dir=jars,
        etl_java_options="-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    )
    with session.opened(settings, "tests") as opened:
        yield opened


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
