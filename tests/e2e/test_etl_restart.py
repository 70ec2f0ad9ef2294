"""The Spark driver is killed (-9, with its JVM) at each point between a sink's write and the commit after it.

The next run always ends as an undisturbed one. Every flight is in Parquet once, every broken record in the dead-letter
topic once, and each carrier has one summary record per version.
"""

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from millrace import Broker
from millrace_demo import flights, topics
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from support.etl_accounts import noted
from support.etl_kills import ended

pytestmark = [pytest.mark.etl, pytest.mark.timeout(1200)]

PIPELINE = Path(__file__).parents[2] / "spark" / "pipelines" / "flights.yaml"
FLIGHTS, MORE = 300, 40
BATCH = 160  # so 306 records are two batches
# Runs the pipeline; the first call of the named function kills the whole process group instead.
DRIVER = """
import importlib, os, signal, sys
from spark_etl import __main__
place, pipeline = sys.argv[1:]
if place:
    module, owner, function = place.rsplit(".", 2)
    def die(*_arguments):
        os.killpg(0, signal.SIGKILL)
    setattr(getattr(importlib.import_module("spark_etl." + module), owner), function, die)
sys.exit(__main__.main(["run", pipeline]))
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    topics = ",".join(f"{name}:{partitions}" for name, partitions in flights.PARTITIONS.items())
    with Broker(topics=topics) as broker:
        yield broker


class Etl:
    def __init__(self, folder: Path, bootstrap_servers: str, jars: Path) -> None:
        self.checkpoints = folder / "checkpoints"
        self.output = folder / "lake" / "flights"
        temporary = folder / "tmp"
        temporary.mkdir()
        self._environment = {
            **os.environ,
            "MILLRACE_BOOTSTRAP_SERVERS": bootstrap_servers,
            "MILLRACE_ETL_CHECKPOINT_DIR": str(self.checkpoints),
            "MILLRACE_ETL_OUTPUT_DIR": str(folder / "lake"),
            "MILLRACE_ETL_TEMP_DIR": str(temporary),
            "MILLRACE_ETL_JARS_DIR": str(jars),
            "MILLRACE_ETL_MAX_OFFSETS_PER_TRIGGER": str(BATCH),
            "MILLRACE_ETL_DRIVER_MEMORY": "512m",
            # Eight drivers look at a few hundred rows each. Compiling code would cost them a fifth of their time.
            "MILLRACE_ETL_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
            " -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN",
        }

    def run(self, die_at: str = "") -> subprocess.CompletedProcess[str]:
        return ended(["-c", DRIVER, die_at, str(PIPELINE)], self._environment)

    def totals(self) -> dict:
        done = self.run()
        assert done.returncode == 0, done.stderr
        noted(self.checkpoints)
        return json.loads(done.stdout.splitlines()[-1])

    def killed(self, die_at: str) -> None:
        done = self.run(die_at)
        assert done.returncode == -signal.SIGKILL, done.stderr


def produce(bootstrap_servers: str, records: list[tuple[bytes, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for key, value in records:
        producer.produce(flights.TOPIC, value, key, headers=flights.HEADERS)
    assert producer.flush(60) == 0


def stored_keys(spark: SparkSession, output: Path) -> list[str]:
    """Return the keys of the rows of the table."""
    frame = spark.read.format("delta").load(str(output))
    assert frame.where(F.col("flight_month") != F.date_format("flight_date", "yyyy-MM")).count() == 0
    return [row["_key"] for row in frame.select("_key").collect()]


def versions(output: Path) -> int:
    """Return the number of commits of the table; the first one creates it."""
    return len(list((output / "_delta_log").glob("*.json")))


def summaries(bootstrap_servers: str) -> list[tuple[str, str, dict]]:
    found = []
    for message in topics.read_all(bootstrap_servers, flights.DELAYS):
        headers = dict(message.headers())
        found.append((message.key().decode(), headers["__etl.version"].decode(), json.loads(message.value())))
    return found


def test_killed_anywhere_nothing_is_lost_and_nothing_doubled(tmp_path, broker, jars, spark):
    servers = broker.bootstrap_servers
    table = flights.table(FLIGHTS + MORE)
    records = list(flights.records(table))
    broken = [(record.key, record.value) for record in flights.broken_records()]
    produce(servers, [*broken, *records[:FLIGHTS]])
    etl = Etl(tmp_path, servers, jars)

    etl.killed("batch.writer.BatchWriter._metadata")  # the files are in place, but do not count
    assert list(etl.output.rglob("*.parquet")) != []
    assert versions(etl.output) == 1
    etl.killed("sinks.dead_letters.DeadLetters.write")  # the batch counts, no dead letter is out
    assert versions(etl.output) == 2
    assert topics.read_all(servers, flights.DEAD_LETTERS) == []
    etl.killed("checkpoint.batches.Batches.finished")  # the dead letters are out, and not marked so
    assert len(topics.read_all(servers, flights.DEAD_LETTERS)) == len(broken)
    etl.killed("run.accounts.Accounts.batch")  # every output has the batch, Spark does not know
    assert versions(etl.output) == 2
    assert summaries(servers) == []
    etl.killed("run.summaries.Summaries._shown")  # all batches are done, the summary is out and not marked so
    expected = flights.delays(table[:FLIGHTS])
    assert sorted((key, version) for key, version, _ in summaries(servers)) == [(key, "2") for key in sorted(expected)]

    totals = etl.totals()
    assert (totals["rows_in"], totals["version"], totals["rows_total"]) == (0, 2, FLIGHTS)
    assert {key: value for key, _, value in summaries(servers)} == expected
    assert len(summaries(servers)) == len(expected)
    assert topics.check_dead_letters(servers).keys() == {key.decode() for key, _ in broken}
    assert Counter(stored_keys(spark, etl.output)) == Counter(key.decode() for key, _ in records[:FLIGHTS])

    produce(servers, records[FLIGHTS:])
    totals = etl.totals()
    assert (totals["batches"], totals["rows_in"], totals["rows_out"], totals["rows_dlq"]) == (1, MORE, MORE, 0)
    assert (totals["version"], totals["rows_total"]) == (3, FLIGHTS + MORE)
    latest = {key: (version, value) for key, version, value in summaries(servers)}
    assert latest == {key: ("3", value) for key, value in flights.delays(table).items()}
    assert len(topics.read_all(servers, flights.DEAD_LETTERS)) == len(broken)
