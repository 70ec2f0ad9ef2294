"""Types of columns in tables that are there before the pipeline: a row fits as it is, or becomes a dead letter."""

from __future__ import annotations

from decimal import Decimal

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(200)]

from pyspark.sql import functions as F  # noqa: E402, N812
from spark_etl.errors import ConfigError  # noqa: E402
from spark_etl.sinks.postgres.sink import AlteredError  # noqa: E402
from support.postgres import postgres  # noqa: E402
from support.postgres_cases import AT, case  # noqa: E402

__all__ = ["case", "postgres"]

NO_TIME = "not only a time of day"
#: Type of the rows, type of the column, a value and how it is stored, a value that does not fit, part of the reason.
PAIRS = [
    ("string", "varchar(3)", "é💡b", "é💡b", "abcd", "value too long for type character varying(3)"),
    ("string", "varchar(2)", "ab", "ab", "ab ", "value too long for type character varying(2)"),
    ("string", "char(2)", "ab", "ab", "abc", "value too long for type character(2)"),
    ("string", "short", "ab", "ab", "abc", "value too long for type character varying(2)"),
    ("string", "uuid", *["8f2c1d0a-0000-4000-8000-000000000001"] * 2, "8f2c", 'type uuid: "8f2c"'),
    ("string", "mood", "glad", "glad", "cross", 'invalid input value for enum mood: "cross"'),
    ("string", "inet", "10.0.0.1", "10.0.0.1", "10.0.0", "type inet"),
    ("string", "date", "2026-01-31", "2026-01-31", "2026-02-30", "out of range"),
    ("string", "date", "2026-01-31T02:00:00+02:00", "2026-01-31", "2026-01-31T02:00:00Z", "has a time of day"),
    ("string", "date", None, "\\N", "today", "is a time of the writing"),
    ("string", "date", None, "\\N", "01/02/2026", "out of range"),
    ("string", "timestamptz", "2026-01-31T12:00+02:00", "2026-01-31 10:00:00+00", "noon", "timestamp with time zone"),
    ("string", "timestamp", "2026-01-31T12:00+02:00", "2026-01-31 10:00:00", " NOW ", "is a time of the writing"),
    ("string", "time", "12:30:05.5", "12:30:05.5", "2026-01-31 12:30", NO_TIME),
    ("string", "time", None, "\\N", "12:30+02:00", NO_TIME),
    ("string", "timetz", "12:30+02:00", "12:30:00+02", "12:30 PM", NO_TIME),
    ("string", "interval", "1 day 02:00", "1 day 02:00:00", "a while", "type interval"),
    ("string", "jsonb", '{"a": 1}', '{"a": 1}', "{", "type json"),
    ("string", "numeric(4,1)", "12.34", "12.3", "1234.5", "numeric field overflow"),
    ("string", "integer", "12", "12", "1.5", "type integer"),
    ("string", "boolean", "yes", "t", "perhaps", "type boolean"),
    ("string", "money", "1.5", "$1.50", "1,5", "type numeric"),
    ("string", "tsvector", "a b", "'a' 'b'", "a:b:c", "syntax error in tsvector"),
    ("string", "integer[]", "{1,2}", "{1,2}", "[1,2]", "malformed array literal"),
    ("bigint", "integer", -(2**31), "-2147483648", 2**31, "out of range"),
    ("bigint", "smallint", 32_767, "32767", 32_768, "out of range"),
    ("bigint", "serial", 7, "7", 2**32 + 1, "out of range"),
    ("bigint", "numeric(20)", 2**63 - 1, str(2**63 - 1), None, ""),
    ("bigint", "numeric(4,1)", 999, "999.0", 1_000, "numeric field overflow"),
    ("bigint", "double precision", 2, "2", None, ""),
    ("bigint", "varchar(2)", 12, "12", 123, "value too long for type character varying(2)"),
    ("bigint", "boolean", 1, "t", 2, "type boolean"),
    ("bigint", "positive", 1, "1", 0, 'violates check constraint "positive_check"'),
    ("double", "numeric", 0.1 + 0.2, "0.30000000000000004", None, ""),
    ("double", "numeric(10,2)", 1.005, "1.01", 1e8, "numeric field overflow"),
    ("double", "real", 0.1, "0.1", 1e39, "out of range"),
    ("double", "money", 2.5, "$2.50", 1e18, "out of range"),
    ("double", "bigint", 1e15, "1000000000000000", 2.5, 'type bigint: "2.5"'),
    ("double", "integer", 2.0, "2", float("nan"), 'type integer: "NaN"'),
    ("decimal(10,2)", "numeric(12,2)", Decimal("1.25"), "1.25", None, ""),
    ("decimal(10,2)", "numeric(3,1)", Decimal("1.25"), "1.3", Decimal("99.99"), "numeric field overflow"),
    ("decimal(10,2)", "integer", Decimal("2.00"), "2", Decimal("2.01"), 'type integer: "2.01"'),
    ("timestamp", "timestamptz(3)", AT.replace(microsecond=999_600), "2026-01-31 12:00:01+00", None, ""),
    ("timestamp", "timestamp(6)", AT.replace(microsecond=1), "2026-01-31 12:00:00.000001", None, ""),
    ("timestamp", "date", AT.replace(hour=0), "2026-01-31", AT, "has a time of day"),
    ("timestamp", "text", AT, "2026-01-31 12:00:00+00", None, ""),
    ("timestamp_ntz", "timestamp(0)", AT, "2026-01-31 12:00:00", None, ""),
    ("timestamp_ntz", "timestamptz", AT, "2026-01-31 12:00:00+00", None, ""),
    ("date", "timestamptz", AT.date(), "2026-01-31 00:00:00+00", None, ""),
    ("binary", "text", b"\x00\xff", "\\x00ff", None, ""),
    ("array<string>", "varchar(2)[]", ["a", None, "{,"], '{a,NULL,"{,"}', ["abc"], "value too long"),
    ("array<array<bigint>>", "integer[]", [[1], [2]], "{{1},{2}}", [[2**31]], "out of range"),
    ("array<string>", "timestamp[]", ["2026-01-31T12:00+02:00"], '{"2026-01-31 10:00:00"}', ["now"], "time of the"),
    ("struct<a:bigint,b:string>", "pair", (1, "x"), "(1,x)", (2**31, "x"), "out of range"),
]
TYPES = (
    "CREATE TYPE mood AS ENUM ('glad', 'sad')",
    "CREATE DOMAIN short_text AS varchar(2)",
    "CREATE DOMAIN short AS short_text",
    "CREATE DOMAIN positive AS integer CONSTRAINT positive_check CHECK (VALUE > 0)",
    "CREATE TYPE pair AS (a integer, b text)",
)


@pytest.fixture(scope="module")
def types(postgres):
    postgres.run(*TYPES)


def test_every_type_takes_what_fits_and_refuses_the_rest(case, postgres, types):
    """One column for each pair. Row 0 has all good values; each other row has one value that does not fit."""
    declared = [f"c{number} {pair[1]}" for number, pair in enumerate(PAIRS)]
    postgres.run(f"CREATE TABLE {case.table} ({', '.join(declared)})")
    serial = next(number for number, pair in enumerate(PAIRS) if pair[1] == "serial")
    postgres.run(f"ALTER TABLE {case.table} ALTER c{serial} DROP NOT NULL")
    bad = [number for number, pair in enumerate(PAIRS) if pair[4] is not None]
    rows = [tuple(pair[2] for pair in PAIRS)]
    rows += [tuple(pair[4] if at == number else None for at, pair in enumerate(PAIRS)) for number in bad]
    schema = ", ".join(f"c{number} {pair[0]}" for number, pair in enumerate(PAIRS))
    assert case.write(case.frame(schema, *rows)) == len(bad)
    assert case.stored() == [tuple(pair[3] for pair in PAIRS)]
    letters = {offset: (rule, message) for offset, rule, message in case.letters.written}
    assert sorted(letters) == list(range(1, len(bad) + 1))
    for offset, number in enumerate(bad, 1):
        rule, message = letters[offset]
        assert PAIRS[number][5] in message, (PAIRS[number], message)
        assert rule == ("constraint" if PAIRS[number][1] == "positive" else "value")


def test_keys_are_compared_as_they_are_stored(case, postgres):
    """Two texts are one `numeric(4,1)`: the last row stays, and a deletion by a third text finds it."""
    upsert = {"mode": "upsert", "keys": ["k"]}
    postgres.run(f"CREATE TABLE {case.table} (k numeric(4,1) PRIMARY KEY, n smallint)")
    schema = "k string, n bigint, _deleted boolean"
    case.write(case.frame(schema, ("1.04", 1, False), ("1.01", 2, False), ("2", 3, False)), 0, **upsert)
    assert case.stored() == [("1.0", "2"), ("2.0", "3")]
    deletion = case.frame(schema, (None, 99_999, True)).withColumn("_key", F.lit("0.96"))
    assert case.write(deletion, 1, **upsert) == 0
    assert case.stored() == [("2.0", "3")]


def test_a_row_that_a_trigger_refuses_is_a_dead_letter(case, postgres):
    postgres.run(
        f"CREATE TABLE {case.table} (n int)",
        f"CREATE FUNCTION {case.table}_f() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF NEW.n = 2 THEN RAISE 'two is too many'; END IF; RETURN NEW; END $$",
        f"CREATE TRIGGER t BEFORE INSERT ON {case.table} FOR EACH ROW EXECUTE FUNCTION {case.table}_f()",
    )
    assert case.write(case.frame("n bigint", (1,), (2,), (3,))) == 1
    assert case.stored() == [("1",), ("3",)]
    assert case.letters.written == [(1, "constraint", f"table {case.table} refuses the row: two is too many")]


@pytest.mark.parametrize(
    ("kind", "column"),
    [("boolean", "integer"), ("timestamp", "time"), ("array<string>", "date"), ("double", "uuid"), ("binary", "jsonb")],
)
def test_a_type_that_no_value_fits_is_refused_at_start(case, postgres, kind, column):
    postgres.run(f"CREATE TABLE {case.table} (c {column})")
    with pytest.raises(ConfigError, match=f"the column c is {column}.*, and rows have {kind}, which never fits: "):
        case.sink(case.frame(f"c {kind}")).check()


def test_a_table_is_widened_as_far_as_the_file_says(case, postgres):
    postgres.run(f"CREATE TABLE {case.table} (id int PRIMARY KEY, a int NOT NULL, b bigint, c real)")
    rows = case.frame("id bigint, a bigint, b double, c double, more array<string>", (2**40, None, 0.1, 0.1, ["x"]))
    with pytest.raises(ConfigError, match="the table has no column more to write to"):
        case.write(rows, widen=["numbers", "nulls"])
    assert case.write(rows, widen=["numbers", "nulls", "columns"]) == 0
    assert case.stored() == [(str(2**40), "\\N", "0.1", "0.1", '["x"]')]
    case.table += "_exact"
    postgres.run(f"CREATE TABLE {case.table} (id bigint)", f"INSERT INTO {case.table} VALUES ({2**53 + 1})")
    with pytest.raises(ConfigError, match="id has integers beyond 9007199254740992, which a double cannot hold"):
        case.write(case.frame("id double", (0.5,)), widen=["numbers"])
    assert case.stored() == [(str(2**53 + 1),)]


def test_a_row_of_several_that_a_record_makes_is_refused_alone(case, postgres):
    postgres.run(f"CREATE TABLE {case.table} (id bigint, sku varchar(2), n int CHECK (n > 0))")
    rows = case.frame("id bigint, sku string, n bigint", (1, "a", 1), (1, "abc", 2), (1, "c", 0), (1, "d", 4))
    of_one = rows.withColumns({"_index": F.col("_offset").cast("int"), "_offset": F.lit(7)})
    assert case.write(of_one) == 2
    assert case.stored("sku, n") == [("a", "1"), ("d", "4")]
    assert sorted((offset, rule) for offset, rule, _ in case.letters.written) == [(7, "constraint"), (7, "value")]


def test_items_of_an_array_keep_their_spaces(case, postgres):
    postgres.run(f"CREATE TABLE {case.table} (id int PRIMARY KEY, a varchar(3)[], b char(2)[])")
    kinds = "id bigint, a array<string>, b array<string>"
    rows = [
        (1, ["abc", None, "é💡b"], ["ab"]),
        (2, ["ab  "], None),
        (3, None, ["a  "]),
        (4, None, None),
        (5, ["abcd"], []),
    ]
    mark = (1, ["__debezium_unavailable_value"], ["a"])
    assert case.write(case.frame(kinds, *rows, mark), mode="upsert", keys=["id"]) == 3
    assert case.stored() == [("1", "{abc,NULL,é💡b}", '{"a "}'), ("4", "\\N", "\\N")]
    messages = [message.partition("hold the row: ")[2] for _, _, message in sorted(case.letters.written)]
    long = "a: value too long for type character varying(3)[]"
    assert messages == [long, "b: value too long for type character(2)[]", long]


@pytest.mark.parametrize(
    ("kind", "column", "reason"),
    [
        ("array<string>", "name[]", "which cuts texts"),
        ("array<string>", '"char"[]', "which cuts texts"),
        ("struct<n:struct<n:string>>", "outer_of_name", "which cuts texts"),
        ("array<struct<n:struct<n:string>>>", "outer_of_name[]", "which cuts texts"),
        ("string", "interval day", "which cuts spans: make it interval"),
        ("struct<a:string,B:bigint>", "pair", "c is pair, which has no field B"),
        ("array<struct<a:string,more:bigint>>", "pair[]", r"c\[\] is pair, which has no field more"),
        ("struct<p:struct<z:bigint>>", "outer_of_pair", r"c\.p is pair, which has no field z"),
        ("map<string,string>", "pair", "rows have a map, which may have any names"),
    ],
)
def test_a_type_that_would_leave_out_a_part_is_refused_at_start(case, postgres, kind, column, reason):
    postgres.run(
        "DROP TYPE IF EXISTS outer_of_name, of_name, outer_of_pair, pair",
        "DROP DOMAIN IF EXISTS short_name",
        "CREATE DOMAIN short_name AS name",
        "CREATE TYPE of_name AS (n short_name)",
        "CREATE TYPE outer_of_name AS (n of_name)",
        "CREATE TYPE pair AS (a text, b int)",
        "CREATE TYPE outer_of_pair AS (p pair)",
        f"CREATE TABLE {case.table} (c {column})",
    )
    try:
        with pytest.raises(ConfigError, match=reason):
            case.sink(case.frame(f"c {kind}")).check()
    finally:
        postgres.run(f"DROP TABLE {case.table}")


@pytest.mark.parametrize("refused", [False, True])
def test_a_table_that_is_altered_during_a_run_is_compared_again(case, postgres, refused):
    postgres.run(f"CREATE TABLE {case.table} (id bigint CHECK (id < 9), x double precision, s text)")
    rows = case.frame(
        "id bigint, x double, s string", (1, 2.5, "a"), (2, 2.0, "abc  "), (9 if refused else 3, 3.0, "abc")
    )
    sink = case.sink(rows)
    sink.check()
    postgres.run(f"ALTER TABLE {case.table} ALTER x TYPE integer, ALTER s TYPE varchar(3)")
    with pytest.raises(AlteredError, match=f"table {case.table} was altered during the run"):
        sink.write(rows, case.place(0), None)
    assert (case.stored(), case.batches()) == ([], [])
    assert AlteredError.transient
    sink.check()
    assert sink.write(rows, case.place(0), None) == 3 - (not refused)
    assert case.stored() == ([] if refused else [("3", "3", "abc")])
