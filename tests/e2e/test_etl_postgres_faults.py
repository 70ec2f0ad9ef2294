"""PostgreSQL that fails, and values that it compares or limits in other ways than Spark: no batch is half in."""

from __future__ import annotations

import random
import string

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(200)]

from pyspark.sql import functions as F  # noqa: E402, N812
from spark_etl.errors import EtlError, OutputError, RunError  # noqa: E402
from spark_etl.sinks.postgres import connection  # noqa: E402
from support.postgres import postgres  # noqa: E402
from support.postgres_cases import case  # noqa: E402

__all__ = ["case", "postgres"]

UPSERT = {"mode": "upsert", "keys": ["k"]}


@pytest.fixture(scope="module")
def folding(postgres):
    """The types of a column that compares texts without case."""
    postgres.run(
        "CREATE EXTENSION IF NOT EXISTS citext",
        "CREATE COLLATION folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    )
    return ("citext", "text COLLATE folding")


@pytest.mark.parametrize("number", [0, 1])
def test_keys_are_compared_as_the_table_has_them(case, postgres, folding, number):
    postgres.run(f"CREATE TABLE {case.table} (k {folding[number]} UNIQUE, n int)")
    case.write(case.frame("k string, n int", ("A", 1), ("b", 2), ("a", 3)), 0, **UPSERT)
    assert case.stored(order="n") == [("b", "2"), ("a", "3")]
    case.write(case.frame("k string, n int", ("B", 4)), 1, **UPSERT)
    assert case.stored(order="n") == [("a", "3"), ("b", "4")]
    deletion = case.frame("k string, n int, _deleted boolean", ("c", 5, False), (None, None, True))
    case.write(deletion.withColumn("_key", deletion["_key"].substr(2, 0)).na.replace("", "A", "_key"), 2, **UPSERT)
    assert case.stored(order="n") == [("b", "4"), ("c", "5")]


def test_an_object_can_be_a_key(case):
    schema = "k struct<a:int>, n int"
    case.write(case.frame(schema, ((1,), 1), ((1,), 2)), 0, **UPSERT)
    case.write(case.frame(schema, ((1,), 3), ((2,), 4)), 1, **UPSERT)
    assert case.stored(order="n") == [('{"a": 1}', "3"), ('{"a": 2}', "4")]


def test_keys_that_no_index_holds_become_dead_letters(case):
    draw = random.Random(1)
    longest = "".join(draw.choices(string.ascii_letters + string.digits + "#$%&()*+,-./:;<=>?@[]^_", k=2_672))
    schema = "k string, n int, _deleted boolean"
    rows = case.frame(schema, (longest, 1, False), (longest + "x", 2, False), ("a" * 10_000, 3, False), ("b", 4, False))
    assert case.write(rows, 0, **UPSERT) == 2
    assert case.stored(order="n") == [(longest, "1"), ("b", "4")]
    why = f"table {case.table} cannot hold the row: the keys (k) have more than 2672 bytes"
    assert sorted(case.letters.written) == [(n, "key_too_long", why) for n in (1, 2)]


def test_keys_of_several_columns_are_too_long_together(case):
    draw = random.Random(2)
    a, b = ("".join(draw.choices(string.ascii_letters + string.digits, k=1_328)) for _ in range(2))
    rows = case.frame("a string, b string, n int", (a, b, 1), (a, b + "x", 2))
    assert case.write(rows, 0, mode="upsert", keys=["a", "b"]) == 1
    assert case.stored("n") == [("1",)]


def test_times_that_no_column_holds_become_dead_letters(case, spark):
    times = ["-5000-01-01", "-4712-01-01", "1582-10-04", "1582-10-05", "1582-10-14", "1582-10-15", "+5881580-07-01"]
    values = ", ".join(f"('{each}', {number})" for number, each in enumerate(times))
    rows = spark.sql(
        f"SELECT CAST(day AS date) day, n, 'k' _key, 'orders' _topic, 0 _partition, CAST(n AS bigint) _offset,"
        f" now() _timestamp FROM VALUES {values} AS t(day, n)"
    )
    assert case.write(rows) == 4
    assert case.stored("n, day") == [("1", "4713-01-01 BC"), ("2", "1582-10-04"), ("5", "1582-10-15")]
    why = f"table {case.table} cannot hold the row: "
    why += "day is before 4713 BC, after 5874897 or from 1582-10-05 to 1582-10-14"
    assert sorted(case.letters.written) == [(n, "out_of_range", why) for n in (0, 3, 4, 6)]
    case.table += "_at"
    at = F.when(F.col("n") < 6, F.col("day")).cast("timestamp")  # Spark itself has no such time as the last one
    assert case.write(rows.withColumn("day", at).where("n < 6")) == 3
    assert case.stored("n") == [("1",), ("2",), ("5",)]


def test_a_zero_character_in_json_is_refused_only_where_it_cannot_be_held(case, postgres):
    postgres.run(f"CREATE TABLE {case.table} (n int, a json, b jsonb)")
    rows = case.frame(
        "n int, a array<string>, b array<string>",
        (1, ["\0"], ["\\u0000", "\\\\u0000"]),
        (2, [], ["\\\0"]),
        (3, [], ["\0"]),
    )
    assert case.write(rows) == 2
    assert case.stored() == [("1", '["\\u0000"]', '["\\\\u0000", "\\\\\\\\u0000"]')]
    assert [(offset, rule) for offset, rule, _ in sorted(case.letters.written)] == [(1, "zero_byte"), (2, "zero_byte")]


def test_infinities_and_the_ends_of_time(case, spark):
    values = "double('NaN') AS d, float('-Infinity') AS f, date'9999-12-31' AS day, date'0001-01-01' AS first"
    case.write(spark.sql(f"SELECT {values}, 'k' _key, 't' _topic, 0 _partition, 0L _offset, now() _timestamp"))
    assert case.stored() == [("NaN", "-Infinity", "9999-12-31", "0001-01-01")]


def test_old_times_are_the_same_on_a_host_in_another_zone(case, spark):
    times = ["0001-01-01 00:00:00", "1582-10-15 00:00:00", "1883-11-18 16:59:59", "1900-01-01 00:00:00.123456"]
    values = ", ".join(f"(timestamp'{each}Z', {number})" for number, each in enumerate(times))
    place = "'k' _key, 't' _topic, 0 _partition, CAST(n AS bigint) _offset, now() _timestamp"
    case.write(spark.sql(f"SELECT at, n, {place} FROM VALUES {values} AS t(at, n)"))
    assert case.stored("at AT TIME ZONE 'UTC'", order="n") == [(each,) for each in times]


def failure(case, rows, sink) -> EtlError:
    with pytest.raises(EtlError) as failed:
        sink.write(rows, case.place(0), None)
    assert "\n" not in str(failed.value)
    return failed.value


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("DROP TABLE {}", 'relation "{}" does not exist'),
        ("ALTER TABLE {} DROP COLUMN n", 'column "n" of relation "{}" does not exist'),
    ],
)
def test_a_table_that_changes_under_a_run_ends_it(case, postgres, change, reason):
    rows = case.frame("n int", (1,), (70_000,))
    sink = case.sink(rows)
    sink.check()
    postgres.run(change.format(case.table))
    failed = failure(case, rows, sink)
    assert type(failed) is OutputError
    assert str(failed).startswith(f"PostgreSQL: ERROR: {reason.format(case.table)}")
    assert case.batches() == []
    if "DROP TABLE" not in change:
        assert case.stored("count(*)") == [("0",)]


def test_what_may_pass_is_tried_again(case, postgres):
    """A lock that another session keeps, and a server without an answer, whose time limit is in the address."""
    rows = case.frame("n int", (1,))
    case.write(case.frame("n int", (0,)), 0)
    for limit, reason in {
        "options=-c%20lock_timeout=200": "ERROR: canceling statement due to lock timeout",
        "socketTimeout=1": "An I/O error occurred while sending to the backend. (SocketTimeoutException: Read timed ou",
    }.items():
        sink = case.sink(rows, url=f"{postgres.url}?{limit}")
        sink.check()
        with case.sink(rows)._database.connected() as other:
            other.execute(f"LOCK TABLE {case.table}")
            with pytest.raises(RunError) as failed:
                sink.write(rows, case.place(1), None)
            assert failed.value.transient
            assert str(failed.value).startswith(f"PostgreSQL: {reason}")
        assert case.stored() == [("0",)]
    sink.write(rows, case.place(1), None)
    assert case.stored() == [("0",), ("1",)]


def test_executors_meet_a_server_that_is_full(case, postgres):
    rows = case.frame("n int", (1,))
    sink = case.sink(rows)
    sink.check()
    database = sink._database
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_properties", {**database._properties, "user": "few"})
        postgres.run("CREATE ROLE few LOGIN CONNECTION LIMIT 0 PASSWORD 'postgres-secret'")
        with pytest.raises(RunError, match=r'^PostgreSQL: FATAL: too many connections for role "few"$') as failed:
            database.append(rows, "none")
    assert failed.value.transient


def test_a_server_that_never_answers_is_given_up(case):
    rows = case.frame("n int", (1,))
    assert case.sink(rows)._database._properties["socketTimeout"] == str(connection.ANSWER_SECONDS)
    assert connection.ANSWER_SECONDS <= 600


def test_an_address_in_letters_has_no_options(case):
    sink = case.sink(case.frame("n int", (1,)), url="jdbc:postgresql://a:1,b/shop?user=me&sslmode=disable")
    assert sink.name == f"postgres:a:1,b/shop/{case.table}"


def test_rows_of_another_address_are_named_apart(case):
    rows = case.frame("n int", (1,))
    names = {case.sink(rows, url=f"jdbc:postgresql://h/{name}").name for name in ("a", "b")}
    assert names == {f"postgres:h/a/{case.table}", f"postgres:h/b/{case.table}"}
