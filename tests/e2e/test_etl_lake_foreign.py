"""Other writers of a pipeline's table, a folder that goes, and a log that is damaged: a reason, and no row lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake

pytestmark = [pytest.mark.etl, pytest.mark.timeout(200)]

from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_etl.config import DeltaSinkConfig  # noqa: E402
from spark_etl.errors import ConfigError, EtlError, OutputError, RunError  # noqa: E402
from spark_etl.lake import LakeTable  # noqa: E402
from spark_etl.lake.delta import Delta  # noqa: E402


class Lake:
    """One table, and a pipeline that writes rows of one id each."""

    def __init__(self, spark: SparkSession, folder: Path, **options: object) -> None:
        self.path = folder / "table"
        self._spark = spark
        self.config = DeltaSinkConfig.model_validate({"type": "delta", "path": str(self.path), **options})
        self._batch = 0

    def rows(self, number: int) -> DataFrame:
        places = "'k' _key, 't' _topic, 0 _partition, CAST(id AS bigint) _offset, TIMESTAMP '2026-01-01' _timestamp"
        return self._spark.sql(f"SELECT {number}L id, 'ours' name, {places} FROM (SELECT {number} id)")

    def opened(self) -> object:
        return LakeTable.opened(self._spark, self.config, self.rows(0).schema)

    def write(self, table: LakeTable, number: int) -> None:
        table.write(self.rows(number), "etl/p/q", self._batch, lambda _: {"query": "q", "batch": 0})
        self._batch += 1

    def entries(self) -> list[Path]:
        return sorted((self.path / "_delta_log").glob("*.json"))


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def foreign(lake: Lake, mode: str, how: str = "merge", **values: object) -> None:
    kinds = {int: DataType.int64(), str: DataType.utf8()}
    columns = {name: Array([value], kinds[type(value)]) for name, value in values.items()}
    write_deltalake(lake.path, Table.from_pydict(columns), mode=mode, schema_mode=how)


def stored(spark: SparkSession, lake: Lake) -> list[int]:
    return sorted(row["id"] for row in spark.read.format("delta").load(str(lake.path)).collect())


def test_commits_of_another_writer_stay(spark, lake):
    """They came between two batches, or between two runs: an entry of deltalake has no end of line."""
    with lake.opened() as table:
        lake.write(table, 1)
        foreign(lake, "append", id=10, more=1)
        lake.write(table, 2)
        foreign(lake, "append", id=11)
    with lake.opened() as table:
        assert table.repaired == []
        lake.write(table, 3)
        assert table.holds("etl/p/q", 2)
    assert stored(spark, lake) == [1, 2, 3, 10, 11]
    DeltaTable(lake.path).optimize.compact()
    DeltaTable(lake.path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with lake.opened() as table:
        lake.write(table, 4)
    assert stored(spark, lake) == [1, 2, 3, 4, 10, 11]


def refused(lake: Lake, table: LakeTable) -> EtlError:
    version = table.delta.version()
    with pytest.raises(EtlError) as failed:
        lake.write(table, 2)
    assert "\n" not in str(failed.value)
    assert table.delta.version() == version
    return failed.value


@pytest.mark.parametrize("upsert", [False, True])
def test_columns_that_another_writer_changes_are_refused(spark, tmp_path, upsert):
    lake = Lake(spark, tmp_path, **({"mode": "upsert", "keys": ["id"]} if upsert else {}))
    with lake.opened() as table:
        lake.write(table, 1)
        foreign(lake, "overwrite", "overwrite", id="a", name="b")
        why = f"sinks.delta {lake.path}: column id: string in the table, bigint in the pipeline"
        assert str(refused(lake, table)) == why
    with pytest.raises(ConfigError, match="string in the table"), lake.opened():
        pass


def test_columns_that_another_writer_removes_are_missed(lake):
    with lake.opened() as table:
        lake.write(table, 1)
        foreign(lake, "overwrite", "overwrite", id=5)
        assert str(refused(lake, table)) == f"sinks.delta {lake.path}: another writer removed columns during the run"


def test_a_table_that_goes_or_is_exchanged_ends_the_run(spark, lake):
    with lake.opened() as table:
        lake.write(table, 1)
        shutil.move(lake.path, lake.path.with_name("moved"))
        with pytest.raises(OutputError, match=rf"^{lake.path}: there is no table$"):
            lake.write(table, 2)
        foreign(lake, "append", id=9, name="other")
        with pytest.raises(OutputError, match=rf"^{lake.path}: another table has come into its place during the run$"):
            lake.write(table, 2)
    assert stored(spark, lake) == [9]


def test_a_damaged_log_is_named(spark, lake):
    with lake.opened() as table:
        for number in (1, 2, 3):
            lake.write(table, number)
    entry = lake.entries()[-2]
    content = entry.read_bytes()
    for summary in entry.parent.glob("*.crc"):
        summary.unlink()
    entry.write_bytes(content[:40] + b"\0" * 40 + content[80:])
    reason = rf"^{lake.path}: the log of the table cannot be read: Json\w+: [^\n]+$"
    with pytest.raises(RunError, match=reason):
        Delta(spark, str(lake.path)).forget()
    with pytest.raises(RunError, match=reason), lake.opened():
        pass
    entry.write_bytes(b"")
    Delta(spark, str(lake.path)).forget()
    with pytest.raises(OutputError, match=rf"^{lake.path}: the log entry {entry.name} is empty"), lake.opened():
        pass
    entry.write_bytes(content)
    Delta(spark, str(lake.path)).forget()
    with lake.opened() as table:
        lake.write(table, 4)
    assert stored(spark, lake) == [1, 2, 3, 4]
