"""The one Spark session of a test process, and the jars that it and every driver under test load."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
JARS = REPOSITORY / "build" / "demo" / "jars"  # where `make demo` keeps them
#: Options of a JVM that looks at a few thousand rows: it ends before the optimising compiler pays off.
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@pytest.fixture(scope="session")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jars that Spark lacks: fetched once for a checkout."""
    from spark_etl.jvm import session  # most test processes do without Spark

    if not all(any(JARS.glob(pattern)) for pattern in session.JARS):
        JARS.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "MILLRACE_ETL_TEMP_DIR": str(tmp_path_factory.mktemp("ivy"))}
        command = [sys.executable, "-m", "spark_etl", "jars", str(JARS)]
        if subprocess.run(command, env=environment, timeout=110).returncode != 0:  # a server that broke off, perhaps
            subprocess.run(command, env=environment, check=True, timeout=110)
    return JARS


@pytest.fixture(scope="session")
def spark(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A SparkSession with the connector, on a host that is not in UTC; a test leaves no query and no view in it."""
    from spark_etl.jvm.session import opened
    from spark_etl.settings import EtlSettings

    settings = EtlSettings(
        etl_master="local[2]",
        etl_driver_memory="1g",
        etl_shuffle_partitions=1,
        etl_temp_dir=tmp_path_factory.mktemp("spark"),
        etl_jars_dir=jars,
        etl_java_options=QUICK_JAVA,
    )
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", "America/New_York")
            session = stack.enter_context(opened(settings, "tests"))
        yield session
