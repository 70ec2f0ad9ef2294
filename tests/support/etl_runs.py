"""A small pipeline with its topic, and runs of it in this process: to the end of the topic, or without end."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from millrace import Broker
from millrace_demo.topics import read_all
from pyspark.sql import SparkSession
from spark_etl import logs
from spark_etl.checkpoint.offsets import Checkpoint
from spark_etl.commands.status import rows_of
from spark_etl.config import load
from spark_etl.kafka.cluster import Cluster
from spark_etl.metrics import Metrics
from spark_etl.run.accounts import Totals
from spark_etl.run.pipeline_run import Run
from support.etl_accounts import all_balanced, committed, measured

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}}}


class Etl:
    """One pipeline, its topics, its folder, and runs of it."""

    def __init__(self, folder: Path, bootstrap_servers: str, spark: SparkSession) -> None:
        self.folder = folder
        self.place = str(folder)  # of the checkpoint and the table
        self.servers = bootstrap_servers
        self.spark = spark
        self.name = f"p{uuid4().hex[:8]}"
        self.topic, self.letters, self.totals = (f"{self.name}.{end}" for end in ("in", "dlq", "sum"))
        self.admin = AdminClient({"bootstrap.servers": self.servers})
        self.topics = [self.topic]  # of the source
        self.create()
        (folder / "schema.json").write_text(json.dumps(SCHEMA))
        self.metrics = Metrics(self.name)

    def create(self, topic: str = "") -> None:
        topic = topic or self.topic
        self.admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(30)

    def produce(self, *ids: int | str, topic: str = "", partitions: int = 2) -> None:
        """Produce records to all partitions in turn: of an id, or of a text that is no record."""
        producer = Producer({"bootstrap.servers": self.servers})
        for number, content in enumerate(ids):
            value = content if isinstance(content, str) else json.dumps({"id": content, "kind": f"k{content % 2}"})
            producer.produce(topic or self.topic, value, str(content), partition=number % partitions)
        assert producer.flush(60) == 0

    def run(
        self,
        stop: threading.Event | None = None,
        *,
        once: bool = True,
        source: str = "",
        sections: str = "",
        summary: bool = False,
        decode: str = "",
        sink: str = "",
        table: bool = True,
    ) -> Totals:
        """Run the pipeline; `source` and `decode` are more keys of these sections, `sink` is one more sink."""
        totals = f"- {{type: kafka, topic: {self.totals}, aggregate: {{group_by: [kind], select: {{n: count(*)}}}}}}"
        path = self.folder / "pipeline.yaml"
        path.write_text(
            f"""
apiVersion: etl/v1
name: {self.name}
checkpoint: {self.place}/checkpoint
source: {{topics: [{", ".join(self.topics)}]{source}}}
decode: {{format: json, schema: schema.json{decode}}}
sinks:
  {f"- {{type: delta, path: {self.place}/table}}" if table else ""}
  {totals if summary else ""}
  {sink}
dead_letter: {{topic: {self.letters}}}
{sections}
"""
        )
        self.pipeline = load(path, {})
        self.work = Run(self.pipeline, Cluster(self.servers), self.spark, self.metrics, logs.get(), once=once)
        totals = self.work.run(stop or threading.Event())
        self.accounted()
        return totals

    def accounted(self) -> dict[str, dict[str, int]]:
        """Check that every record of every batch has one outcome; return their numbers for each sink."""
        measured(self.metrics.registry, self.name)
        found = rows_of(Checkpoint(self.pipeline.config.checkpoint, self.spark), self.pipeline)
        all_balanced(found.values())
        return found

    def ids(self) -> list[int]:
        """Return the ids in the table, sorted."""
        rows = self.spark.read.format("delta").load(f"{self.place}/table").select("id").collect()
        return sorted(row["id"] for row in rows)

    def read(self, topic: str) -> list[tuple[str | None, str | None]]:
        """Return key and value of every record of a topic."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "unused", "enable.partition.eof": True})
        try:
            found = consumer.list_topics(topic, 30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in found])
            records, ended = [], 0
            while ended < len(found):
                message = consumer.poll(30)
                assert message is not None
                if message.error() is None:
                    records.append(tuple(part and part.decode() for part in (message.key(), message.value())))
                else:
                    ended += 1
            return records
        finally:
            consumer.close()

    def versions(self, topic: str) -> list[int]:
        """Return the version of every record of a topic of aggregates, in the order of `read`."""
        return [int(dict(each.headers())["__etl.version"]) for each in read_all(self.servers, topic)]

    def metadata(self) -> dict[str, Any]:
        newest = sorted((self.folder / "table" / "_delta_log").glob("*.json"))[-1]
        info = next(json.loads(line) for line in newest.read_text().splitlines() if "commitInfo" in line)
        found: dict[str, Any] = json.loads(info["commitInfo"]["userMetadata"])
        committed(found)
        return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def etl(tmp_path: Path, broker: Broker, spark: SparkSession) -> Etl:
    return Etl(tmp_path, broker.bootstrap_servers, spark)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Continuous:
    """A run without end, in a thread."""

    def __init__(self, etl: Etl, sections: str = "", **more: Any) -> None:
        self.stop = threading.Event()
        self.error: Exception | None = None
        self._etl, self._sections, self._more = etl, sections, more
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            trigger = "trigger: {processing_time: 1 second}\nrestart: {backoff: 1 second}\n"
            self.totals = self._etl.run(self.stop, once=False, sections=trigger + self._sections, **self._more)
        except Exception as error:
            self.error = error

    def __enter__(self) -> "Continuous":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop.set()
        self._thread.join(300)
        assert not self._thread.is_alive()
