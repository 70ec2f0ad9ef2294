"""The last state of each key in PostgreSQL: later is what its source says, and values that no event has stay."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from pyspark.sql import DataFrame  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402, N812
from support.postgres import PostgresServer, postgres  # noqa: E402
from support.postgres_cases import Case, case  # noqa: E402

__all__ = ["case", "postgres"]

MARK, BASE64 = "__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
ROW = "struct<id: bigint, name: string, photo: binary, data: array<string>>"
UPSERT: dict[str, Any] = {"mode": "upsert", "keys": ["id"]}
DEBEZIUM: dict[str, Any] = {**UPSERT, "envelope": "debezium"}


def events(case: Case, *rows: tuple) -> DataFrame:
    """Return change events (op, before, after, key); a row of a table is (id, name, photo, data)."""
    frame = case.frame(f"op string, before {ROW}, after {ROW}, id bigint, _deleted boolean", *rows)
    return frame.withColumn("_key", F.struct("id")).withColumn("lsn", F.col("_offset") + 100).drop("id")


def change(op: str, row: tuple | None, before: tuple | None = None) -> tuple:
    return (op, before, row, (row or before or (1,))[0], False)


def test_change_events_insert_update_delete_and_change_keys(case: Case) -> None:
    first = events(
        case,
        change("r", (1, "Ann", b"a", ["x"])),
        change("c", (2, "Bob", None, None)),
        change("c", (3, "Cy", None, None)),
        change("u", (2, "Bo", None, []), (2, "Bob", None, None)),
        change("d", None, (3, None, None, None)),
        (None, None, None, 3, True),  # its tombstone
        change("m", None),
    )
    assert case.write(first, 0, **DEBEZIUM) == 0
    assert case.stored() == [("1", "Ann", "\\x61", '["x"]', "100"), ("2", "Bo", "\\N", "[]", "103")]
    # A change of a key is a deletion and a creation. Replica identity NOTHING has no row before: the key says which.
    second = events(
        case, change("d", None, (1, None, None, None)), change("c", (9, "Ann", b"a", None)), ("d", None, None, 2, False)
    )
    assert case.write(second, 1, **DEBEZIUM) == 0
    assert case.stored("id, name") == [("9", "Ann")]


def test_values_that_debezium_does_not_know_stay(case: Case, postgres: PostgresServer) -> None:
    """Over batches and in one, of columns of other types than text, and not over a deletion."""
    postgres.run(f"CREATE TABLE {case.table} (id bigint PRIMARY KEY, name text, photo bytea, data jsonb)")
    columns = {**DEBEZIUM, "columns": ["id", "name", "photo", "data"]}
    unknown = (MARK, MARK.encode(), [MARK])

    def stored(number: int, *rows: tuple) -> list[tuple[str, ...]]:
        assert case.write(events(case, *rows), number, **columns) == 0
        return case.stored()

    create = change("c", (1, "Ann", b"p", ["x"]))
    assert stored(0, create, change("u", (1, *unknown))) == [("1", "Ann", "\\x70", '["x"]')]
    assert stored(1, change("u", (1, f'"{MARK}"', b"q", [MARK]))) == [("1", "Ann", "\\x71", '["x"]')]
    newer = [
        change("u", (1, "Anne", MARK.encode(), [])),
        change("u", (1, *unknown)),
        change("u", (1, BASE64, b"r", [BASE64])),
    ]
    assert stored(2, *newer) == [("1", "Anne", "\\x72", "[]")]
    again = [change("u", (1, "lost", b"s", [])), change("d", None, (1, None, None, None)), change("c", (1, *unknown))]
    assert stored(3, *again) == [("1", "\\N", "\\N", "\\N")]
    assert stored(4, change("u", (7, *unknown))) == [("1", "\\N", "\\N", "\\N"), ("7", "\\N", "\\N", "\\N")]


def test_a_change_that_the_database_refuses_is_a_letter_and_the_one_before_stays(
    case: Case, postgres: PostgresServer
) -> None:
    postgres.run(
        f"CREATE TABLE {case.table} (id bigint PRIMARY KEY, name text CHECK (name <> 'no'), photo bytea NOT NULL)"
    )
    rows = [
        change("c", (1, "a", b"1", None)),
        change("u", (1, "no", b"2", None)),
        change("u", (1, MARK, b"3", None)),
        change("u", (2, "b", MARK.encode(), None)),  # no row has its photo
        change("d", None, (None, None, None, None)),
    ]
    frame = events(case, *rows).withColumn("_key", F.when(F.col("_offset") == 4, F.lit(None)).otherwise(F.col("_key")))
    assert case.write(frame, 0, **DEBEZIUM, columns=["id", "name", "photo"]) == 3
    assert case.stored() == [("1", "a", "\\x33")]
    assert sorted((offset, rule) for offset, rule, _ in case.letters.written) == [
        (1, "constraint"),
        (3, "constraint"),
        (4, "null_column"),
    ]


def test_rows_replace_earlier_ones_of_their_source_only(case: Case) -> None:
    """By `order_by`, in any batches and partitions; the offset decides between equal ones."""
    schema = "id bigint, name string, at bigint, part int"
    options = {**UPSERT, "order_by": ["at", "part"]}

    def stored(number: int, *rows: tuple) -> list[tuple[str, ...]]:
        case.write(case.frame(schema, *rows), number, **options)
        return case.stored("name, at, part")

    assert stored(0, (1, "a", 5, 1), (1, "older", 4, 9), (1, "older", 5, 0)) == [("a", "5", "1")]
    assert stored(1, (1, "older", 5, 0)) == [("a", "5", "1")]
    assert stored(2, (1, "equal", 5, 1), (1, "b", 5, 1)) == [("b", "5", "1")]
    assert stored(3, (1, "unknown", None, 1)) == [("unknown", "\\N", "1")]
    assert stored(4, (1, "c", 7, 0), (1, "no place", None, 0), (1, "d", 6, 0), (1, "e", 3, 0)) == [("d", "6", "0")]
    assert stored(5, (1, "unknown", None, 0), (1, "again", 1, 0)) == [("again", "1", "0")]


def test_any_division_into_batches_ends_in_the_same_state(case: Case) -> None:
    """Random changes, deletions and marks of four keys, against a model that takes one after the other."""
    draw = random.Random(5)
    changes = []
    for lsn in range(60):
        key = draw.randrange(4)
        if draw.random() < 0.2:
            changes.append((lsn, "d", (key, None, None, None)))
        else:
            name = MARK if draw.random() < 0.4 else f"n{lsn}"
            changes.append((lsn, "u", (key, name, None, None)))
    model: dict[int, str | None] = {}
    for _, op, (key, name, *_) in changes:
        if op == "d":
            model.pop(key, None)
        else:
            model[key] = model.get(key) if name == MARK else name
    number = 0
    while changes:
        size = draw.randrange(1, 25)
        rows = [change(op, row if op == "u" else None, row) for _, op, row in changes[:size]]
        first = changes[0][0]
        frame = events(case, *rows).withColumn("lsn", F.col("_offset") + first)
        case.write(frame, number, **DEBEZIUM, order_by=["lsn"], columns=["id", "name", "lsn"])
        changes, number = changes[size:], number + 1
    assert case.stored("id, name") == [(str(key), name or "\\N") for key, name in sorted(model.items())]


def test_an_older_change_gives_no_value_to_a_newer_one_that_has_none(case: Case) -> None:
    """A change that came late is older than the table's row, and the one after it does not know the value."""
    options = {**UPSERT, "order_by": ["lsn"], "columns": ["id", "name", "lsn"]}

    def write(number: int, *rows: tuple) -> None:
        assert case.write(case.frame("id bigint, name string, lsn bigint", *rows), number, **options) == 0

    write(0, (1, "a", 10), (2, "a", 10))
    write(1, (1, "old", 5), (1, MARK, 12), (2, "old", 5), (2, "new", 11), (2, MARK, 12))
    assert case.stored() == [("1", "a", "12"), ("2", "new", "12")]


def test_a_replayed_row_replaces_none_of_which_it_is_not_known_to_be_later(case: Case) -> None:
    """The table has no places, and `order_by` has the same value or none in the table."""
    place = "named_struct('topic', 'orders', 'partition', 0, 'offset', 0L, 'timestamp', _timestamp)"
    options = {**UPSERT, "order_by": ["at"], "columns": ["id", "name", "at"]}

    def rows(*rows: tuple) -> DataFrame:
        return case.frame("id bigint, name string, at bigint", *rows)

    case.write(rows((1, "new", 5), (2, "new", None)), 0, **options)
    replayed = rows((1, "old", 5), (2, "old", 4), (3, "lost", 5)).withColumn("_replayed", F.expr(place))
    assert case.write(replayed, 1, **options) == 0
    assert case.stored("id, name") == [("1", "new"), ("2", "new"), ("3", "lost")]


def test_a_replayed_row_of_another_partition_is_placed_by_time_in_one_batch(case: Case) -> None:
    """The offsets of two partitions, or of a topic before it was created again, say nothing about each other."""
    options = {**UPSERT, "columns": ["id", "name", "_topic", "_partition", "_offset", "_timestamp"]}
    place = "if(p is not null, named_struct('topic', 'orders', 'partition', p, 'offset', o, 'timestamp', at), null)"

    def rows(*rows: tuple) -> DataFrame:
        """Return rows (id, name, and the partition, offset and day of a replayed one), all of January 31."""
        frame = case.frame("id bigint, name string, p int, o bigint, day int", *rows)
        frame = frame.withColumn("at", F.make_timestamp(F.lit(2026), F.lit(1), "day", F.lit(12), F.lit(0), F.lit(0)))
        return frame.withColumn("_replayed", F.expr(place)).drop("p", "o", "day", "at")

    batch = rows((1, "new", None, None, None), (1, "old", 1, 900, 7), (2, "a", None, None, None), (2, "b", 0, 0, 30))
    sink = case.sink(batch, **options)
    sink.check()
    assert sink.write(batch, replace(case.place(0), commit={"created_again": []}), None) == 0
    assert case.stored("id, name") == [("1", "new"), ("2", "a")]
    batch = rows((1, "newer", None, None, None), (1, "old", 0, 900, 7), (2, "c", None, None, None))
    assert sink.write(batch, replace(case.place(1), commit={"created_again": ["orders"]}), None) == 0
    assert case.stored("id, name") == [("1", "newer"), ("2", "c")]


def test_a_change_event_that_came_back_replaces_no_later_row(case: Case) -> None:
    """The table has no places of its rows, and the log's position is enough."""
    place = "named_struct('topic', 'orders', 'partition', 0, 'offset', 0L, 'timestamp', _timestamp)"
    options = {**DEBEZIUM, "order_by": ["lsn"], "columns": ["id", "name", "lsn"]}

    def came_back(*rows: tuple, lsn: int | None) -> DataFrame:
        return events(case, *rows).withColumn("lsn", F.lit(lsn).cast("bigint")).withColumn("_replayed", F.expr(place))

    case.write(events(case, change("c", (1, "new", None, None))), 0, **options)
    assert case.write(came_back(change("u", (1, "old", None, None)), lsn=99), 1, **options) == 0
    assert case.write(came_back(change("d", None, (1, None, None, None)), lsn=99), 2, **options) == 0
    assert case.stored() == [("1", "new", "100")]
    assert case.write(came_back(change("u", (1, "newer", None, None)), lsn=101), 3, **options) == 0
    assert case.write(came_back(change("u", (1, "unknown", None, None)), lsn=None), 4, **options) == 1
    assert case.stored() == [("1", "newer", "101")]
    assert [rule for _, rule, _ in case.letters.written] == ["replayed"]
