"""The statements of `mode: upsert`: of staged rows, the last change of each key, which the table takes if it is later.

The rules are those of lake/changes.py. The last change of a key is that of the highest place, or of the highest
`order_by`. One without a value of `order_by` is later than all of a smaller place. A change after it need not be
later than the row that the table had before. Changes that are older than the table's row are left out first, so no
other one gets a value of theirs. Without places in the table, a replayed row is older unless `order_by` says
that it is later.

Debezium marks a value as unchanged (lake/unchanged.py): it is the one of the change before it in the batch, else the
table's. The staged row has null there, and the column's number in `etl_unchanged`.

Keys are compared as the table has them: `citext` and some collations hold texts equal that differ.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_etl.sinks.postgres.table import Table

#: The order of staged rows, and the same backwards: the last one of a key counts.
ORDER = "etl_order, etl_offset, etl_topic DESC, etl_partition DESC"
_LAST = "etl_order DESC, etl_offset DESC, etl_topic, etl_partition"
#: Columns of these statements.
OWN = ("etl_unchanged", "etl_alive", "etl_number", "etl_newest", "etl_turn", "etl_time", "etl_older", "etl_renewed")
OWN_PREFIXES = ("etl_known_", "etl_keep_")
_PLACE = "etl_order, etl_offset, etl_topic, etl_partition"


def statements(
    table: "Table", staging: str, created_again: Sequence[str], marked: Sequence[int], replayed: bool
) -> Sequence[str]:
    """Return the statements for the staged rows, whose columns of the numbers `marked` have marks.

    `replayed`: some of them are replayed ones. These are compared by time if their topic is in `created_again`: its
    offsets began again.
    """
    keys = _names(table.keys)
    last = _last(table, staging, created_again, marked, replayed)
    same = " AND ".join(f"target.{quoted(key)} = last.{quoted(key)}" for key in table.keys)
    others = [quoted(column.name) for column in table.columns if column.name not in table.keys]
    changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
    action = f"DO UPDATE SET {changes}" if others else "DO NOTHING"
    stored = f" LEFT JOIN {table.name} AS target ON {same}" if marked else ""
    values = [f"last.{quoted(column.name)}" for column in table.columns]
    for number in marked:
        kept = f"target.{quoted(table.columns[number].name)}"
        values[number] = f"CASE WHEN last.etl_keep_{number} THEN {kept} ELSE {values[number]} END"
    return [
        f"DELETE FROM {table.name} AS target USING ({last}) AS last WHERE {same} AND last.etl_deleted",
        f"INSERT INTO {table.name} ({_names([column.name for column in table.columns])})"
        f" SELECT {', '.join(values)} FROM ({last}) AS last{stored} WHERE NOT last.etl_deleted"
        f" ON CONFLICT ({keys}) {action}",
    ]


def _last(table: "Table", staging: str, created_again: Sequence[str], marked: Sequence[int], replayed: bool) -> str:
    """Return the query of the last change of each key, with `etl_keep_N`: whether the table's value stays."""
    keys = _names(table.keys)
    images = ", ".join(f"{column.moved} AS {quoted(column.name)}" for column in table.columns)
    taken = f"{images}, etl_deleted, etl_replayed"
    if not (table.order_by or marked or replayed):
        return f"SELECT DISTINCT ON ({keys}) {taken} FROM {staging} ORDER BY {keys}, {_LAST}"
    rows, order = f"SELECT {taken}, etl_unchanged, {_PLACE}, etl_at, etl_moved FROM {staging}", _LAST
    if replayed:
        rows, order = _placed_in_time(rows, keys, created_again)
    rank, unordered = order, "false"
    if table.order_by:
        values = [quoted(name) for name in table.order_by]
        unordered = f"({' OR '.join(f'{value} IS NULL' for value in values)})"
        later = f"(PARTITION BY {keys} ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        alive = f"count(*) FILTER (WHERE {unordered}) OVER {later} = 0 AS etl_alive"
        rows = f"SELECT *, {alive} FROM ({rows}) AS placed"
        highest = ", ".join(f"{value} DESC NULLS LAST" for value in values)
        rank = f"etl_alive DESC, {unordered}, {highest}, {order}"
    if table.order_by or replayed:
        rows = _without_older(table, rows, created_again, unordered)
    rows = f"SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY {rank}) AS etl_number FROM ({rows}) AS ranked"
    if not marked:
        return f"SELECT * FROM ({rows}) AS numbered WHERE etl_number = 1"
    known = ", ".join(
        f"min(etl_number) FILTER (WHERE etl_deleted OR coalesce(strpos(etl_unchanged, ',{number},') = 0, true))"
        f" OVER (PARTITION BY {keys}) AS etl_known_{number}"
        for number in marked
    )
    chosen = [
        f"{f'of_{number}' if number in marked else 'first'}.{quoted(column.name)}"
        for number, column in enumerate(table.columns)
    ]
    joins = " ".join(
        f"LEFT JOIN known AS of_{number} ON of_{number}.etl_number = first.etl_known_{number} AND "
        + " AND ".join(f"of_{number}.{quoted(key)} = first.{quoted(key)}" for key in table.keys)
        for number in marked
    )
    absent = ", ".join(f"first.etl_known_{number} IS NULL AS etl_keep_{number}" for number in marked)
    return (
        f"WITH known AS MATERIALIZED (SELECT *, {known} FROM ({rows}) AS numbered)"
        f" SELECT {', '.join(chosen)}, first.etl_deleted, {absent}"
        f" FROM known AS first {joins} WHERE first.etl_number = 1"
    )


def _placed_in_time(rows: str, keys: str, created_again: Sequence[str]) -> tuple[str, str]:
    """Return staged rows, and their order: time places those whose offset says nothing about those of the others."""
    again = ", ".join(f"'{topic}'" for topic in created_again)
    moved = f"(etl_moved OR etl_replayed AND etl_topic IN ({again}))" if again else "etl_moved"
    first = f"(PARTITION BY {keys} ORDER BY {moved}, {_LAST})"
    newest = f"first_value(CASE WHEN NOT {moved} THEN etl_at END) OVER {first}"
    turn = f"CASE WHEN NOT {moved} OR etl_newest IS NULL THEN 1 WHEN etl_at > etl_newest THEN 2 ELSE 0 END"
    time = f"CASE WHEN {moved} THEN etl_at ELSE 0 END"
    rows = f"SELECT *, {newest} AS etl_newest FROM ({rows}) AS staged"
    rows = f"SELECT *, {turn} AS etl_turn, {time} AS etl_time FROM ({rows}) AS timed"
    return rows, f"etl_turn DESC, etl_time DESC, {_LAST}"


def _without_older(table: "Table", rows: str, created_again: Sequence[str], unordered: str) -> str:
    """Leave out the changes that are not later than the table's row of the key.

    One after an `unordered` change that is later stays: that change took the place of the row.
    """
    same = " AND ".join(f"target.{quoted(key)} = newest.{quoted(key)}" for key in table.keys)
    older = "newest.etl_replayed"
    if table.has_places:
        there = " AND ".join(f"target.{name} = newest.{name}" for name in ("_topic", "_partition"))
        again = "".join(f" AND newest._topic <> '{topic}'" for topic in created_again)
        older = f"CASE WHEN {there}{again} THEN target._offset >= newest._offset"
        older = f"(newest.etl_replayed AND {older} ELSE target._timestamp >= newest._timestamp END)"
    if table.order_by:
        names = list(map(quoted, table.order_by))
        known = " AND ".join(f"target.{name} IS NOT NULL AND newest.{name} IS NOT NULL" for name in names)
        row, change = (f"ROW({', '.join(f'{side}.{name}' for name in names)})" for side in ("target", "newest"))
        decided = f"{row} > {change} OR ({row} = {change} AND {older})"
        older = f"CASE WHEN {known} THEN {decided} ELSE {older} END"
    older = f"EXISTS (SELECT FROM {table.name} AS target WHERE {same} AND {older})"  # mutant: older-row-left-out
    rows, stays = f"SELECT *, {older} AS etl_older FROM ({rows}) AS newest", "NOT etl_older"
    if table.order_by:
        renewed = f"bool_or({unordered} AND etl_alive AND NOT etl_older) OVER (PARTITION BY {_names(table.keys)})"
        rows, stays = (
            f"SELECT *, {renewed} AS etl_renewed FROM ({rows}) AS aged",
            f"{stays} OR etl_alive AND etl_renewed",
        )
    return f"SELECT * FROM ({rows}) AS judged WHERE {stays}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
