"""Mode upsert: the table holds the last state of each key, for changes in any order and number of batches."""

from datetime import datetime
from pathlib import Path

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(1200)]

from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_etl.config.sinks import DeltaSinkConfig  # noqa: E402
from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.lake import LakeTable, changes  # noqa: E402

APP = "etl/customers/8f2c1d0a"
PLACE = "_topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
GONE = "_deleted BOOLEAN"
PLAIN = f"id BIGINT, name STRING, _key STRING, {PLACE}, {GONE}, _raw_value BINARY"
ROW = "STRUCT<id: INT, name: STRING>"
EVENT = f"before {ROW}, after {ROW}, op STRING, ts_ms BIGINT, day STRING, _key STRUCT<id: INT>, {PLACE}, {GONE}"
Change = tuple[int, int | None, str | None, str, bool | None]  # offset, id, name, key, deleted


def config(path: Path, **more: object) -> DeltaSinkConfig:
    document = {"type": "delta", "path": str(path), "mode": "upsert", "keys": ["id"], **more}
    return DeltaSinkConfig.model_validate(document)


def plain(spark: SparkSession, *rows: Change) -> DataFrame:
    values = [(i, name, key, "c", 0, offset, None, deleted, None) for offset, i, name, key, deleted in rows]
    return spark.createDataFrame(values, PLAIN)


def events(spark: SparkSession, *rows: tuple) -> DataFrame:
    """Return change events (offset, op, before, after), op "" for a null value; the key's id is that of the row."""
    values = [
        (before, after, op or None, None, "d1", ((after or before or (9,))[0],), "c", 0, offset, None, op == "")
        for offset, op, before, after in rows
    ]
    return spark.createDataFrame(values, EVENT)


def found(spark: SparkSession, path: Path, *columns: str) -> list[tuple]:
    table = spark.read.format("delta").load(str(path))
    return [
        tuple(bytes(each) if isinstance(each, bytearray) else each for each in row)
        for row in table.select(*columns).orderBy("id").collect()
    ]


def counted(expected: int):
    def accept(rows: int) -> dict:
        assert rows == expected
        return {"rows_out": rows}

    return accept


def test_the_last_change_of_a_key_wins(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "customers"
    first = plain(
        spark,
        (4, 1, "d", "1", None),
        (1, 1, "a", "1", None),
        (2, 2, "b", "2", False),
        (3, None, None, "2", True),
        (0, 3, "c", "3", None),
    )
    with LakeTable.opened(spark, config(path), first.schema) as table:
        commit = table.write(first, APP, 0, counted(5))
        assert (commit.version, commit.rows) == (1, 5)
        assert found(spark, path, "id", "name", "_offset") == [(1, "d", 4), (3, "c", 0)]
        older_and_newer = plain(
            spark, (3, 1, "stale", "1", None), (5, None, None, "3", True), (6, 2, "back", "2", None)
        )
        table.write(older_and_newer, APP, 1, counted(3))
        metadata = dict(table.last_metadata() or {})
        assert (metadata["operation"], metadata["rows_out"]) == ("batch", 3)
    with LakeTable.opened(spark, config(path), first.schema) as table:
        assert (table.holds(APP, 1), table.holds(APP, 2)) == (True, False)
    assert found(spark, path, "id", "name", "_key") == [(1, "d", "1"), (2, "back", "2")]
    assert spark.read.format("delta").load(str(path)).columns == [
        *("id", "name", "_key", "_topic", "_partition", "_offset", "_timestamp"),
    ]


def test_change_events_of_debezium(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "customers"
    sink = config(path, envelope="debezium", partition_by=["day"])
    first = events(
        spark,
        (0, "r", None, (1, "one")),
        (1, "c", None, (2, "two")),
        (2, "u", (2, "two"), (2, "zwei")),
        (3, "c", None, (3, "three")),
        (4, "d", (3, None), None),
        (5, "", None, None),  # a tombstone
        (6, "m", None, None),
    )
    with LakeTable.opened(spark, sink, first.schema) as table:
        table.write(first, APP, 0, counted(7))
        assert found(spark, path, "id", "name", "day") == [(1, "one", "d1"), (2, "zwei", "d1")]
        second = events(spark, (7, "d", (1, "one"), None), (8, "c", None, (1, "again")), (9, "d", (2, None), None))
        table.write(second, APP, 1, counted(3))
        assert found(spark, path, "id", "name", "day") == [(1, "again", "d1")]


def test_what_debezium_marks_as_unchanged_stays(spark: SparkSession, tmp_path: Path) -> None:
    """In one batch and over batches, also where only a create that the same batch has knows the value."""
    row = "STRUCT<id: INT, name: STRING, raw: BINARY, tags: ARRAY<STRING>, codes: ARRAY<BIGINT>, n: INT>"
    kind = f"before {row}, after {row}, op STRING, _key STRUCT<id: INT>, {PLACE}, {GONE}"
    mark, base64 = "__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    path = tmp_path / "t"
    marks = [(mark, mark.encode(), [mark], [*mark.encode()]), (f'"{mark}"', None, [], None), (base64, b"", None, [])]

    def batch(first: int, *rows: tuple) -> DataFrame:
        """Return change events (op, the row without its id)."""
        values = [
            (None, (1, *after) if after else None, op, (1,), "c", 0, first + number, None, False)
            for number, (op, after) in enumerate(rows)
        ]
        return spark.createDataFrame(values, kind)

    create = batch(0, ("c", ("Ann", b"photo", ["a", "b"], [1], 1)))
    batches = [
        create,
        batch(1, ("u", (*marks[0], 2))),
        batch(2, ("u", ("Anne", b"other", *marks[0][2:], 3)), ("u", (*marks[0], 4)), ("u", (*marks[1], 5))),
        batch(5, ("u", (*marks[2], 6))),
        batch(
            6, ("u", ("lost", *marks[0][1:], 7)), ("d", None), ("c", ("Bo", b"new", [], [7], 8)), ("u", (*marks[0], 9))
        ),
    ]
    with LakeTable.opened(spark, config(path, envelope="debezium"), create.schema) as table:
        stored = []
        for number, each in enumerate(batches):
            table.write(each, APP, number, counted(each.count()))
            stored += found(spark, path, "name", "raw", "tags", "codes", "n")
    assert stored == [
        ("Ann", b"photo", ["a", "b"], [1], 1),
        ("Ann", b"photo", ["a", "b"], [1], 2),
        ("Anne", None, [], None, 5),
        ("Anne", b"", None, [], 6),
        ("Bo", b"new", [], [7], 9),
    ]


def test_a_replayed_record_replaces_no_later_row(spark: SparkSession, tmp_path: Path) -> None:
    """In one batch and over batches; by time if its topic was created again, or the key was in another partition."""
    before = "STRUCT<topic: STRING, partition: INT, offset: BIGINT, timestamp: TIMESTAMP>"
    kind = f"id BIGINT, name STRING, _key STRING, {PLACE}, _replayed {before}"
    path, time = tmp_path / "t", [datetime(2026, 1, 1, hour) for hour in range(24)]

    def batch(*rows: tuple) -> DataFrame:
        """Return rows (id, name, offset, time, place before its replay)."""
        values = [(i, name, "k", "c", 0, offset, time[hour], place) for i, name, offset, hour, place in rows]
        return spark.createDataFrame(values, kind)

    first = batch((1, "new", 5, 5, None), (2, "old", 6, 6, None), (3, "a", 7, 7, None), (4, "a", 8, 8, None))
    replays = [
        (1, "older", 20, 20, ("c", 0, 4, time[4])),
        (2, "newer", 21, 20, ("c", 0, 9, time[9])),
        (3, "b", 10, 10, None),
        (3, "before b", 22, 20, ("c", 0, 9, time[9])),
        (4, "earlier, of another partition", 23, 20, ("c", 1, 900, time[7])),
        (5, "first", 24, 20, ("c", 0, 1, time[1])),
    ]
    with LakeTable.opened(spark, config(path), first.schema) as table:
        table.write(first, APP, 0, counted(4))
        table.write(batch(*replays), APP, 1, counted(6))
        rows = [(1, "new", 5), (2, "newer", 9), (3, "b", 10), (4, "a", 8), (5, "first", 1)]
        assert found(spark, path, "id", "name", "_offset") == rows
        again = batch((1, "of the topic before", 25, 21, ("c", 0, 900, time[3])))
        table.write(again, APP, 2, lambda _: {"created_again": ["c"]})
        assert found(spark, path, "id", "name", "_offset") == rows
        together = batch(
            *((1, "of this topic", 1, 10, None), (1, "of the topic before", 30, 21, ("c", 0, 900, time[3]))),
            *((2, "of this partition", 2, 10, None), (2, "before", 31, 21, ("c", 1, 900, time[7]))),
            *((3, "of this partition", 3, 10, None), (3, "later", 32, 21, ("c", 1, 0, time[11]))),
            (4, "of the topic before", 33, 21, ("c", 0, 900, time[7])),
            (4, "of this topic", 34, 21, ("c", 0, 4, time[9])),
        )
        table.write(together, APP, 3, lambda _: {"created_again": ["c"]})
        names = ["of this topic", "of this partition", "later", "of this topic", "first"]
        assert [name for (name,) in found(spark, path, "name")] == names


def test_columns_say_which_change_is_later(spark: SparkSession, tmp_path: Path) -> None:
    """In one batch and over batches; the place decides between equal ones, and about a row without a value."""
    before = "STRUCT<topic: STRING, partition: INT, offset: BIGINT, timestamp: TIMESTAMP>"
    kind = f"id BIGINT, name STRING, file STRING, pos BIGINT, _key STRING, {PLACE}, {GONE}, _replayed {before}"
    path, offsets = tmp_path / "t", iter(range(1_000))

    def stored(number: int, *rows: tuple) -> list[tuple]:
        """Write rows (name, file, position); no name is a null value."""
        values = [
            (name and 1, name, file, pos, "1", "c", 0, next(offsets), None, name is None, None)
            for name, file, pos in rows
        ]
        table.write(spark.createDataFrame(values, kind), APP, number, counted(len(rows)))
        return found(spark, path, "name", "file", "pos")

    sink = config(path, order_by=["file", "pos"])
    schema = spark.createDataFrame([], kind).schema
    with LakeTable.opened(spark, sink, schema) as table:
        first = stored(0, ("a", "log.2", 5), ("older", "log.1", 9), ("older", "log.2", 4))
        assert first == stored(1, ("older", "log.2", 4), ("older", "log.1", 7)) == [("a", "log.2", 5)]
        assert stored(2, ("equal", "log.2", 5), ("b", "log.2", 5)) == [("b", "log.2", 5)]
        assert stored(3, ("unknown", None, 1)) == [("unknown", None, 1)]
        assert stored(4, ("c", "log.3", 1), (None, None, None), ("d", "log.2", 2), ("e", "log.2", 1)) == [
            ("d", "log.2", 2)
        ]
        assert stored(5, (None, None, None)) == []
        assert stored(6, ("f", "log.9", 1)) == [("f", "log.9", 1)]
        assert stored(7, (None, None, None), ("again", "log.1", 1)) == [("again", "log.1", 1)]


def test_an_older_change_gives_no_value_to_a_newer_one_that_has_none(spark: SparkSession, tmp_path: Path) -> None:
    """A change that came late is older than the table's row, and the one after it does not know the value."""
    before = "STRUCT<topic: STRING, partition: INT, offset: BIGINT, timestamp: TIMESTAMP>"
    kind = f"id BIGINT, name STRING, lsn BIGINT, _key STRING, {PLACE}, {GONE}, _replayed {before}"
    mark, at = "__debezium_unavailable_value", datetime(2026, 1, 1)

    def batch(*rows: tuple) -> DataFrame:
        """Return changes (offset, id, name, lsn, offset before its replay); no name is a deletion."""
        values = [
            (i, name, lsn, str(i), "c", 0, offset, at, name is None, place and ("c", 0, place, at))
            for offset, i, name, lsn, place in rows
        ]
        return spark.createDataFrame(values, kind)

    first = batch((10, 1, "a", 10, None), (11, 2, "a", 10, None), (12, 3, "a", 10, None))
    second = batch(
        *((20, 1, "old", 5, None), (21, 1, mark, 12, None)),
        *((22, 2, "old", 5, 1), (23, 2, mark, 12, None)),
        *((24, 3, "new", 11, None), (25, 3, mark, 12, None)),
    )
    for name, options in {"ordered": {"order_by": ["lsn"]}, "placed": {}}.items():
        path = tmp_path / name
        rows = second if options else second.where("_offset > 21")
        with LakeTable.opened(spark, config(path, **options), first.schema) as table:
            table.write(first, APP, 0, counted(3))
            table.write(rows, APP, 1, counted(rows.count()))
        assert found(spark, path, "name", "lsn")[1:] == [("a", 12), ("new", 12)], name
    assert found(spark, tmp_path / "ordered", "name", "lsn")[0] == ("a", 12)


def test_rows_that_the_mode_cannot_use(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="envelope: debezium needs the fields op and after"):
        changes.target_schema(config(tmp_path, envelope="debezium"), plain(spark).schema)
    append = config(tmp_path, mode="append", keys=[])
    with pytest.raises(ConfigError, match="null_value: delete needs mode: upsert"):
        changes.target_schema(append, plain(spark).schema)
    with pytest.raises(ConfigError, match="'name' is a column of the pipeline and a field of after"):
        changes.target_schema(
            config(tmp_path, envelope="debezium"), spark.createDataFrame([], f"{EVENT}, name STRING").schema
        )
