"""Pipelines whose driver a test kills, and the rows that each output has afterwards, read without Spark."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import duckdb
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from millrace_demo.topics import read_all
from support.dying_driver import HALF
from support.etl_accounts import noted
from support.postgres import PASSWORD, USER, PostgresServer
from support.spark_session import QUICK_JAVA

__all__ = ["BATCH", "HALF", "WINDOW", "Drivers", "Place", "ended"]

PROGRAM = Path(__file__).parent / "dying_driver.py"
BATCH = "batch.writer.BatchWriter.write"
WINDOW = "sinks.windows.window_records"
#: Options of a driver of a few hundred rows. Compiling code would cost it a fifth of its time.
JAVA = f"{QUICK_JAVA} -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"


def ended(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run Python in its own session, which a test's driver kills with its JVM; return its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        start_new_session=True,
    )


@dataclass(frozen=True)
class Place:
    """A place at which a driver dies: the functions on the way to it, and how the last one ends."""

    name: str
    at: tuple[str, ...]
    when: str = "before"
    #: Rows of the interrupted batch in each output at the death; None: unknown, since the JVM lived on.
    outputs: tuple[int, ...] | None = None
    arguments: tuple[str, ...] = ("run",)

    def death(self, batch: int | None) -> dict[str, Any]:
        return {"at": list(self.at), "when": self.when, "batch": batch}


@dataclass
class Drivers:
    """Programs of the ETL on one pipeline file, one after the other."""

    folder: Path
    bootstrap_servers: str
    jars: Path
    name: str = field(default_factory=lambda: f"k{uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.file = self.folder / "pipeline.yaml"
        self.table = self.folder / "table"
        self.checkpoint = self.folder / "checkpoint"
        (self.folder / "tmp").mkdir()
        self._environment = {
            **os.environ,
            "MILLRACE_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "MILLRACE_ETL_TEMP_DIR": str(self.folder / "tmp"),
            "MILLRACE_ETL_JARS_DIR": str(self.jars),
            "MILLRACE_ETL_DRIVER_MEMORY": "512m",
            "MILLRACE_ETL_SHUFFLE_PARTITIONS": "1",
            "MILLRACE_ETL_JAVA_OPTIONS": JAVA,
            "POSTGRES_SECRET": PASSWORD,
            "PYTHONFAULTHANDLER": "1",
        }
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.create_topics([NewTopic(self.name, 2, 1)])[self.name].result(30)

    def write(self, schema: dict[str, Any], sinks: Iterable[str], sections: str = "", decode: str = "") -> None:
        """Write the pipeline file and its schema. A sink is the inside of a flow mapping."""
        (self.folder / "schema.json").write_text(json.dumps(schema))
        lines = "".join(f"  - {{{sink}}}\n" for sink in sinks)
        self.file.write_text(
            f"apiVersion: etl/v1\nname: {self.name}\ncheckpoint: {self.checkpoint}\n"
            f"source: {{topics: [{self.name}]}}\ndecode: {{format: json, schema: schema.json{decode}}}\n"
            f"sinks:\n{lines}dead_letter: {{topic: {self.name}.dlq}}\n{sections}"
        )

    def postgres(self, server: PostgresServer, more: str = "") -> str:
        """Return a sink of the table NAME of a database."""
        place = f'type: postgres, url: "{server.url}", table: {self.name}, user: {USER}'
        return f'{place}, password: "${{POSTGRES_SECRET}}"{more}'

    def produce(self, records: Iterable[tuple[str, Any]]) -> None:
        """Produce keys and values; a text is a value as it is. A key is always in the same of two partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True})
        for key, content in records:
            value = content if isinstance(content, str | None) else json.dumps(content)
            producer.produce(self.name, value, key, partition=crc32(key.encode()) % 2)
        assert producer.flush(60) == 0

    def call(self, death: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the pipeline file, `arguments` being the command and its options."""
        command, *options = arguments
        return ended([str(PROGRAM), json.dumps(death), command, str(self.file), *options], self._environment)

    @property
    def log(self) -> Path:
        """The standard error of the last process that was `started`."""
        return self.folder / "run.log"

    def started(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a run in a new process group. It has no end unless the options set one."""
        with self.log.open("wb") as errors:
            command = [sys.executable, "-m", "spark_etl", "run", str(self.file), *options]
            return subprocess.Popen(
                command, env=self._environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )

    @contextmanager
    def running(self, within: float = 120) -> Iterator[subprocess.Popen[bytes]]:
        """Run the pipeline without end. Stop its process group at the end of the block, within a number of seconds."""
        process = self.started()
        try:
            yield process
            os.killpg(process.pid, signal.SIGTERM)
            assert process.wait(within) == 128 + signal.SIGTERM, self.log.read_text()[-3000:]
        finally:
            process.kill()
            process.wait()

    def die(self, place: Place) -> None:
        """Run a command until it dies at a place, in the first batch that nobody has planned yet."""
        numbered = {BATCH: self.checkpoint, WINDOW: self.checkpoint / "_etl" / "windows" / f"{self.name}.windows"}
        checkpoint = numbered.get(place.at[0])
        done = self.call(place.death(None if checkpoint is None else planned(checkpoint) + 1), *place.arguments)
        assert done.returncode == -signal.SIGKILL, (place.name, done.stderr[-3000:])

    def finish(self, *arguments: str) -> dict[str, Any]:
        """Run a command to its end, and return the document that it prints."""
        done = self.call({}, *arguments)
        assert done.returncode == 0, done.stderr[-3000:]
        noted(self.checkpoint)
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def listed(self) -> set[str]:
        """Return the names of the files that the newest version of the table has."""
        return {uri.rsplit("/", 1)[1] for uri in DeltaTable(str(self.table)).file_uris()}

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        """Return the rows of the table: deltalake lists its files and DuckDB reads them."""
        if not (self.table / "_delta_log").exists():
            return []
        files = [uri.removeprefix("file://") for uri in DeltaTable(str(self.table)).file_uris()]
        return duckdb.read_parquet(files).select(columns).fetchall() if files else []

    def stored(self, server: PostgresServer, columns: str) -> list[tuple[int, ...]]:
        """Return columns of integers of the table NAME in PostgreSQL; none if it does not exist yet."""
        if server.rows(f"SELECT to_regclass('{self.name}') IS NULL") == [("t",)]:
            return []
        return [tuple(map(int, row)) for row in server.rows(f"SELECT {columns} FROM {self.name}")]

    def topic(self, name: str, *headers: str, key: bool = False) -> Counter[tuple[str, ...]]:
        """Return how often each identity, headers and perhaps the key, is in the topic NAME.name."""
        return Counter(
            (*(dict(each.headers())[header].decode() for header in headers), *((each.key().decode(),) if key else ()))
            for each in self.messages(name)
        )

    def messages(self, name: str) -> list[Any]:
        """Return the records of the topic NAME.name; none if it does not exist yet."""
        topic = f"{self.name}.{name}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        return read_all(self.bootstrap_servers, topic) if topic in admin.list_topics(timeout=30).topics else []

    def newest(self, name: str) -> dict[str, Any]:
        """Return the value of each key of the topic NAME.name with the highest version."""
        found = sorted(self.messages(name), key=lambda each: int(dict(each.headers())["__etl.version"]))
        return {each.key().decode(): json.loads(each.value()) for each in found}


def planned(checkpoint: Path) -> int:
    """Return the number of the last batch that Spark has planned; -1 before the first one."""
    names = [path.name for path in (checkpoint / "offsets").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)
