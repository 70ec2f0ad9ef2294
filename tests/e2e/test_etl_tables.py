"""Several tables in one run: each record is in each of them once, whatever dies between their commits."""

import argparse
import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import NewTopic  # noqa: E402
from spark_etl import logs  # noqa: E402
from spark_etl.checkpoint import batches  # noqa: E402
from spark_etl.checkpoint.offsets import Checkpoint  # noqa: E402
from spark_etl.commands import backfill, recover, replay_dlq, schema, status  # noqa: E402
from spark_etl.config import load  # noqa: E402
from spark_etl.errors import RunError  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.lake import LakeTable  # noqa: E402
from spark_etl.metrics import Metrics  # noqa: E402
from spark_etl.run.pipeline_run import Run  # noqa: E402
from support.etl_accounts import all_balanced  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402

__all__ = ["broker", "etl"]

GUIDE = Path(__file__).parents[2] / "docs" / "etl.md"
DIES = "the driver dies here"


def rows(etl: Etl, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = etl.spark.read.format("delta").load(f"{etl.place}/{table}").select(*columns).collect()
    return sorted(tuple(row) for row in found)


def ids(etl: Etl, table: str) -> list[int]:
    return [number for (number,) in rows(etl, table, "id")]


def commits(etl: Etl, table: str) -> list[dict[str, Any]]:
    """Return the metadata of all commits of batches, the oldest first."""
    found = []
    for path in sorted((etl.folder / table / "_delta_log").glob("*.json")):
        info = next(json.loads(line)["commitInfo"] for line in path.read_text().splitlines() if "commitInfo" in line)
        document = json.loads(info.get("userMetadata") or "{}")
        found += [document] if document.get("operation") == "batch" else []
    return found


def of_sinks(etl: Etl) -> dict[str, dict[str, int]]:
    """Return what `status` shows of each table, by the name of its folder."""
    checkpoint = Checkpoint(etl.pipeline.config.checkpoint)
    with Cluster(etl.servers).admin(etl.spark) as admin:
        found = status.state(checkpoint, admin.end_offsets, etl.pipeline)["rows"]
    return {Path(name.removeprefix("delta:")).name: numbers for name, numbers in found.items()}


def test_the_example_of_the_guide(etl: Etl, tmp_path: Path) -> None:
    """Three tables of one topic, from one read of it."""
    for name, content in re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```\n", GUIDE.read_text(), re.DOTALL):
        (tmp_path / name).write_text(content)
    etl.admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    producer = Producer({"bootstrap.servers": etl.servers})
    for order, amount in ((1, 20.0), (2, 100.0), (1, 120.0), (3, -1.0), (2, None)):
        producer.produce("orders", json.dumps({"order_id": order, "amount": amount}), str(order))
    assert producer.flush(60) == 0
    pipeline = load(tmp_path / "order-tables.yaml", {})
    etl.pipeline = pipeline
    read: list[int] = []
    metrics = Metrics(pipeline.config.name)
    real = metrics.progress
    metrics.progress = lambda progress: (read.append(progress["numInputRows"]), real(progress))[1]  # type: ignore
    totals = Run(pipeline, Cluster(etl.servers), etl.spark, metrics, logs.get(), once=True).run(threading.Event())
    assert (totals.rows_in, totals.rows_out, totals.rows_dlq) == (5, 3, 2)
    assert sum(read) == 5
    lake = "build/etl/lake"
    events = rows(etl, f"{lake}/order-events", "order_id", "amount", "_offset")
    assert events == [(1, 20.0, 0), (1, 120.0, 2), (2, 100.0, 1)]
    assert rows(etl, f"{lake}/order-states", "order_id", "amount") == [(1, 120.0), (2, 100.0)]
    large = etl.spark.read.format("delta").load(f"{tmp_path}/{lake}/order-large")
    assert large.columns == ["order_id", "amount", "_key", "_topic", "_partition", "_offset", "_timestamp"]
    assert rows(etl, f"{lake}/order-large", "order_id", "amount") == [(1, 120.0), (2, 100.0)]
    outcomes = {"in": 5, "dlq": 2, "late": 0, "duplicates": 0}
    assert of_sinks(etl) == {
        "order-events": {**outcomes, "out": 3, "dropped": 0},
        "order-states": {**outcomes, "out": 3, "dropped": 0},
        "order-large": {**outcomes, "out": 2, "dropped": 1},
    }
    lines, code = schema.report(etl.spark, pipeline)
    assert code == 0
    assert [line.partition(", ")[0] for line in lines if line.startswith("accepted")] == [
        f"accepted: {tmp_path}/{lake}/order-{name}" for name in ("events", "states", "large")
    ]


def test_a_death_between_two_commits(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run writes the batch to the tables that lack it. So does one after `recover`."""
    tables = ("table", "even", "last")
    sink = f"""- {{type: delta, path: {etl.place}/even, where: id % 2 = 0, compression: snappy}}
  - {{type: delta, path: {etl.place}/last, mode: upsert, keys: [kind]}}"""
    real = LakeTable.write

    def dies_at(name: str) -> Any:
        def write(table: LakeTable, *arguments: Any) -> Any:
            if table.location.endswith(name):
                raise RuntimeError(DIES)
            return real(table, *arguments)

        return write

    etl.produce(1, 2, "broken", 3)
    for name, held in (("even", (1, 0, 0)), ("last", (1, 1, 0))):
        with monkeypatch.context() as patch:
            patch.setattr(LakeTable, "write", dies_at(name))
            with pytest.raises(RunError, match=DIES):
                etl.run(sink=sink)
        assert tuple(len(commits(etl, table)) for table in tables) == held
    with monkeypatch.context() as patch:
        patch.setattr(batches.Batches, "finished", lambda *_: 1 / 0)
        with pytest.raises(RunError, match="division by zero"):
            etl.run(sink=sink)
    assert etl.run(sink=sink).rows_in == 0
    assert (etl.ids(), ids(etl, "even"), rows(etl, "last", "kind", "id")) == ([1, 2, 3], [2], [("k0", 2), ("k1", 3)])
    all_balanced(of_sinks(etl).values())
    outcomes = {"in": 4, "dlq": 1, "late": 0, "duplicates": 0}
    assert of_sinks(etl)["even"] == {**outcomes, "out": 1, "dropped": 2}
    (commit,) = commits(etl, "even")
    assert {name: commit[name] for name in ("batch", "rows_read", "rows_out", "left_out")} == {
        "batch": 0,
        "rows_read": 3,
        "rows_out": 1,
        "left_out": [2, 2],
    }
    assert commit["end"] == {etl.topic: {"0": 2, "1": 2}}
    codecs = {table: {path.suffixes[0] for path in (etl.folder / table).glob("*.parquet")} for table in tables}
    assert codecs == {"table": {".zstd"}, "even": {".snappy"}, "last": {".zstd"}}

    etl.produce(4, 5)
    with monkeypatch.context() as patch:
        patch.setattr(LakeTable, "write", dies_at("even"))
        with pytest.raises(RunError, match=DIES):
            etl.run(sink=sink)
    shutil.rmtree(etl.folder / "checkpoint")
    recover.recover(etl.spark, etl.pipeline)
    etl.produce(6)
    etl.run(sink=sink)
    assert (etl.ids(), ids(etl, "even"), rows(etl, "last", "kind", "id")) == (
        [1, 2, 3, 4, 5, 6],
        [2, 4, 6],
        [("k0", 6), ("k1", 5)],
    )


def test_parts_of_the_records_with_items_letters_and_a_new_table(etl: Etl) -> None:
    """No table has all records: `recover` and `replay-dlq` use those that there are. `backfill` fills a new one."""
    properties = {"id": {"type": "integer"}, "parts": {"type": "array", "items": {"type": "integer"}}}
    (etl.folder / "schema.json").write_text(
        json.dumps({"type": "object", "required": ["id", "parts"], "properties": properties})
    )
    odd = f"- {{type: delta, path: {etl.place}/odd, where: id % 2 = 1, columns: [id, part]}}"
    even = f"- {{type: delta, path: {etl.place}/even, where: id % 2 = 0}}"
    explode = "explode: {column: parts, select: {part: item}}"
    small = f'{explode}\nrules: [{{name: small, expr: "id < 4"}}]'

    def record(number: int, *parts: int) -> str:
        return json.dumps({"id": number, "parts": parts})

    etl.produce(record(1, 10, 11), record(2), record(3, 30), record(4, 40, 41), record(5, 50))
    etl.run(table=False, sink=odd, sections=small)
    assert rows(etl, "odd", "id", "part", "_index") == [(1, 10, 0), (1, 11, 1), (3, 30, 0)]
    assert of_sinks(etl) == {
        "odd": {"in": 5, "out": 2, "dlq": 2, "dropped": 1, "late": 0, "duplicates": 0, "exploded": 3, "exploded_dlq": 0}
    }
    both = f"{odd}\n  {even}"
    etl.produce(record(6, 60, 61), record(7))
    etl.run(table=False, sink=both, sections=explode)
    assert rows(etl, "even", "id", "part") == [(6, 60), (6, 61)]
    shutil.rmtree(etl.folder / "checkpoint")
    assert recover.recover(etl.spark, etl.pipeline)["batch"] == 1
    options = argparse.Namespace(to="sinks", stage=None, rule=None, from_=None, until_=None)
    command = replay_dlq.Command(etl.spark, Cluster(etl.servers), etl.pipeline, logs.get())
    assert command.replay(options)["rows_out"] == 2
    assert command.replay(options)["letters"] == 0
    assert rows(etl, "odd", "id", "part") == [(1, 10), (1, 11), (3, 30), (5, 50), (7, None)]
    done = backfill.backfill(etl.spark, etl.servers, etl.pipeline, 0, {etl.topic: {0: 4, 1: 3}})
    assert (done["rows_in"], done["rows_out"]) == (7, 7)
    assert sorted(done["tables"]) == [f"{etl.place}/even", f"{etl.place}/odd"]
    assert rows(etl, "even", "id", "part") == [(2, None), (4, 40), (4, 41), (6, 60), (6, 61)]
    assert rows(etl, "odd", "id", "part") == [(1, 10), (1, 11), (3, 30), (5, 50), (7, None)]
    etl.produce(record(8, 80))
    etl.run(table=False, sink=both, sections=explode)  # repeats the last batch, which both tables have
    assert rows(etl, "even", "id", "part") == [(2, None), (4, 40), (4, 41), (6, 60), (6, 61), (8, 80)]
    assert len(rows(etl, "odd", "id")) == 5
