"""Rows in a real PostgreSQL: each once, whichever step of a batch its driver died after."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(200)]

from pyspark.sql import functions as F  # noqa: E402, N812
from spark_etl.errors import ConfigError, OutputError, RunError  # noqa: E402
from spark_etl.sinks.postgres.connection import Connection, Database  # noqa: E402
from spark_etl.sinks.postgres.sink import Postgres, StagingError  # noqa: E402
from spark_etl.sinks.postgres.table import Table  # noqa: E402
from support.postgres import PASSWORD, USER, postgres  # noqa: E402
from support.postgres_cases import AT, case  # noqa: E402

__all__ = ["case", "postgres"]


def test_a_table_is_made_and_holds_every_type(case, postgres):
    rows = case.frame(
        "id bigint, n int, price decimal(10,2), x double, ok boolean, day date, at timestamp, raw binary, name string,"
        " tags array<string>, place struct<city:string,zip:int>",
        (1, 2, Decimal("3.50"), 0.1, True, AT.date(), AT, b"\x00\xff", "é\\", ["a", None], ("Ghent", 9000)),
        (2, *(None,) * 10),
    )
    assert case.write(rows) == 0
    types = "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attnum > 0 AND attrelid = "
    assert postgres.rows(f"{types}'{case.table}'::regclass") == [
        ("id", "bigint"),
        ("n", "integer"),
        ("price", "numeric(10,2)"),
        ("x", "double precision"),
        ("ok", "boolean"),
        ("day", "date"),
        ("at", "timestamp with time zone"),
        ("raw", "bytea"),
        ("name", "text"),
        ("tags", "jsonb"),
        ("place", "jsonb"),
    ]
    first, second = case.stored("id, n, price, x, ok, day, at AT TIME ZONE 'UTC', raw, name, tags, place")
    assert first[:9] == ("1", "2", "3.50", "0.1", "t", "2026-01-31", "2026-01-31 12:00:00", "\\x00ff", "é\\")
    assert [json.loads(text) for text in first[-2:]] == [["a", None], {"city": "Ghent", "zip": 9000}]
    assert second == ("2", *("\\N",) * 10)
    assert case.batches() == [(f"etl/{case.pipeline}/query", "0", "2")]


def test_a_time_without_zone_is_in_utc(case, postgres):
    postgres.run(f"CREATE TABLE {case.table} (at timestamp, more int DEFAULT 7)")
    case.write(case.frame("at timestamp", (AT,)))
    assert case.stored() == [("2026-01-31 12:00:00", "7")]


def test_a_batch_that_is_written_again_changes_nothing(case):
    rows = case.frame("id bigint", (1,), (2,))
    case.write(rows, 0)
    case.write(rows, 0)
    case.write(rows, 1)
    case.write(rows, 0)
    assert case.stored() == [("1",), ("1",), ("2",), ("2",)]
    assert case.batches() == [(f"etl/{case.pipeline}/query", "1", "2")]


def test_upsert_keeps_the_last_row_of_a_key(case):
    schema = "id bigint, region string, n int"
    case.write(case.frame(schema, (1, "a", 1), (1, "b", 2), (1, "a", 3)), 0, mode="upsert", keys=["id", "region"])
    case.write(case.frame(schema, (1, "b", 4), (2, "a", 5)), 1, mode="upsert", keys=["id", "region"])
    assert case.stored(order="1, 2") == [("1", "a", "3"), ("1", "b", "4"), ("2", "a", "5")]


def test_upsert_deletes_by_the_key_of_the_record(case):
    keep = case.frame("id bigint, n int, _deleted boolean", (1, 1, False), (2, 1, False), (3, 1, None))
    case.write(keep, 0, mode="upsert", keys=["id"])
    # An expression may give a deletion a value in the key's column: the record's key counts.
    gone = case.frame("id bigint, n int, _deleted boolean", (1, None, True), (3, None, True), (3, 5, False))
    key = F.when(gone["id"] == 1, "2").otherwise(gone["id"].cast("string"))
    case.write(gone.withColumn("_key", key), 1, mode="upsert", keys=["id"])
    assert case.stored() == [("1", "1"), ("3", "5")]


def test_a_table_named_with_its_schema_is_the_same_one(case):
    rows = case.frame("id bigint", (1,))
    case.write(rows)
    name, case.table = case.table, f"public.{case.table}"
    case.write(rows)
    case.table = name
    assert case.stored() == [("1",)]


@pytest.mark.parametrize(
    ("name", "reason"), [("etl_offset", "a name of the staging table's own"), ("c" * 64, "longer than the 63 bytes")]
)
def test_a_column_that_a_table_cannot_have_is_named(case, name, reason):
    with pytest.raises(ConfigError, match=reason):
        case.sink(case.frame(f"{name} bigint", (1,))).check()


def test_two_pipelines_create_a_table_in_turn(case, postgres):
    rows = case.frame("id bigint", (1,))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: case.sink(rows).check(), range(8))) == [None] * 8


def test_a_key_of_several_columns_deletes(case):
    schema = "a bigint, b string, _deleted boolean"
    key = F.expr("named_struct('a', 1L, 'b', 'x')")
    rows = case.frame(schema, (1, "x", False), (1, "y", False)).withColumn("_key", key)
    case.write(rows, 0, mode="upsert", keys=["a", "b"])
    case.write(case.frame(schema, (None, None, True)).withColumn("_key", key), 1, mode="upsert", keys=["a", "b"])
    assert case.stored() == [("1", "y")]


class DeathError(Exception):
    """The driver's death at one place of the program."""


def die(*_arguments: object) -> None:
    raise DeathError


STEPS = {
    "before staging": (Postgres, "_new_staging"),
    "staging is empty": (Database, "append"),
    "staged, not committed": (Postgres, "_commit"),
    "in the transaction": (Table, "moves"),
    "before its commit": (Connection, "commit"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_dies_between_the_steps_loses_and_doubles_nothing(case, step):
    first, rows = case.frame("id bigint", (1,)), case.frame("id bigint", (2,), (3,))
    case.write(first, 0)
    sink = case.sink(rows)
    sink.check()
    commits = []

    def second(connection: Connection, real: Callable[[Connection], None] = Connection.commit) -> None:
        commits.append(connection)
        real(connection) if len(commits) == 1 else die()  # the first one is the staging table's

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*STEPS[step], second if step == "before its commit" else die)
        with pytest.raises(DeathError):
            sink.write(rows, case.place(1), None)
    assert case.stored() == [("1",)]
    assert [batch for _, batch, _ in case.batches()] == ["0"]
    sink.write(rows, case.place(1), None)
    assert case.stored() == [("1",), ("2",), ("3",)]
    assert [batch for _, batch, _ in case.batches()] == ["1"]
    assert case.staging() == []


def test_an_earlier_driver_that_goes_on_is_excluded(case, monkeypatch):
    """A JVM outlived its driver. The next driver drops the first one's staging table, and so that commit fails."""
    rows = case.frame("id bigint", (1,), (2,))
    earlier, later = case.sink(rows), case.sink(rows)
    earlier.check()
    later.check()
    real = Postgres._commit

    def overtaken(self, *arguments):
        monkeypatch.setattr(Postgres, "_commit", real)
        later.write(rows, case.place(0), None)
        real(self, *arguments)

    monkeypatch.setattr(Postgres, "_commit", overtaken)
    with pytest.raises(OutputError, match=r'^PostgreSQL: ERROR: relation "etl_staging_\w+" does not exist[^\n]*$'):
        earlier.write(rows, case.place(0), None)
    assert case.stored() == [("1",), ("2",)]


def test_of_two_commits_of_a_batch_the_second_changes_nothing(case, monkeypatch):
    """Both had staged their rows; the second did not see the first one's number yet."""
    rows = case.frame("id bigint", (1,), (2,))
    case.write(rows, 0)
    sink = case.sink(rows)
    sink.check()
    monkeypatch.setattr(Postgres, "holds", lambda *_: False)
    sink.write(rows, case.place(0), None)
    assert case.stored() == [("1",), ("2",)]


def test_rows_that_a_task_staged_twice_fail_the_batch(case):
    rows = case.frame("id bigint", (1,), (2,))
    sink = case.sink(rows)
    sink.check()
    real = Database.append

    def twice(self, frame, table):
        real(self, frame, table)
        real(self, frame, table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "append", twice)
        with pytest.raises(StagingError, match=rf"^{case.table}: 2 rows to write, 4 staged$"):
            sink.write(rows, case.place(0), None)
    assert case.stored() == []
    sink.write(rows, case.place(0), None)
    assert case.stored() == [("1",), ("2",)]


def test_rows_that_no_column_holds_become_dead_letters(case, postgres):
    postgres.run(f"CREATE TABLE {case.table} (id bigint UNIQUE, name text NOT NULL, tags jsonb)")
    rows = case.frame(
        "id bigint, name string, tags array<string>",
        (1, "a", []),
        (None, "b", []),
        (3, None, []),
        (4, "zero\0", []),
        (5, "c", ["\0"]),
    )
    assert case.write(rows, mode="upsert", keys=["id"]) == 4
    assert case.stored("id, name") == [("1", "a")]
    where = f"table {case.table} cannot hold the row: "
    assert sorted(case.letters.written) == [
        (1, "null_column", where + "id is null"),
        (2, "null_column", where + "name is null"),
        (3, "zero_byte", where + "name has the character U+0000"),
        (4, "zero_byte", where + "tags has the character U+0000"),
    ]


@pytest.mark.parametrize(
    ("table", "options", "reason"),
    [
        ("(id date, name text)", {}, "the column id is date, and rows have bigint, which never fits: PostgreSQL: "),
        ("(id bigint, name name)", {}, "the column name is name, which cuts texts: make it text"),
        ("(other int)", {}, "the table has no column id to write to"),
        ("(id bigint, name text, must int NOT NULL)", {}, "the column must is NOT NULL, and no row has it"),
        ("(id bigint, name text)", {"mode": "upsert", "keys": ["id"]}, "upsert needs a unique index on exactly (id)"),
        ("(id bigint GENERATED ALWAYS AS IDENTITY, name text)", {}, "the table has no column id to write to"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_at_start(case, postgres, table, options, reason):
    postgres.run(f"CREATE TABLE {case.table} {table}")
    sink = case.sink(case.frame("id bigint, name string", (1, "a")), **options)
    with pytest.raises(ConfigError) as refused:
        sink.check()
    assert str(refused.value).startswith(f"sink {case.table}: {reason}")


def test_chosen_columns_can_be_ours(case):
    case.write(case.frame("id bigint, name string", (5, "a")), columns=["id", "_offset", "_key"])
    assert case.stored() == [("5", "0", "k")]


def test_a_server_that_refuses_is_one_line_without_the_password(case):
    rows = case.frame("id bigint", (1,))
    with pytest.raises(OutputError, match=rf'^PostgreSQL: FATAL: password authentication failed for user "{USER}"$'):
        case.sink(rows, password="secret-of-another").check()
    with pytest.raises(RunError, match=r"^PostgreSQL: Connection to 127.0.0.1:1 refused[^\n]*$"):
        case.sink(rows, url="jdbc:postgresql://127.0.0.1:1/x").check()
    assert PASSWORD not in repr(case.sink(rows)._config)


def test_a_replayed_record_replaces_no_later_row(case):
    """In one batch and over batches. A table without the places of its rows cannot tell: a dead letter."""
    place = "named_struct('topic', 'orders', 'partition', 0, 'offset', at, 'timestamp', _timestamp)"
    columns = ["id", "name", "_topic", "_partition", "_offset", "_timestamp"]

    def batch(*rows):
        """Return rows (id, name, offset before its replay)."""
        frame = case.frame("id bigint, name string, at bigint", *rows)
        return frame.withColumn("_replayed", F.expr(f"if(at is null, null, {place})")).drop("at")

    upsert = {"mode": "upsert", "keys": ["id"]}
    case.write(batch(*((i, "first", None) for i in range(4))), 0, columns=columns, **upsert)
    replays = batch(
        (0, "older", -1), (1, "newer", 7), (2, "b", None), (2, "before b", 1), (3, "same", 3), (4, "new", 0)
    )
    assert case.write(replays, 1, columns=columns, **upsert) == 0
    expected = [("0", "first", "0"), ("1", "newer", "7"), ("2", "b", "2"), ("3", "first", "3"), ("4", "new", "0")]
    assert case.stored("id, name, _offset") == expected
    case.table += "_plain"
    assert case.write(replays, 1, **upsert) == 5
    assert case.stored("id, name") == [("2", "b")]
    assert {rule for _, rule, _ in case.letters.written} == {"replayed"}
