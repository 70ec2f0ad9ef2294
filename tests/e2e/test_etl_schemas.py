"""Topics whose records name schemas of a registry: schemas that come in the middle of a run, and a registry away."""

import json
import os
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from millrace import Broker
from millrace_demo.topics import read_all
from pyspark.sql import SparkSession
from spark_etl import logs
from spark_etl.checkpoint.offsets import Checkpoint
from spark_etl.commands.status import rows_of
from spark_etl.config import load
from spark_etl.errors import ConfigError
from spark_etl.kafka.cluster import Cluster
from spark_etl.metrics import Metrics
from spark_etl.run.accounts import Totals
from spark_etl.run.pipeline_run import Run
from support.etl_accounts import all_balanced
from support.etl_runs import Etl, broker, until
from support.postgres import PASSWORD, USER, postgres
from support.schema_server import SchemaServer

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]
__all__ = ["broker", "postgres"]

PAGE = Path(__file__).parents[2] / "docs" / "schemas.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "schemas"
FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "note", "type": "string", "default": ""}]}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}

PAID = {
    "type": "record",
    "name": "Paid",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}


class Framed(Etl):
    """A pipeline of a topic whose keys and values are Avro of a registry, written by Confluent's serializer."""

    def __init__(self, folder: Path, broker: Broker, spark: SparkSession, registry: SchemaServer) -> None:
        super().__init__(folder, broker.bootstrap_servers, spark)
        self.registry = registry
        self.client = SchemaRegistryClient({"url": registry.url})
        self.runs: list[Run] = []

    def write(self, schema: dict[str, Any], *ids: int, deleted: bool = False) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        value, key = (AvroSerializer(self.client, json.dumps(each)) for each in (schema, KEY))
        for number in ids:
            record = {"id": number, "note": "n"} if schema is SECOND else {"id": number}
            of_key, of_value = (
                SerializationContext(self.topic, each) for each in (MessageField.KEY, MessageField.VALUE)
            )
            content = None if deleted else value(record, of_value)
            producer.produce(self.topic, content, key({"id": number}, of_key), partition=number % 2)
        assert producer.flush(60) == 0

    def write_raw(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(60) == 0

    def framed(
        self,
        stop: threading.Event | None = None,
        *,
        once: bool = True,
        more: str = "",
        sink: str = "",
        output: str = "",
        derive: str = "",
    ) -> Totals:
        """Run the pipeline; `more` are more keys of `decode`, `sink` those of the table, `output` is one more sink."""
        path = self.folder / "pipeline.yaml"
        path.write_text(
            f"""
apiVersion: etl/v1
name: {self.name}
checkpoint: {self.place}/checkpoint
source: {{topics: [{self.topic}]}}
trigger: {{processing_time: 1 second}}
decode: {{format: avro, registry: {{subject: {self.topic}-value}}{more}}}
sinks:
  - {{type: delta, path: {self.place}/table{sink}}}
  {output}
derive: {{{derive}}}
dead_letter: {{topic: {self.letters}}}
restart: {{backoff: 1 second, backoff_max: 1 second}}
"""
        )
        self.pipeline = load(path, {})
        work = Run(self.pipeline, Cluster(self.servers), self.spark, Metrics(self.name), logs.get(), once=once)
        self.runs.append(work)
        return work.run(stop or threading.Event())

    def outcomes(self, name: str = "") -> dict[str, int]:
        """Return the numbers of the table, or of another sink, once they are checked."""
        found = rows_of(Checkpoint(self.pipeline.config.checkpoint, self.spark), self.pipeline)
        all_balanced(found.values())
        return found[name or f"delta:{self.place}/table"]


@pytest.fixture
def etl(tmp_path, broker, spark, monkeypatch):
    with SchemaServer() as registry:
        monkeypatch.setenv("MILLRACE_SCHEMA_REGISTRY", registry.url)
        monkeypatch.setenv("MILLRACE_SCHEMA_REGISTRY_TIMEOUT_S", "30")
        yield Framed(tmp_path, broker, spark, registry)


def test_schemas_that_come_while_a_pipeline_runs(etl):
    etl.write(FIRST, 1, 2)
    stop, failures = threading.Event(), []

    def run() -> None:
        try:
            etl.framed(stop, once=False)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: bool(failures) or (bool(etl.runs) and etl.runs[-1].totals.rows_out == 2))
        etl.write(SECOND, 3, 4)
        etl.write_raw(b"\0\0\0\0\x63\x02", b"{}")
        etl.write(FIRST, 5)
        until(lambda: bool(failures) or etl.runs[-1].totals.rows_in == 7)
    finally:
        stop.set()
        thread.join(300)
    assert not failures
    assert etl.ids() == [1, 2, 3, 4, 5]
    assert "note" not in etl.spark.read.format("delta").load(f"{etl.place}/table").columns
    assert etl.outcomes()["dlq"] == 2
    etl.write(SECOND, 6)
    assert etl.framed().rows_out == 1
    assert etl.pipeline.config.decode.registry.version == "latest"
    assert "note" not in etl.spark.read.format("delta").load(f"{etl.place}/table").columns


def test_a_registry_that_is_away_makes_no_dead_letter(etl):
    etl.write(FIRST, 1)
    etl.registry.failing = {"/": 2}
    totals = etl.framed()
    assert (totals.rows_out, totals.rows_dlq) == (1, 0)
    assert totals.restarts == 2
    etl.write(SECOND, 2)
    _, second = etl.registry.got(f"/subjects/{etl.topic}-value/versions/2")
    etl.registry.failing = {f"/schemas/ids/{second['id']}": 2}
    totals = etl.framed()
    assert (totals.rows_out, totals.rows_dlq) == (1, 0)
    assert totals.restarts == 2
    assert etl.ids() == [1, 2]
    assert etl.outcomes()["dlq"] == 0


def test_keys_delete_and_replace_rows(etl):
    more = f", key: avro, key_registry: {{subject: {etl.topic}-key}}, null_value: delete"
    etl.write(FIRST, 1, 2, 3)
    etl.write(FIRST, 2, deleted=True)
    etl.write(FIRST, 3)
    etl.framed(more=more, sink=", mode: upsert, keys: [id]")
    assert etl.ids() == [1, 3]
    assert etl.outcomes()["dlq"] == 0


def test_the_example_of_the_page(etl):
    """The files are those of docs/schemas.md. The program writes, and the pipeline reads."""
    files = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```\n", PAGE.read_text(), re.DOTALL))
    assert files == {path.name: path.read_text() for path in EXAMPLE.iterdir() if path.is_file()}
    for name, content in files.items():
        (etl.folder / name).write_text(content)
    etl.create("orders-avro")
    environment = {**os.environ, "MILLRACE_BOOTSTRAP_SERVERS": etl.servers}
    subprocess.run([sys.executable, "write_orders.py"], cwd=etl.folder, env=environment, check=True, timeout=120)
    pipeline = load(etl.folder / "orders-avro.yaml", {})
    Run(pipeline, Cluster(etl.servers), etl.spark, Metrics("example"), logs.get(), once=True).run(threading.Event())
    rows = etl.spark.read.format("delta").load(str(etl.folder / "build/etl/lake/orders-avro")).orderBy("order_id")
    assert [tuple(row[:3]) for row in rows.collect()] == [(1, 2.5, None), (2, 5.0, None), (3, 7.5, None)]


def read_avro(etl, topic: str) -> list[Any]:
    """Return the values of a topic as Confluent's deserializer reads them."""
    deserializer = AvroDeserializer(etl.client)
    values = [each.value() for each in read_all(etl.servers, topic)]
    return [value and deserializer(value, SerializationContext(topic, MessageField.VALUE)) for value in values]


def test_a_topic_of_avro(etl):
    """Confluent's deserializer reads the rows. A new column is a new version that readers of the old one accept."""
    topic = f"{etl.name}.clean"
    output = f"- {{type: kafka, topic: {topic}, value: avro, registry: {{subject: {topic}-value}}}}"
    etl.write(FIRST, 2**62, 2)
    etl.framed(more=", key: binary", output=output)
    etl.write(SECOND, 3)
    etl.framed(more=", key: binary, headers: {place: x}", output=output)
    found = sorted(read_avro(etl, topic), key=lambda row: row["id"])
    assert found == [{"id": 2}, {"id": 3, "place": None}, {"id": 2**62}]
    number, schema = etl.registry.got(f"/subjects/{topic}-value/versions/2")
    assert number == 200
    assert json.loads(schema["schema"])["fields"] == [
        {"name": "id", "type": ["null", "long"], "default": None},
        {"name": "place", "type": ["null", "string"], "default": None},
    ]
    assert etl.outcomes(f"kafka:{topic}") == {"in": 3, "out": 3, "dlq": 0, "dropped": 0, "late": 0, "duplicates": 0}


def test_a_topic_of_a_pinned_version(etl):
    """A row that the version cannot hold is a dead letter of the sink, and the others go in."""
    topic = f"{etl.name}.clean"
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    fields = [{"name": "id", "type": "long"}, {"name": "kind", "type": kind}]
    etl.registry.add("clean", json.dumps({"type": "record", "name": "Clean", "fields": fields}))
    output = f"- {{type: kafka, topic: {topic}, value: avro, registry: {{subject: clean, version: 1}}}}"
    etl.write(FIRST, 1, 2, 3, 4)
    etl.framed(output=output, derive="kind: CASE id WHEN 1 THEN 'A' WHEN 2 THEN 'C' WHEN 3 THEN 'B' END")
    found = sorted(read_avro(etl, topic), key=lambda row: row["id"])
    assert found == [{"id": 1, "kind": "A"}, {"id": 3, "kind": "B"}]
    assert etl.outcomes(f"kafka:{topic}") == {"in": 4, "out": 2, "dlq": 2, "dropped": 0, "late": 0, "duplicates": 0}
    etl.registry.add("other", '"string"')
    wrong = output.replace("subject: clean", "subject: other")
    with pytest.raises(ConfigError, match="the schema of other is no record"):
        etl.framed(output=wrong, derive="kind: CAST(id AS STRING)")


def test_rows_of_avro_in_postgresql(etl, postgres):
    """Digits and microseconds stay, and a later record of a key replaces the row."""
    at = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
    serializer = AvroSerializer(etl.client, json.dumps(PAID))
    context = SerializationContext(etl.topic, MessageField.VALUE)
    prices = (Decimal("1.5"), Decimal("1234567890123456.7891"))
    rows = [{"id": 1, "price": price, "at": at, "tags": ["a", "b"]} for price in prices]
    etl.write_raw(*(serializer(row, context) for row in rows))
    table = f"paid_{etl.name}"
    etl.framed(
        output=f"- {{type: postgres, url: {postgres.url}, table: {table}, user: {USER}, password: {PASSWORD},"
        " mode: upsert, keys: [id], columns: [id, price, at, tags]}"
    )
    stored = postgres.rows(f"SELECT id, price, at AT TIME ZONE 'UTC', tags FROM {table}")
    assert stored == [("1", "1234567890123456.7891", "2026-01-31 12:00:00.000001", '["a", "b"]')]
