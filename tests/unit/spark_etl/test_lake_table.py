"""A Delta table written batch by batch: once each, counted before the commit, refused where readers would suffer."""

import json
from datetime import date
from pathlib import Path

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(1200)]

import duckdb  # noqa: E402
from deltalake import DeltaTable, QueryBuilder  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812
from pyspark.sql.types import StructType  # noqa: E402
from spark_etl.config.sinks import DeltaSinkConfig  # noqa: E402
from spark_etl.errors import AccountingError, ConfigError, OutputError  # noqa: E402
from spark_etl.lake import LakeTable, maintenance  # noqa: E402
from spark_etl.lake.delta import Delta, Transaction  # noqa: E402

APP = "etl/orders/8f2c1d0a"
PLACE = "_key STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
SCHEMA = f"id BIGINT, day STRING, {PLACE}"


def config(path: Path | str, **changes: object) -> DeltaSinkConfig:
    return DeltaSinkConfig.model_validate({"type": "delta", "path": str(path), **changes})


def rows(spark: SparkSession, *ids: int, first_offset: int = 0) -> DataFrame:
    offsets = range(first_offset, first_offset + len(ids))
    values = [(i, f"d{i % 2}", None, "orders", 0, offset, None) for i, offset in zip(ids, offsets, strict=True)]
    return spark.createDataFrame(values, SCHEMA)


def schema(spark: SparkSession, text: str) -> StructType:
    return spark.createDataFrame([], text).schema


def ids(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row["id"] for row in spark.read.format("delta").load(str(path)).select("id").collect())


def last(table: LakeTable) -> dict:
    metadata = dict(table.last_metadata() or {})
    assert isinstance(metadata.pop("committed_ms"), int)
    return metadata


def accepting(expected: int, **metadata: object):
    def accept(written: int) -> dict:
        assert written == expected
        return {"rows_out": written, **metadata}

    return accept


def test_batches_and_their_replay(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    sink = config(path, partition_by=["day"])
    with LakeTable.opened(spark, sink, schema(spark, SCHEMA)) as table:
        assert not table.holds(APP, 0)
        assert table.last_metadata() is None
        commit = table.write(rows(spark, 1, 2, 3), APP, 0, accepting(3, batch=0))
        assert (commit.version, commit.rows, commit.files) == (1, 3, 2)
        assert (table.holds(APP, 0), table.holds(APP, 1), table.holds("etl/orders/other", 0)) == (True, False, False)
        with pytest.raises(OutputError, match="batch 0 of etl/orders/8f2c1d0a is there already"):
            table.write(rows(spark, 1), APP, 0, accepting(1))
        table.write(rows(spark), APP, 1, accepting(0, batch=1))
    with LakeTable.opened(spark, sink, schema(spark, SCHEMA)) as table:
        assert (table.holds(APP, 1), table.holds(APP, 2)) == (True, False)
        assert last(table) == {"operation": "batch", "rows_out": 0, "batch": 1}
    assert ids(spark, path) == [1, 2, 3]
    assert sorted(entry.name for entry in path.iterdir()) == ["_delta_log", "_etl", "day=d0", "day=d1"]


def test_folders_are_shared_among_four_tasks_of_each_core_and_one_writes_each(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With as many tasks as cores, one core could get most of the folders. A larger number in the session counts."""
    numbers: list[int] = []
    write = Transaction.write

    def counting(transaction: Transaction, frame: DataFrame) -> list[dict]:
        numbers.append(frame.rdd.getNumPartitions())
        return write(transaction, frame)

    monkeypatch.setattr(Transaction, "write", counting)
    path = tmp_path / "orders"
    sink = config(path, partition_by=["day"])
    values = [(number, f"d{number % 12}", None, "orders", 0, number, None) for number in range(600)]
    with LakeTable.opened(spark, sink, schema(spark, SCHEMA)) as table:
        spread = spark.createDataFrame(values, SCHEMA).repartition(3)
        assert table.write(spread, APP, 0, accepting(600, batch=0)).files == 12
        spark.conf.set("spark.sql.shuffle.partitions", "9")
        try:
            table.write(rows(spark, 1), APP, 1, accepting(1, batch=1))
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", "1")
    assert numbers == [8, 9]
    monkeypatch.setattr(type(spark.sparkContext), "defaultParallelism", 200)
    with LakeTable.opened(spark, sink, schema(spark, SCHEMA)) as table:
        table.write(rows(spark, 2), APP, 2, accepting(1, batch=2))
    assert numbers == [8, 9, 32]


def test_a_driver_asks_the_log_for_batches_unless_it_made_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    in_log = Delta.version_of

    def version_of(delta: Delta, app_id: str) -> int:
        asked.append(app_id)
        return in_log(delta, app_id)

    monkeypatch.setattr(Delta, "version_of", version_of)
    sink = config(tmp_path / "orders")
    with LakeTable.opened(spark, sink, schema(spark, SCHEMA)) as table:
        assert not table.holds(APP, 0)
        table.write(rows(spark, 1), APP, 0, accepting(1, batch=0))
        assert (table.holds(APP, 0), table.holds(APP, 1)) == (True, False)
        assert asked == []
    with LakeTable.opened(spark, sink, schema(spark, SCHEMA)) as table:
        assert (table.holds(APP, 0), table.holds(APP, 1)) == (True, False)
        assert asked == [APP]


def test_a_folder_with_any_name_is_compacted(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a`b 'c"
    with LakeTable.opened(spark, config(path), schema(spark, SCHEMA)) as table:
        for batch in range(2):
            table.write(rows(spark, batch), APP, batch, accepting(1))
    found = maintenance.compact(spark, LakeTable.existing(spark, config(path)))
    assert (found.files_before, found.files_after, ids(spark, path)) == (2, 1, [0, 1])


def test_a_batch_whose_count_is_refused_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders"

    def refuse(written: int) -> dict:
        raise AccountingError(f"{written} written")

    with LakeTable.opened(spark, config(path), schema(spark, SCHEMA)) as table:
        with pytest.raises(AccountingError, match="3 written"):
            table.write(rows(spark, 1, 2, 3), APP, 0, refuse)
        assert not table.holds(APP, 0)
        assert list(path.glob("*.parquet")) == []
        table.write(rows(spark, 4), APP, 0, accepting(1))
    assert ids(spark, path) == [4]


def test_one_driver_for_one_folder(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_etl.lake.locks.DRIVER_WAIT_SECONDS", 0.0)
    sink, columns = config(tmp_path / "orders"), schema(spark, SCHEMA)
    with (
        LakeTable.opened(spark, sink, columns),
        pytest.raises(OutputError, match="another driver writes here"),
        LakeTable.opened(spark, sink, columns),
    ):
        pass
    with LakeTable.opened(spark, sink, columns):
        pass


def test_a_new_column_and_a_column_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with LakeTable.opened(spark, config(path), schema(spark, f"id BIGINT, day STRING, o STRUCT<a: INT>, {PLACE}")) as t:
        values = [(1, "d1", (7,), None, "orders", 0, 0, None)]
        first = spark.createDataFrame(values, f"id BIGINT, day STRING, o STRUCT<a: INT>, {PLACE}")
        t.write(first, APP, 0, accepting(1))
    wider = f"id BIGINT, price DOUBLE, o STRUCT<b: STRING, a: INT>, {PLACE}"
    with LakeTable.opened(spark, config(path), schema(spark, wider)) as table:
        table.write(
            spark.createDataFrame([(2, 0.5, ("x", 8), None, "orders", 0, 1, None)], wider), APP, 1, accepting(1)
        )
    found = spark.read.format("delta").load(str(path)).orderBy("id")
    assert found.select("id", "day", "price", "o.a", "o.b").collect() == [
        (1, "d1", None, 7, None),
        (2, None, 0.5, 8, "x"),
    ]


@pytest.mark.parametrize(
    ("columns", "partition_by", "reason"),
    [
        (f"id STRING, day STRING, {PLACE}", ["day"], "column id: bigint in the table, string in the pipeline"),
        (f"ID BIGINT, day STRING, {PLACE}", ["day"], "column ID: the table has id, other in case only"),
        (SCHEMA, [], "the table is partitioned by ['day'], the pipeline says []"),
        (SCHEMA, ["id"], "the table is partitioned by ['day'], the pipeline says ['id']"),
    ],
)
def test_a_change_that_readers_could_not_bear(
    spark: SparkSession, tmp_path: Path, columns: str, partition_by: list[str], reason: str
) -> None:
    path = tmp_path / "orders"
    with LakeTable.opened(spark, config(path, partition_by=["day"]), schema(spark, SCHEMA)) as table:
        table.write(rows(spark, 1), APP, 0, accepting(1))
    with (
        pytest.raises(ConfigError) as refused,
        LakeTable.opened(spark, config(path, partition_by=partition_by), schema(spark, columns)),
    ):
        pass
    assert str(refused.value) == f"sinks.delta {path}: {reason}"
    assert ids(spark, path) == [1]


def test_numbers_become_wider_if_the_file_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """All rows stay, any reader reads them, the next batch follows, and rows of the narrower type fit as well."""
    path = tmp_path / "orders"
    narrow = f"id INT, n BIGINT, o STRUCT<a: INT, f: ARRAY<FLOAT>>, day STRING, {PLACE}"
    wide = f"id BIGINT, n DOUBLE, o STRUCT<a: BIGINT, f: ARRAY<DOUBLE>>, day STRING, {PLACE}, more STRING"
    sink = config(path, partition_by=["day"], widen=["numbers"])

    def frame(offset: int, columns: str, *values: object) -> DataFrame:
        return spark.createDataFrame(
            [(*values, "d", None, "orders", 0, offset, None)], columns.removesuffix(", more STRING")
        )

    first = frame(0, narrow, 1, 2**53, (2, [0.5]))
    with LakeTable.opened(spark, sink, first.schema) as table:
        table.write(first, APP, 0, accepting(1, batch=0))
    plain = config(path, partition_by=["day"])
    with (
        pytest.raises(ConfigError, match="column id: int in the table, bigint in"),
        LakeTable.opened(spark, plain, schema(spark, wide)),
    ):
        pass
    with LakeTable.opened(spark, sink, schema(spark, wide)) as table:
        assert last(table) == {"operation": "batch", "rows_out": 1, "batch": 0}
        assert table.holds(APP, 0)
        table.write(frame(1, wide, 2**40, 0.5, (2**40, [0.1])), APP, 1, accepting(1, batch=1))
    older = f"id INT, n DOUBLE, o STRUCT<a: INT, f: ARRAY<FLOAT>>, day STRING, {PLACE}"
    with LakeTable.opened(spark, sink, schema(spark, older)) as table:
        table.write(frame(2, older, 3, 1.5, (4, [2.0])), APP, 2, accepting(1, batch=2))
    files = duckdb.read_parquet(DeltaTable(str(path)).file_uris())
    stored = files.project("id, n, o.a, o.f, typeof(id), _offset").order("_offset").fetchall()
    assert [row[:5] for row in stored] == [
        (1, 2.0**53, 2, [0.5], "BIGINT"),
        (2**40, 0.5, 2**40, [0.1], "BIGINT"),
        (3, 1.5, 4, [2.0], "BIGINT"),
    ]


@pytest.mark.parametrize(
    ("narrow", "wide", "value", "reason"),
    [
        ("BIGINT", "DOUBLE", 2**53 + 1, "column id has integers beyond 9007199254740992, which a double cannot hold"),
        ("DOUBLE", "BIGINT", 1.0, "column id: double in the table, bigint in the pipeline"),
        ("STRUCT<a: BIGINT>", "STRUCT<a: DOUBLE>", (1,), "column id.a: bigint in the table, double in the pipeline"),
        ("BIGINT", "STRING", 1, "column id: bigint in the table, string in the pipeline"),
    ],
)
def test_a_number_never_loses_a_digit(
    spark: SparkSession, tmp_path: Path, narrow: str, wide: str, value: object, reason: str
) -> None:
    path = tmp_path / "orders"
    row = spark.createDataFrame([(value, None, "orders", 0, 0, None)], f"id {narrow}, {PLACE}")
    with LakeTable.opened(spark, config(path), row.schema) as table:
        table.write(row, APP, 0, accepting(1, batch=0))
        version = table.delta.version()
    sink = config(path, widen=["numbers"])
    with pytest.raises(ConfigError) as refused, LakeTable.opened(spark, sink, schema(spark, f"id {wide}, {PLACE}")):
        pass
    assert str(refused.value) == f"sinks.delta {path}: {reason}"
    assert LakeTable(spark, sink).delta.version() == version


def test_a_folder_of_other_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "some.parquet").touch()
    with (
        pytest.raises(OutputError, match="the folder has files and is not a Delta table"),
        LakeTable.opened(spark, config(tmp_path), schema(spark, SCHEMA)),
    ):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["some.parquet"]


def test_a_location_of_hadoop_is_left_to_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    """Without Hadoop's S3 classes the error names them; no local folder `s3a:` appears."""
    with (
        pytest.raises(Exception, match="S3AFileSystem not found"),
        LakeTable.opened(spark, config("s3a://bucket/lake"), schema(spark, SCHEMA)),
    ):
        pass
    assert not Path("s3a:").exists()


def test_times_of_all_years_are_the_same_to_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "times"
    times = ["0001-01-01 00:00:00", "1500-02-03 04:05:06.5", "2026-01-01 00:00:00.123456", "9999-12-31 23:59:59.999999"]
    written = spark.createDataFrame([(each,) for each in times], "text STRING").selectExpr(
        "text", "to_timestamp(text) AS moment"
    )
    with LakeTable.opened(spark, config(path), written.schema) as table:
        table.write(written, APP, 0, accepting(4))
    found = spark.read.format("delta").load(str(path)).selectExpr("CAST(moment AS STRING) AS moment").collect()
    assert sorted(row["moment"] for row in found) == times
    delta = QueryBuilder().register("times", DeltaTable(str(path))).execute("SELECT moment FROM times")  # noqa: F841
    query = "SELECT strftime(moment AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S.%f') FROM"
    whole = [f"{text:0<26}" if "." in text else f"{text}.000000" for text in times]
    assert sorted(row[0] for row in duckdb.sql(f"{query} delta").fetchall()) == whole
    files = DeltaTable(str(path)).file_uris()
    assert sorted(row[0] for row in duckdb.sql(f"{query} read_parquet({files!r})").fetchall()) == whole


def test_a_session_without_statistics_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    option = "spark.databricks.delta.stats.collect"
    spark.conf.set(option, "false")
    try:
        with (
            pytest.raises(ConfigError, match=f"^{option} must be true: a batch is checked against the rows that its"),
            LakeTable.opened(spark, config(tmp_path / "t"), schema(spark, SCHEMA)),
        ):
            pass
    finally:
        spark.conf.unset(option)
    assert not (tmp_path / "t").exists()


def counted_columns(path: Path) -> set[str]:
    """Return the columns of which the newest commit's files have least values."""
    (newest,) = sorted((path / "_delta_log").glob("*.json"))[-1:]
    adds = [json.loads(line)["add"] for line in newest.read_text().splitlines() if '"add":' in line]
    return {name for add in adds for name in json.loads(add["stats"]).get("minValues", {})}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"id", "_partition", "_offset"}),
        ({"partition_by": ["day"]}, {"id", "_partition", "_offset"}),
        ({"statistics": ["day", "_topic"]}, {"day", "_topic"}),
        ({"statistics": 2}, {"id", "day"}),
        ({"statistics": -1}, {"id", "day", "_topic", "_partition", "_offset"}),
        ({"statistics": 0}, set()),
        ({"statistics": []}, set()),
        ({"mode": "upsert", "keys": ["day"]}, {"id", "day", "_partition", "_offset"}),
    ],
)
def test_columns_with_statistics(spark: SparkSession, tmp_path: Path, given: dict, expected: set[str]) -> None:
    """Columns that are null in all rows have no least value."""
    with LakeTable.opened(spark, config(tmp_path, **given), schema(spark, SCHEMA)) as table:
        table.write(rows(spark, 1), APP, 0, accepting(1))
    assert counted_columns(tmp_path) == expected


def test_statistics_of_a_table_that_is_there(spark: SparkSession, tmp_path: Path) -> None:
    """They stay without the option, and ours are for new columns, too. The option changes them."""
    places = {"_partition", "_offset"}
    steps = [
        (SCHEMA, {}, {"id", *places}),
        (f"at DATE, `a.b` STRUCT<`x-y` INT, z STRING>, {SCHEMA}", {}, {"id", "at", "a.b", *places}),
        (SCHEMA, {"statistics": ["day"]}, {"day"}),
        (SCHEMA, {}, {"day"}),
        (SCHEMA, {"statistics": 1}, {"id"}),
        (f"name STRING, {SCHEMA}", {}, {"id"}),
    ]
    for number, (text, given, expected) in enumerate(steps):
        batch = rows(spark, number).withColumns({"at": F.lit(date(2026, 1, 31)), "name": F.lit("n")})
        batch = batch.withColumn("a.b", F.struct(F.lit(1).alias("x-y"), F.lit("z").alias("z")))
        names = schema(spark, text).names
        with LakeTable.opened(spark, config(tmp_path, **given), schema(spark, text)) as table:
            table.write(batch.select(*(f"`{name}`" for name in names)), APP, number, accepting(1))
        assert counted_columns(tmp_path) == expected
    assert ids(spark, tmp_path) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("other", "no column 'other' to have statistics of"), ("done", "Delta has no statistics of 'done', a boolean")],
)
def test_statistics_that_there_cannot_be(spark: SparkSession, tmp_path: Path, name: str, reason: str) -> None:
    columns = schema(spark, f"done BOOLEAN, {SCHEMA}")
    with (
        pytest.raises(ConfigError, match=rf"^sinks\.delta {tmp_path}: {reason}$"),
        LakeTable.opened(spark, config(tmp_path, statistics=[name]), columns),
    ):
        pass
