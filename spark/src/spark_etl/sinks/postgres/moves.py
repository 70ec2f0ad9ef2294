"""Moving staged rows to their table inside the transaction of the batch, and finding the rows that it refuses.

All rows go in one statement or two. The server may refuse them for the values of a row (`RowRefusedError`), and does
not refuse the same statements without a row. Then they are numbered in the order of their records and moved in halves,
each behind a savepoint. A half that is refused is divided again. One refused row of n costs about 2 log2(n) statements
more. Halves are moved in order, so that `upsert` ends with the last row of each key that the table takes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spark_etl.sinks.postgres.connection import Connection, RowRefusedError
from spark_etl.sinks.postgres.table import PLACE, Table
from spark_etl.sinks.postgres.upsert import ORDER


@dataclass(frozen=True, slots=True)
class Refused:
    """A staged row that the table does not take, by its place."""

    topic: str
    partition: int
    offset: int
    item: int
    rule: str
    reason: str


def moved(connection: Connection, table: Table, staging: str, again: Sequence[str]) -> None:
    """Move all rows; `again` are topics that were created again. RowRefusedError: the table refuses one."""
    marked = _marked(connection, staging) if table.keys else ()
    replayed = table.replays and connection.value(f"SELECT bool_or(etl_replayed) FROM {staging}") == "t"
    for statement in table.moves(staging, again, marked, replayed):
        connection.execute(statement)


def _marked(connection: Connection, staging: str) -> list[int]:
    """Return the numbers of the columns in which a staged row has a mark (upsert.py)."""
    found = connection.column(f"SELECT DISTINCT etl_unchanged FROM {staging} WHERE etl_unchanged IS NOT NULL")
    return sorted({int(number) for marks in found for number in str(marks).strip(",").split(",")})


def moved_in_parts(connection: Connection, table: Table, staging: str, again: Sequence[str]) -> list[Refused]:
    """Move the rows that the table takes, and return the others. RowRefusedError: it would not even take none."""
    numbered = f"{staging}_n"
    connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # one that waits for the commit would refuse the whole batch
    connection.execute(
        f"CREATE UNLOGGED TABLE {numbered} AS SELECT *, row_number() OVER (ORDER BY {ORDER}) AS etl_row FROM {staging}"
    )
    connection.execute(f"CREATE INDEX ON {numbered} (etl_row)")
    moved(connection, table, f"(SELECT * FROM {numbered} WHERE false) AS part", again)
    last = int(connection.value(f"SELECT count(*) FROM {numbered}") or 0)
    refused = list(_halved(connection, table, numbered, again, 1, last))
    connection.execute(f"DROP TABLE {numbered}")
    return refused


def _halved(
    connection: Connection, table: Table, numbered: str, again: Sequence[str], first: int, last: int
) -> Iterator[Refused]:
    if first > last:
        return
    part = f"(SELECT * FROM {numbered} WHERE etl_row BETWEEN {first} AND {last}) AS part"
    connection.execute("SAVEPOINT etl_part")
    try:
        moved(connection, table, part, again)
        connection.execute("RELEASE SAVEPOINT etl_part")
    except RowRefusedError as error:
        connection.execute("ROLLBACK TO SAVEPOINT etl_part")
        connection.execute("RELEASE SAVEPOINT etl_part")
        if first == last:
            row = connection.rows(f"SELECT {', '.join(PLACE)} FROM {numbered} WHERE etl_row = ?", first)[0]
            partition, offset, item = (int(each or 0) for each in row[1:])
            yield Refused(str(row[0]), partition, offset, item, error.rule, error.reason)
            return
        middle = (first + last) // 2
        yield from _halved(connection, table, numbered, again, first, middle)
        yield from _halved(connection, table, numbered, again, middle + 1, last)
