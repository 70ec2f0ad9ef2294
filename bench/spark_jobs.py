"""Jobs of one Spark session in a driver process: a pipeline of spark_etl, the shortest plain jobs, single batches.

    driver.call(spark_jobs.opened)                    # start of the session
    driver.call(spark_jobs.count, address, topic)

The JVM ends with its process. Every job returns its seconds, and those of the processors that the JVM and its Python
workers used.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import flights_topic
from processes import metered
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark_etl import logs
from spark_etl.config import Pipeline, load
from spark_etl.jvm import session
from spark_etl.kafka.cluster import Cluster
from spark_etl.metrics import Metrics
from spark_etl.run.pipeline_run import Run
from spark_etl.settings import EtlSettings
from support.schema_server import SchemaServer

TOP = Path(__file__).parents[1]
JARS = TOP / "build" / "demo" / "jars"
PIPELINE = TOP / "spark" / "pipelines" / "flights.yaml"
#: Columns of a flight as from_json reads them.
COLUMNS = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,"
    " arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT,"
    " distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
#: The same of a nested flight, and its JSON Schema.
NESTED_COLUMNS = (
    "flight STRUCT<carrier: STRING, number: INT, tailnum: STRING>, year INT, month INT, day INT, sched_dep_time INT,"
    " sched_arr_time INT, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP,"
    " legs ARRAY<STRUCT<kind: STRING, airport: STRING, time: INT, delay: INT>>"
)
_NUMBER, _TEXT, _OPTIONAL = {"type": "integer"}, {"type": "string"}, {"type": ["integer", "null"]}
_FLIGHT = {"carrier": _TEXT, "number": _NUMBER, "tailnum": {"type": ["string", "null"]}}
_LEG = {"kind": {"enum": ["dep", "arr"]}, "airport": _TEXT, "time": _OPTIONAL, "delay": _OPTIONAL}
_NUMBERS = ("year", "month", "day", "sched_dep_time", "sched_arr_time", "distance", "hour", "minute")
NESTED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["flight", "time_hour", "legs", *_NUMBERS],
    "properties": {
        "flight": {"type": "object", "required": ["carrier", "number"], "properties": _FLIGHT},
        **dict.fromkeys(_NUMBERS, _NUMBER),
        "air_time": _OPTIONAL,
        "time_hour": {"type": "string", "format": "date-time"},
        "legs": {"type": "array", "items": {"type": "object", "required": ["kind", "airport"], "properties": _LEG}},
    },
}
MONTH = "date_format(make_date(year, month, day), 'yyyy-MM')"
BATCH_SECONDS_MAX = 60.0


@dataclass
class Timed:
    """One job: its records, its seconds, and those of the processors."""

    records: int
    seconds: float
    cpu_seconds: float


class _Jvm:
    """The session of this process."""

    running: _Jvm | None = None

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="millrace-bench-spark-"))
        self._at_end = contextlib.ExitStack()
        self._at_end.callback(shutil.rmtree, self.folder, ignore_errors=True)
        began = time.perf_counter()
        self.session: SparkSession = self._at_end.enter_context(session.opened(settings(self.folder), "bench"))
        self.seconds = time.perf_counter() - began
        self.folders = 0
        Finalize(None, self._at_end.close, exitpriority=10)

    @classmethod
    def of_process(cls) -> _Jvm:
        cls.running = cls.running or cls()
        return cls.running

    def new_folder(self) -> Path:
        self.folders += 1
        return self.folder / str(self.folders)

    def timed(self, job: Callable[[], int]) -> Timed:
        with metered(os.getpid()) as used:
            began = time.perf_counter()
            records = job()
            return Timed(records, time.perf_counter() - began, used())


def settings(folder: Path) -> EtlSettings:
    return EtlSettings(etl_jars_dir=JARS, etl_temp_dir=folder, etl_master="local[2]", etl_driver_memory="1g")


def why_not() -> str:
    """Fetch the jars that Spark lacks; return the reason why it cannot run here, empty if it can."""
    if not shutil.which("java"):
        return "Java is not installed"
    if not all(any(JARS.glob(pattern)) for pattern in session.JARS):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "MILLRACE_ETL_TEMP_DIR": folder}
            command = [sys.executable, "-m", "spark_etl", "jars", str(JARS)]
            JARS.parent.mkdir(parents=True, exist_ok=True)
            if subprocess.run(command, env=environment, capture_output=True, timeout=300).returncode:
                return "Spark's jars cannot be fetched from Maven"
    return ""


def opened() -> float:
    """Open the session if there is none; return the seconds that it took."""
    return _Jvm.of_process().seconds


def count(address: str, topic: str) -> Timed:
    """Count the records of a topic."""
    jvm = _Jvm.of_process()
    return jvm.timed(lambda: _source(jvm.session, address, topic).count())


def plain(address: str, topic: str, begin: list[int], end: list[int], columns: str = COLUMNS) -> Timed:
    """Decode a part of a topic by from_json alone, and write it partitioned: the shortest job without checks."""
    jvm = _Jvm.of_process()
    folder = jvm.new_folder()

    def job() -> int:
        records = _source(jvm.session, address, topic, {"startingOffsets": begin, "endingOffsets": end})
        rows = records.select(F.from_json(F.col("value").cast("string"), columns).alias("row")).select("row.*")
        rows.withColumn("month_of_flight", F.expr(MONTH)).write.partitionBy("month_of_flight").parquet(str(folder))
        return sum(end) - sum(begin)

    done = jvm.timed(job)
    shutil.rmtree(folder)
    return done


def plain_nested(address: str, topic: str, begin: list[int], end: list[int]) -> Timed:
    """Do the same with nested flights."""
    return plain(address, topic, begin, end, NESTED_COLUMNS)


def nested(address: str, topic: str, name: str) -> Timed:
    """Run the flights pipeline on nested flights, with one of its rules."""
    schema = _Jvm.of_process().folder / "nested.json"
    schema.write_text(json.dumps(NESTED_SCHEMA))
    rule = {"name": "positive_distance", "expr": "distance > 0"}
    changes = {"decode": {"format": "json", "schema": str(schema)}, "rules": [rule]}
    return pipeline(address, topic, name, changes)


def framed(address: str, topic: str, name: str) -> Timed:
    """Run the flights pipeline on Avro in the frame of a registry, which this process has."""
    _registry()
    decode = {"format": "avro", "registry": {"subject": "flights-value"}}
    return pipeline(address, topic, name, {"decode": decode})


@functools.cache
def _registry() -> SchemaServer:
    """Start a registry whose first schema is that of the flights."""
    server = SchemaServer().__enter__()
    server.add("flights-value", flights_topic.avro())
    os.environ["MILLRACE_SCHEMA_REGISTRY"] = server.url
    return server


def pipeline(address: str, topic: str, name: str = "", changes: Mapping[str, Any] | None = None) -> Timed:
    """Run the flights pipeline, without its summary, up to the end of a topic.

    Runs of one `name` have one checkpoint and table; without a name it reads the whole topic, into a new table.
    """
    jvm = _Jvm.of_process()
    folder = jvm.folder / name if name else jvm.new_folder()
    chosen = _flights(folder, topic, changes)
    cluster = Cluster(address, chosen.config.kafka.properties)
    log = logs.configure("error")

    def job() -> int:
        run = Run(chosen, cluster, jvm.session, Metrics(chosen.config.name), log, once=True)
        totals = run.run(threading.Event())
        if totals.rows_out != totals.rows_in:
            raise RuntimeError(f"of {totals.rows_in} records {totals.rows_out} are in the table")
        return totals.rows_in

    done = jvm.timed(job)
    if not name:
        shutil.rmtree(folder)
    return done


def batches(address: str, topic: str, records: int, number: int) -> list[float]:
    """Return, for each batch of a pipeline without end, the seconds from its records to the report of its commit."""
    jvm = _Jvm.of_process()
    folder = jvm.new_folder()
    chosen = _flights(folder, topic, {"trigger": {"processing_time": "1 second"}})
    committed: SimpleQueue[int] = SimpleQueue()
    run = Run(
        chosen,
        Cluster(address, chosen.config.kafka.properties),
        jvm.session,
        Metrics(chosen.config.name),
        _Reports(committed),
        once=False,
    )
    stop = threading.Event()
    running = threading.Thread(target=run.run, args=(stop,), daemon=True)
    running.start()
    found = []
    try:
        for _ in range(number):
            began = time.perf_counter()
            written = sum(flights_topic.write(address, topic, records, records // flights_topic.PARTITIONS))
            while written:
                written -= committed.get(timeout=BATCH_SECONDS_MAX)
            found.append(time.perf_counter() - began)
    finally:
        stop.set()
        running.join(BATCH_SECONDS_MAX)
    return found


class _Reports(logs.Log):
    """A log that keeps the number of records of each committed batch."""

    def __init__(self, committed: SimpleQueue[int]) -> None:
        super().__init__(logs.configure("error")._logger)
        self._committed = committed

    def info(self, event: str, **fields: Any) -> None:
        if event == "batch committed":
            self._committed.put(int(fields["rows_in"]))


def _source(spark: SparkSession, address: str, topic: str, offsets: Mapping[str, list[int]] | None = None) -> DataFrame:
    options = {
        name: json.dumps({topic: {str(index): offset for index, offset in enumerate(each)}})
        for name, each in (offsets or {}).items()
    }
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    return reader.options(**options).load()


def _flights(folder: Path, topic: str, changes: Mapping[str, Any] | None = None) -> Pipeline:
    """Return spark/pipelines/flights.yaml for another topic, with its table in a folder and without its summary."""
    import yaml

    document = yaml.safe_load(PIPELINE.read_text())
    document["source"] = {"topics": [topic]}
    document["checkpoint"] = str(folder / "checkpoint")
    document["decode"]["schema"] = str(PIPELINE.parent / document["decode"]["schema"])
    table = next(sink for sink in document["sinks"] if sink["type"] == "delta")
    document["sinks"] = [{**table, "path": str(folder / "table")}]
    document["dead_letter"] = {"topic": f"{topic}.dlq"}
    del document["metrics"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({**document, **(changes or {})}))
    return load(path, {})
