"""The target table of a PostgreSQL sink: its columns against those of the rows, and the statements that move rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_etl.config import PostgresSinkConfig
from spark_etl.decode import replayed
from spark_etl.errors import ConfigError
from spark_etl.lake import unchanged
from spark_etl.lake.changes import key_column
from spark_etl.sinks.aggregates import TIMES
from spark_etl.sinks.postgres import upsert
from spark_etl.sinks.postgres.columns import TableColumn, new_type, of_table
from spark_etl.sinks.postgres.connection import Connection
from spark_etl.sinks.postgres.upsert import quoted
from spark_etl.sinks.postgres.widening import widen
from spark_etl.sinks.rows import DELETED
from spark_etl.transform.explode import INDEX

#: The place of a staged row: its record, and its item of the record (-1: it is the record's only row).
PLACE, _DELETED = ("etl_topic", "etl_partition", "etl_offset", "etl_index"), "etl_deleted"
_OWN = (*PLACE, "etl_order", "etl_replayed", "etl_at", "etl_moved", _DELETED, *upsert.OWN)
NAME_MAX = 63
#: Days since 1970 of the first and the last date that a `date` holds (4713 BC, 5874897), and of the ten days that
#: JDBC's calendar lacks (1582-10-05 to -14). A timestamp of Spark ends before one of PostgreSQL does.
_DAYS_MIN, _DAYS_MAX, _LACKING = -2_440_550, 2_145_042_905, (-141_437, -141_428)
_DAY_MICROS = 86_400_000_000
#: Bytes of an entry of a unique index (PostgreSQL's BTMaxItemSize, pages of 8 KB) without its header, and those that
#: each key may need next to its value. PostgreSQL may compress an entry, but whether it will is not known before.
_INDEX_ENTRY_BYTES, _BYTES_OF_A_KEY = 2_704 - 16, 16
#: Words that PostgreSQL reads as the time of the moment: another one at each try.
_RELATIVE = r"(?i)now|today|tomorrow|yesterday"
_UNIQUE = """
SELECT string_agg(attname, ',' ORDER BY attname) FROM pg_index JOIN pg_attribute ON attrelid = indrelid
AND attnum = ANY (indkey) WHERE indrelid = to_regclass(?) AND indisunique AND indpred IS NULL AND indexprs IS NULL
GROUP BY indexrelid"""


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...]  # empty: append
    record_key: DataType | None  # of `_key`; None: deletions have their keys in the columns
    found: Mapping[str, TableColumn]  # all columns, as they were compared with the rows
    order_by: tuple[str, ...] = ()
    replays: bool = False  # whether rows have `_replayed`

    @classmethod
    def checked(
        cls,
        connection: Connection,
        config: PostgresSinkConfig,
        schema: StructType,
        *,
        record_key: DataType | None,
        replays: bool = False,
    ) -> "Table":
        """Create the table unless it exists, and compare. Raises ConfigError if a column or the keys do not fit."""
        name = quoted_name(config.table)
        check_columns(config.table, schema)
        if connection.value("SELECT to_regclass(?)", name) is None:
            connection.execute(_created(name, config, schema))
        found = of_table(connection, name)
        if config.widen and widen(connection, config, name, found, schema):
            found = of_table(connection, name)
        columns, others = [], dict(found)
        for field in schema:
            column = others.pop(field.name, None)
            if column is None or column.generated:
                raise ConfigError(
                    f"sink {config.table}: the table has no column {field.name} to write to (`columns` chooses)"
                )
            columns.append(replace(column, kind=field.dataType))
            columns[-1].check(connection, config.table)
        for other in others.values():
            if other.not_null and not other.generated:
                raise ConfigError(f"sink {config.table}: the column {other.name} is NOT NULL, and no row has it")
        keys = tuple(config.keys) if config.mode == "upsert" else ()
        if keys and ",".join(sorted(keys)) not in connection.column(_UNIQUE, name):
            raise ConfigError(f"sink {config.table}: upsert needs a unique index on exactly ({', '.join(keys)})")
        return cls(name, tuple(columns), keys, record_key, found, tuple(config.order_by), replays and bool(keys))

    def is_as_checked(self, connection: Connection) -> bool:
        """Return whether the table still has the columns that were compared with the rows."""
        return of_table(connection, self.name) == self.found

    @property
    def has_places(self) -> bool:
        """Whether the table has the place of each row's record."""
        return set(replayed.PLACE) <= {column.name for column in self.columns}

    @property
    def staging_columns(self) -> str:
        columns = [f"{quoted(column.name)} {column.staging_type}" for column in self.columns]
        places = zip(PLACE, ("text", "integer", "bigint", "integer"), strict=True)
        own = [f"{name} {kind}" for name, kind in places]
        order = ["etl_order bigint", "etl_at bigint", "etl_moved boolean", "etl_replayed boolean"]
        return ", ".join([*columns, *own, *order, "etl_deleted boolean", "etl_unchanged text"])

    def moves(
        self, staging: str, created_again: Sequence[str] = (), marked: Sequence[int] = (), replayed: bool = False
    ) -> Sequence[str]:
        """Return the statements that bring the staged rows into the table.

        `marked`: columns with marks. `replayed`: whether some rows are replayed ones.
        """
        if self.keys:
            return upsert.statements(self, staging, created_again, marked, replayed)
        names = ", ".join(quoted(column.name) for column in self.columns)
        values = ", ".join(column.moved for column in self.columns)
        return [f"INSERT INTO {self.name} ({names}) SELECT {values} FROM {staging}"]

    def marks(self, rows: Sequence[str]) -> dict[int, Column]:
        """Return whether a value is Debezium's mark of an unchanged one, by the number of each column that may be."""
        chosen = [*self.keys, *self.order_by]
        return {
            number: unchanged.marked(F.col(column.name), column.kind)
            for number, column in enumerate(self.columns)
            if self.keys and column.name in rows and column.may_be_unchanged(chosen)
        }


def staged(rows: DataFrame, table: Table) -> DataFrame:
    """Return the rows as a staging table has them."""
    deleted = F.coalesce(DELETED, F.lit(False)) if DELETED in rows.columns else None
    marks = table.marks(rows.columns)
    values = [_staged_value(column, table, deleted) for column in table.columns]
    for number, mark in marks.items():  # the mark is no value of the column's type in PostgreSQL
        values[number] = F.when(~mark, values[number])
    marked = F.concat_ws(",", *(F.when(mark, F.lit(str(number))) for number, mark in marks.items()))
    return rows.select(
        *(value.alias(column.name) for value, column in zip(values, table.columns, strict=True)),
        F.col("_topic").alias("etl_topic"),
        F.col("_partition").alias("etl_partition"),
        F.col("_offset").alias("etl_offset"),
        item(rows).alias("etl_index"),
        replayed.placed("_offset", table.replays).alias("etl_order"),
        F.unix_micros(replayed.placed("_timestamp", table.replays)).alias("etl_at"),
        (replayed.is_moved(()) if table.replays else F.lit(False)).alias("etl_moved"),
        replayed.is_replayed(table.replays).alias("etl_replayed"),
        (F.lit(False) if deleted is None else deleted).alias("etl_deleted"),
        F.when(marked != "", F.concat(F.lit(","), marked, F.lit(","))).alias("etl_unchanged"),
    )


def item(rows: DataFrame) -> Column:
    """Return the item of its record that a row is of; -1 for the record's only row."""
    return F.coalesce(F.col(INDEX), F.lit(-1)) if INDEX in rows.columns else F.lit(-1)


def unfit(table: Table, deletions: bool) -> Column:
    """Return why the table cannot hold a row, as a struct of rule and message; null if it can."""
    deleted = F.coalesce(DELETED, F.lit(False)) if deletions else F.lit(False)
    reason = F.when(F.lit(False), _reason("", ""))
    for column in table.columns:
        null = _value(column, table, deletions).isNull()
        if column.name in table.keys:
            reason = reason.when(null, _reason("null_column", f"{column.name} is null"))
        elif column.not_null:
            reason = reason.when(null & ~deleted, _reason("null_column", f"{column.name} is null"))
        zero = _has_zero(column, _text(column, table, deletions))
        if zero is not None:
            reason = reason.when(zero, _reason("zero_byte", f"{column.name} has the character U+0000"))
        if column.staging_type == "text":
            text = _without_mark(column, table, _text(column, table, deletions))
            if column.length is not None:
                message = f"{column.name}: value too long for type {column.sized}"
                long = _is_too_long(column, table, text, column.length)
                reason = reason.when(long & ~deleted, _reason("value", message))
            if column.reads_times:
                message = f"{column.name} is a time of the writing: now, today, tomorrow or yesterday"
                reason = reason.when(F.rlike(text, F.lit(_RELATIVE)) & ~deleted, _reason("value", message))
        day = _day(column, _value(column, table, deletions))
        if day is not None:
            beyond = ~day.between(_DAYS_MIN, _DAYS_MAX) | day.between(*_LACKING)
            message = f"{column.name} is before 4713 BC, after 5874897 or from 1582-10-05 to 1582-10-14"
            reason = reason.when(beyond, _reason("out_of_range", message))
    if table.replays and not table.has_places:
        message = f"it was replayed, and without the columns {', '.join(replayed.PLACE)} it may replace a later row"
        unordered = reduce(or_, (F.col(name).isNull() for name in table.order_by), F.lit(not table.order_by))
        reason = reason.when(replayed.is_replayed(True) & unordered, _reason("replayed", message))
    sizes = [F.octet_length(_text(column, table, deletions)) for column in table.columns if _is_long_key(column, table)]
    if sizes:
        limit = _INDEX_ENTRY_BYTES - _BYTES_OF_A_KEY * len(table.keys)
        message = f"the keys ({', '.join(table.keys)}) have more than {limit} bytes"
        reason = reason.when((sum(sizes, F.lit(0)) > limit) & ~deleted, _reason("key_too_long", message))
    return reason


def _has_zero(column: TableColumn, text: Column) -> Column | None:
    """Return whether a text has U+0000, which `jsonb` holds in no form; None for a column that holds every value."""
    if not column.nested:
        return F.contains(text, F.lit("\0")) if column.staging_type == "text" else None
    if column.base != "jsonb":
        return None
    escape = "\\u0000"  # of U+0000; with one more backslash before it, of a backslash
    return F.contains(text, F.lit(escape)) & F.rlike(text, F.lit(r"(^|[^\\])(\\\\)*\\u0000"))


def _is_too_long(column: TableColumn, table: Table, text: Column, length: int) -> Column:
    """Return whether a text, or one in an array, has more characters: PostgreSQL would cut spaces at its end."""
    if not column.base.endswith("[]"):
        return F.char_length(text) > length
    if not isinstance(column.kind, ArrayType) or not isinstance(column.kind.elementType, StringType):
        return F.lit(False)
    items = _without_mark(column, table, F.col(column.name))
    return F.exists(items, lambda each: F.coalesce(F.char_length(each) > length, F.lit(False)))


def _is_long_key(column: TableColumn, table: Table) -> bool:
    """Return whether the column is a key whose values may have thousands of bytes."""
    return column.name in table.keys and (column.nested or isinstance(column.kind, StringType | BinaryType))


def _without_mark(column: TableColumn, table: Table, text: Column) -> Column:
    """Return a text, or an array, null for Debezium's mark of an unchanged value, which is not stored."""
    if not table.keys or not column.may_be_unchanged([*table.keys, *table.order_by]):
        return text
    return F.when(~unchanged.marked(F.col(column.name), column.kind), text)


def _day(column: TableColumn, value: Column) -> Column | None:
    """Return the day of a date or time, in days since 1970; None for other columns."""
    match column.kind:
        case DateType():
            return F.unix_date(value)
        case TimestampType():
            return F.floor(F.unix_micros(value) / F.lit(_DAY_MICROS))
    return None


def quoted_name(table: str) -> str:
    """Return the name of a table, perhaps with its schema, as SQL has it."""
    return ".".join(quoted(part) for part in table.split("."))


def _value(column: TableColumn, table: Table, deletions: bool) -> Column:
    """Return a row's value of a column. A deletion has its keys in the record's key."""
    value = F.col(column.name)
    if column.name in replayed.PLACE and table.replays:
        return replayed.placed(column.name, True)
    if not deletions or table.record_key is None or column.name not in table.keys:
        return value
    key = key_column(table.record_key, StructField(column.name, column.kind), table.keys)
    return F.when(F.coalesce(DELETED, F.lit(False)), key).otherwise(value)


def _text(column: TableColumn, table: Table, deletions: bool) -> Column:
    value = _value(column, table, deletions)
    if column.nested:
        return F.to_json(value, TIMES)
    return value.cast("string") if isinstance(column.kind, TimestampNTZType) else value


def _staged_value(column: TableColumn, table: Table, deleted: Column | None) -> Column:
    """Return a value as it is staged. PostgreSQL would read what a deletion has beside its keys."""
    value = _text(column, table, deleted is not None)
    if deleted is None or column.name in (*table.keys, *table.order_by, *replayed.PLACE):
        return value
    return F.when(~deleted, value)


def _reason(rule: str, message: str) -> Column:
    return F.struct(F.lit(rule).alias("rule"), F.lit(message).alias("message"))


def _created(name: str, config: PostgresSinkConfig, schema: StructType) -> str:
    columns = [f"{quoted(field.name)} {new_type(field.dataType)}" for field in schema]
    if config.mode == "upsert":
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, config.keys))})")
    return f"CREATE TABLE {name} ({', '.join(columns)})"


def check_columns(table: str, rows: StructType) -> None:
    """Raise ConfigError for columns of rows that no table of PostgreSQL takes, by their name or their type."""
    for field in rows:
        _check_name(table, field.name)
        try:
            new_type(field.dataType)
        except ConfigError as error:
            raise ConfigError(f"sink {table}: the column {field.name} is {error}") from None


def _check_name(table: str, name: str) -> None:
    if name in _OWN or name.startswith(upsert.OWN_PREFIXES):
        raise ConfigError(f"sink {table}: the column {name} has a name of the staging table's own columns")
    if len(name) > NAME_MAX:  # names are ASCII
        raise ConfigError(f"sink {table}: the column {name} is longer than the {NAME_MAX} bytes that PostgreSQL keeps")
