"""A driver killed -9 in the middle of a commit, its JVM left alive: the next driver waits for that JVM, and goes on.

The kill comes from a thread, at the moment when the JVM begins the commit, which may succeed or not. In both cases a
replay ends with all rows, each of them once.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(1200)]

from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_etl.config.sinks import DeltaSinkConfig  # noqa: E402
from spark_etl.lake import LakeTable, maintenance  # noqa: E402

APP = "etl/orders/8f2c1d0a"
COLUMNS = "id BIGINT, name STRING, _key STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
UPSERT = {"mode": "upsert", "keys": ["id"]}
DRIVER = """
import os, signal, sys, threading
from pathlib import Path
from spark_etl.lake import delta
from spark_etl.session import opened
from spark_etl.settings import EtlSettings
sys.path.insert(0, sys.argv[1])
import test_etl_lake_kill as test

def die():
    threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGKILL)).start()

commit = delta.Transaction.commit
def dying(transaction, *arguments):
    die()
    return commit(transaction, *arguments)

with opened(EtlSettings(), "kill") as spark:
    test.steps(spark, Path(sys.argv[2]), sys.argv[3], lambda: (
        setattr(delta.Transaction, "commit", dying), setattr(delta.CommitObserver, "beginDoCommit", lambda _: die())
    ))
"""


def rows(spark: SparkSession, first: int, names: str, later: int = 0) -> DataFrame:
    """Return rows with ids and offsets from `first`, the offsets higher by `later`."""
    values = [(first + n, name, str(first + n), "orders", 0, first + n + later, None) for n, name in enumerate(names)]
    return spark.createDataFrame(values, COLUMNS)


def steps(spark: SparkSession, path: Path, kind: str, arm: Callable[[], object]) -> str:
    """Bring a table to its last state, from wherever it is; return its names in order of the ids.

    `arm` makes the next commit a deadly one. It is called before the step that `kind` names.
    """
    sink = DeltaSinkConfig.model_validate({"type": "delta", "path": str(path), **(UPSERT if kind == "merge" else {})})
    later = rows(spark, 1, "BCD", later=9) if kind == "merge" else rows(spark, 3, "de")
    with LakeTable.opened(spark, sink, later.schema) as table:
        for number, batch in enumerate([rows(spark, 0, "abc"), later]):
            if number == 1 and kind in ("append", "merge"):
                arm()
            if not table.holds(APP, number):
                table.write(batch, APP, number, lambda _, number=number: {"batch": number})
        if kind == "backfill":
            arm()
            maintenance.replace(table, rows(spark, 1, "XYZ"), "_offset >= 1 AND _offset < 4", {"operation": "backfill"})
        if kind == "compact":
            arm()
            maintenance.compact(spark, table)
    found = spark.read.format("delta").load(str(path)).orderBy("id").select("name").collect()
    return "".join(row["name"] for row in found)


@pytest.mark.parametrize(
    ("kind", "expected"), [("append", "abcde"), ("merge", "aBCD"), ("backfill", "aXYZe"), ("compact", "abcde")]
)
def test_the_next_driver_goes_on(spark: SparkSession, jars: Path, tmp_path: Path, kind: str, expected: str) -> None:
    environment = {
        **os.environ,
        "MILLRACE_ETL_JARS_DIR": str(jars),
        "MILLRACE_ETL_TEMP_DIR": str(tmp_path),
        "MILLRACE_ETL_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    command = [sys.executable, "-c", DRIVER, str(Path(__file__).parent), str(tmp_path / "table"), kind]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, timeout=500)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    assert steps(spark, tmp_path / "table", kind, lambda: None) == expected
