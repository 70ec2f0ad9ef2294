"""A table next to others, or of a part of the rows: each batch once, none missing, each row counted."""

import argparse
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_etl import logs  # noqa: E402
from spark_etl.checkpoint.batches import BatchPlace  # noqa: E402
from spark_etl.commands import compact  # noqa: E402
from spark_etl.config.sinks import DeltaSinkConfig  # noqa: E402
from spark_etl.errors import AccountingError, OutputError  # noqa: E402
from spark_etl.lake import LakeTable, maintenance  # noqa: E402
from spark_etl.settings import EtlSettings  # noqa: E402
from spark_etl.sinks.delta_rows import DeltaRows  # noqa: E402
from spark_etl.sinks.postgres.batches import Position  # noqa: E402
from support.pipelines import pipeline  # noqa: E402

SCHEMA = "id BIGINT, _key STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
HELD = Position("p", "q", finished=4, planned=4)


def rows(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(number, None, "t", 0, number, None) for number in ids], SCHEMA)


def batch(number: int) -> BatchPlace:
    return replace(BatchPlace.of("p", "q", number), commit={"pipeline": "p", "query": "q", "batch": number})


def sink(spark: SparkSession, path: Path, **options: Any) -> DeltaRows:
    config = DeltaSinkConfig.model_validate({"type": "delta", "path": str(path), "where": "id > 2", **options})
    return DeltaRows(spark, config, rows(spark).schema)


def ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row["id"] for row in spark.read.format("delta").load(str(path)).collect())


def test_batches_come_once_and_in_order(spark: SparkSession, tmp_path: Path) -> None:
    table = sink(spark, tmp_path / "a")
    table.claim(HELD)  # a table that is new to the pipeline begins at any batch
    try:
        table.write(rows(spark, 1, 2, 3, 4), batch(5), None)
        assert (table.rows_read, table.rows_written, table.left_out) == (4, 2, (2, 2))
        table.write(rows(spark, 9), batch(5), None)
        assert (table.rows_read, table.rows_written, table.left_out) == (None, 2, (2, 2))
        with pytest.raises(OutputError, match="a has batch 5 as its last one, and batch 6 is missing"):
            table.write(rows(spark, 9), batch(7), None)
    finally:
        table.release()
    assert ids(spark, tmp_path / "a") == [3, 4]
    again = sink(spark, tmp_path / "a")
    with pytest.raises(OutputError, match="a has batch 5 as its last one, and batch 6 is missing"):
        again.claim(replace(HELD, finished=6, outputs=(table.name,)))
    again.release()
    again.write(rows(spark, 1, 3, 5), BatchPlace.of("p", "replay-dlq now", 0), None)  # some came back before
    assert ids(spark, tmp_path / "a") == [3, 4, 5]
    last = again.table.last_metadata() or {}
    assert (last["batch"], last["rows_out"], last["replay"]) == (5, 2, 0)


def test_every_table_is_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sinks = [{"type": "delta", "path": f"{tmp_path}/{name}", "where": "id > 1"} for name in ("a", "b")]
    monkeypatch.setattr(compact, "opened", lambda *_: nullcontext())
    monkeypatch.setattr(compact.LakeTable, "existing", lambda _, sink: SimpleNamespace(location=sink.path))
    monkeypatch.setattr(maintenance, "compact", lambda *_: maintenance.Compacted(7, 2, 1, 2))
    compact.run(pipeline(tmp_path, sinks=sinks), EtlSettings(), argparse.Namespace(retention=24.0), logs.get())
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["table"], each["files_after"]) for each in found] == [(f"{tmp_path}/{name}", 1) for name in "ab"]


def test_a_table_that_was_lost_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = sink(spark, tmp_path / "a")
    with pytest.raises(OutputError, match="a has no batch of this checkpoint, and batch 4 is missing"):
        table.claim(replace(HELD, outputs=(table.name,)))
    table.release()


def test_rows_that_are_not_written_are_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LakeTable.write
    monkeypatch.setattr(LakeTable, "write", lambda table, given, *more: real(table, given.where("id < 4"), *more))
    with pytest.raises(AccountingError, match="a: 2 rows to write, 1 written"):
        sink(spark, tmp_path / "a").write(rows(spark, 3, 4), batch(0), None)
    assert ids(spark, tmp_path / "a") == []
