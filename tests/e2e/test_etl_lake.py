"""The commands on a table, next to a pipeline that reads a real broker: backfill, compact, schema, recover."""

import argparse
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from millrace import Broker

pytestmark = [pytest.mark.etl, pytest.mark.timeout(900)]

from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_etl.checkpoint.batches import BatchPlace  # noqa: E402
from spark_etl.commands import backfill, compact, recover, schema  # noqa: E402
from spark_etl.config import Pipeline, load  # noqa: E402
from spark_etl.errors import ConfigError, OutputError  # noqa: E402
from spark_etl.judgement import plan  # noqa: E402
from spark_etl.kafka import sources  # noqa: E402
from spark_etl.kafka.admin import KafkaAdmin  # noqa: E402
from spark_etl.lake import LakeTable, maintenance  # noqa: E402

FILE = """
apiVersion: etl/v1
name: orders
checkpoint: CHECKPOINT
source: {topics: [orders]}
decode: {format: json, schema: orders.json}
derive: {twice: "2 * id"}
rules: [{name: positive, expr: id >= 0}]
sinks: [{type: delta, path: TABLE}]
dead_letter: {topic: orders.dlq}
"""
SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}


class Orders:
    """A topic of two partitions, a pipeline, and its table."""

    def __init__(self, folder: Path, session: SparkSession, bootstrap_servers: str) -> None:
        self.folder = folder
        self.session = session
        self.bootstrap_servers = bootstrap_servers
        self.table = folder / "table"
        self.checkpoint = folder / "checkpoint"
        (folder / "orders.json").write_text(json.dumps(SCHEMA))

    def pipeline(self, **changed: str) -> Pipeline:
        text = FILE.replace("CHECKPOINT", str(self.checkpoint)).replace("TABLE", str(self.table))
        for old, new in changed.items():
            assert old in text
            text = text.replace(old, new)
        path = self.folder / "orders.yaml"
        path.write_text(text)
        return load(path, {})

    def produce(self, *ids: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        for number in ids:
            producer.produce("orders", json.dumps({"id": number}), partition=abs(number) % 2)
        assert producer.flush(30) == 0

    def run(self, pipeline: Pipeline) -> None:
        """Read the topic to its end, each batch into the table, as the runner does."""
        options = sources.options(self.bootstrap_servers, pipeline.config.source, pipeline.config.kafka)
        rows = plan(self.session, self.session.readStream.format("kafka").options(**options).load(), pipeline)
        with (
            KafkaAdmin.opened(self.session, self.bootstrap_servers) as admin,
            LakeTable.opened(self.session, pipeline.config.table, rows.good(rows.rows).schema) as table,
        ):
            topic_ids = admin.topic_ids(["orders"])
            query_id: list[str] = []

            def batch(frame: DataFrame, number: int) -> None:
                query = json.loads((self.checkpoint / "metadata").read_text())["id"]
                place = BatchPlace.of("orders", query, number)
                query_id.append(query)
                if table.holds(place.app_id, number):
                    return
                metadata = {
                    "pipeline": "orders",
                    "query": query,
                    "batch": number,
                    "start": self.planned(number - 1),
                    "end": self.planned(number),
                    "topic_ids": topic_ids,
                }
                table.write(rows.good(frame), place.app_id, number, lambda written: {**metadata, "rows_out": written})

            stream = rows.rows.writeStream.option("checkpointLocation", str(self.checkpoint)).foreachBatch(batch)
            stream.trigger(availableNow=True).start().awaitTermination()

    def planned(self, batch: int) -> dict:
        path = self.checkpoint / "offsets" / str(batch)
        return json.loads(path.read_text().splitlines()[2]) if batch >= 0 else {"orders": {"0": 0, "1": 0}}

    def rows(self, *columns: str) -> list[tuple]:
        table = self.session.read.format("delta").load(str(self.table))
        return sorted(tuple(row) for row in table.select(*columns).collect())


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics="orders:2") as broker:
        yield broker


@pytest.fixture
def orders(broker: Broker, spark: SparkSession, tmp_path: Path) -> Orders:
    return Orders(tmp_path, spark, broker.bootstrap_servers)


def test_a_range_is_exchanged_and_a_lost_checkpoint_recovered(orders: Orders) -> None:
    pipeline = orders.pipeline()
    orders.produce(*range(10))
    orders.run(pipeline)
    orders.produce(*range(10, 14))
    orders.run(pipeline)
    assert orders.rows("id", "twice") == [(i, 2 * i) for i in range(14)]
    orders.produce(14, 15)  # not read yet

    changed = orders.pipeline(**{"2 * id": "100 + id", "id >= 0": "id <> 5"})
    ranges = {"orders": {0: 1, 1: 2}}
    done = backfill.backfill(orders.session, orders.bootstrap_servers, changed, ranges, {"orders": {0: 4, 1: 6}})
    assert done == {
        "ranges": {"orders": {0: (1, 4), 1: (2, 6)}},
        "rows_in": 7,
        "rows_out": 6,
        "rows_dlq": 1,
        "rows_dropped": 0,
        "tables": {str(orders.table): 3},
    }
    exchanged = {2, 4, 6, 7, 9, 11}  # offsets 1 to 3 of partition 0, 2 to 5 of partition 1 without 5
    expected = [(i, 100 + i if i in exchanged else 2 * i) for i in range(14) if i != 5]
    assert orders.rows("id", "twice") == expected
    letters = orders.session.read.format("kafka").option("kafka.bootstrap.servers", orders.bootstrap_servers)
    assert letters.option("subscribe", "orders.dlq").load().selectExpr("CAST(value AS STRING)").collect() == [
        ('{"id": 5}',)
    ]
    with pytest.raises(OutputError, match="the pipeline has read orders-0 to offset 7, not 8"):
        backfill.backfill(orders.session, orders.bootstrap_servers, changed, 0, 8)

    compacted = maintenance.compact(orders.session, LakeTable.existing(orders.session, pipeline.config.table), 0.0)
    assert compacted.files_after == 1
    assert orders.rows("id", "twice") == expected
    assert len(list(orders.table.glob("*.parquet"))) == 1

    before = {name: json.loads((orders.checkpoint / name).read_text()) for name in ("metadata",)}
    shutil.rmtree(orders.checkpoint)
    document = recover.recover(orders.session, pipeline)
    assert (document["batch"], document["end"]) == (1, {"orders": {"0": 7, "1": 7}})
    assert json.loads((orders.checkpoint / "metadata").read_text()) == before["metadata"]
    with pytest.raises(OutputError, match="there is a checkpoint; move it away first"):
        recover.recover(orders.session, pipeline)
    orders.run(orders.pipeline())
    assert orders.rows("id", "twice") == [*expected, (14, 28), (15, 30)]


def test_the_schema_of_file_and_table(orders: Orders) -> None:
    assert schema.report(orders.session, orders.pipeline())[0][-1] == f"accepted: {orders.table} will be created"
    orders.produce(1)
    orders.run(orders.pipeline())
    wider = orders.pipeline(**{'{twice: "2 * id"}': '{twice: "2 * id", half: "id / 2"}'})
    lines, status = schema.report(orders.session, wider)
    assert [line.split() for line in lines if line.startswith(("id", "half"))] == [
        ["id", "bigint", "bigint", "same"],
        ["half", "double", "added"],
    ]
    assert (lines[-1], status) == (f"accepted: {orders.table}, version 1", 0)
    lines, status = schema.report(orders.session, orders.pipeline(**{"2 * id": "CAST(id AS STRING)"}))
    assert [line.split() for line in lines if line.startswith("twice")] == [["twice", "bigint", "string", "refused"]]
    reason = f"refused: sinks.delta {orders.table}: column twice: bigint in the table, string in the pipeline"
    assert (lines[-1], status) == (reason, 1)


def test_points_of_a_range() -> None:
    assert backfill.point("--from", "1200") == 1200
    assert backfill.point("--from", '{"orders": {"0": 3}}') == {"orders": {0: 3}}
    assert str(backfill.point("--to", "2026-01-31T00:00:00Z")) == "2026-01-31 00:00:00+00:00"
    for text, reason in {
        "yesterday": "--to: yesterday: neither a time, an offset, nor a JSON object of offsets",
        "2026-01-31T00:00:00": "--to: 2026-01-31T00:00:00: the time needs a zone, such as Z",
        '{"orders": 3}': '--to: {"orders": 3}: neither a time, an offset, nor a JSON object of offsets',
        '{"a": {"0": 0.9}}': '--to: {"a": {"0": 0.9}}: neither a time, an offset, nor a JSON object of offsets',
    }.items():
        with pytest.raises(ConfigError) as refused:
            backfill.point("--to", text)
        assert str(refused.value) == reason


@pytest.mark.parametrize(("first", "end"), [("5", "4"), ("2026-01-31T00:00:01Z", "2026-01-31T00:00:00Z")])
def test_a_range_that_ends_before_it_begins_is_refused(first: str, end: str) -> None:
    with pytest.raises(ConfigError, match=r"^--from: .* is after --to: "):
        backfill.check_order(backfill.point("--from", first), backfill.point("--to", end))


def test_the_positions_of_a_range() -> None:
    class Admin:
        def offsets_at(self, topics: Any, milliseconds: int) -> Any:
            assert milliseconds >= 0  # -1 is the end in Kafka's protocol
            return {topic: {0: 7} for topic in topics}

    admin: Any = Admin()
    committed = {"orders": {0: 9}}
    for time in ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z"):
        assert backfill._positions(admin, committed, backfill.point("--from", time)) == {"orders": {0: 7}}
    with pytest.raises(ConfigError, match=r"^backfill: the pipeline has not read orders-7$"):
        backfill._positions(admin, committed, {"orders": {0: 1, 7: 1}})


@pytest.mark.parametrize("hours", [-1.0, math.nan, math.inf])
def test_a_retention_that_is_no_time_is_refused_before_a_file_is_rewritten(hours: float) -> None:
    unused: Any = None
    with pytest.raises(ConfigError, match=r"^--retention: .* is not from 0 to 1,000,000 hours$"):
        compact.run(unused, unused, argparse.Namespace(retention=hours), unused)
