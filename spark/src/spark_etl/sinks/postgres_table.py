"""The target table of a PostgreSQL sink: its columns against those of the rows, and the statements that move rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_etl.config import PostgresSinkConfig
from spark_etl.errors import ConfigError
from spark_etl.lake.changes import key_column
from spark_etl.sinks.aggregates import TIMES
from spark_etl.sinks.postgres_connection import Connection
from spark_etl.sinks.rows import DELETED

_PLACE, _DELETED = ("etl_topic", "etl_partition", "etl_offset"), "etl_deleted"
NAME_MAX = 63
#: Spark's type: the type of a new or staged column, and the types of existing columns that hold every value of it.
_FITTING: dict[type[DataType], tuple[str, ...]] = {
    StringType: ("text", "character varying", "citext"),
    BooleanType: ("boolean",),
    ByteType: ("smallint", "integer", "bigint", "numeric"),
    ShortType: ("smallint", "integer", "bigint", "numeric"),
    IntegerType: ("integer", "bigint", "numeric"),
    LongType: ("bigint", "numeric"),
    FloatType: ("real", "double precision"),
    DoubleType: ("double precision",),
    DateType: ("date",),
    TimestampType: ("timestamp with time zone", "timestamp without time zone"),
    BinaryType: ("bytea",),
    DecimalType: ("numeric",),
}
_NESTED = ("jsonb", "json", "text")  # arrays, maps and structs, as JSON
#: Days since 1970 of the first and the last date that a `date` holds (4713 BC, 5874897), and of the ten days that
#: JDBC's calendar lacks (1582-10-05 to -14). A timestamp of Spark ends before one of PostgreSQL does.
_DAYS_MIN, _DAYS_MAX, _LACKING = -2_440_550, 2_145_042_905, (-141_437, -141_428)
_DAY_MICROS = 86_400_000_000
#: Bytes of an entry of a unique index (PostgreSQL's BTMaxItemSize, pages of 8 KB) without its header, and those that
#: each key may need next to its value. PostgreSQL may compress an entry, but whether it will is not known before.
_INDEX_ENTRY_BYTES, _BYTES_OF_A_KEY = 2_704 - 16, 16
_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef, attgenerated <> '' OR attidentity = 'a',
CASE WHEN attcollation <> typcollation THEN format('%I.%I', nspname, collname) END
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid LEFT JOIN pg_collation ON pg_collation.oid = attcollation
LEFT JOIN pg_namespace ON pg_namespace.oid = collnamespace
WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
_UNIQUE = """
SELECT string_agg(attname, ',' ORDER BY attname) FROM pg_index JOIN pg_attribute ON attrelid = indrelid
AND attnum = ANY (indkey) WHERE indrelid = to_regclass(?) AND indisunique AND indpred IS NULL AND indexprs IS NULL
GROUP BY indexrelid"""


@dataclass(frozen=True)
class TableColumn:
    """A column that the sink writes."""

    name: str
    kind: DataType  # of the rows
    type: str  # of the table
    not_null: bool
    collation: str | None = None  # of the table, if it is not the type's

    @property
    def nested(self) -> bool:
        return type(self.kind) not in _FITTING

    def is_long_key(self, table: "Table") -> bool:
        """Return whether the column is a key whose values may have thousands of bytes."""
        return self.name in table.keys and (self.nested or isinstance(self.kind, StringType | BinaryType))

    @property
    def staging_type(self) -> str:
        return "text" if self.nested else _fitting(self.kind)[0]

    @property
    def moved(self) -> str:
        """The SQL expression that turns a staged value into the table's."""
        staged_name = quoted(self.name)
        if self.type == "timestamp without time zone":
            return f"{staged_name} AT TIME ZONE 'UTC'"
        collated = f" COLLATE {self.collation}" if self.collation is not None else ""
        return f"{staged_name}::{self.type}{collated}"


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...]  # empty: append
    record_key: DataType  # of `_key`

    @classmethod
    def checked(
        cls, connection: Connection, config: PostgresSinkConfig, schema: StructType, *, record_key: DataType
    ) -> "Table":
        """Create the table unless it exists, and compare. Raises ConfigError if a column or the keys do not fit."""
        name = ".".join(quoted(part) for part in config.table.split("."))
        for field in schema:
            _check_name(config.table, field.name)
        if connection.value("SELECT to_regclass(?)", name) is None:
            connection.execute(_created(name, config, schema))
        found = {row[0]: row for row in connection.rows(_COLUMNS, name)}
        columns = []
        for field in schema:
            _, type_, not_null, generated, collation = found.pop(field.name, (None,) * 5)
            if type_ is None or generated == "t":
                raise ConfigError(f"sink {config.table}: the table has no column {field.name} to write to")
            _check_type(config.table, field.name, field.dataType, type_)
            columns.append(TableColumn(field.name, field.dataType, type_, not_null == "t", collation))
        for other, _, needed, generated, _ in found.values():
            if needed == "t" and generated == "f":
                raise ConfigError(f"sink {config.table}: the column {other} is NOT NULL, and no row has it")
        keys = tuple(config.keys) if config.mode == "upsert" else ()
        if keys and ",".join(sorted(keys)) not in connection.column(_UNIQUE, name):
            raise ConfigError(f"sink {config.table}: upsert needs a unique index on exactly ({', '.join(keys)})")
        return cls(name, tuple(columns), keys, record_key)

    @property
    def staging_columns(self) -> str:
        columns = [f"{quoted(column.name)} {column.staging_type}" for column in self.columns]
        places = zip(_PLACE, ("text", "integer", "bigint"), strict=True)
        return ", ".join([*columns, *(f"{name} {kind}" for name, kind in places), "etl_deleted boolean"])

    def moves(self, staging: str) -> Sequence[str]:
        """Return the statements that bring the staged rows into the table.

        Keys are compared as the table has them: `citext` and some collations hold texts equal that differ.
        """
        names = ", ".join(quoted(column.name) for column in self.columns)
        values = ", ".join(column.moved for column in self.columns)
        if not self.keys:
            return [f"INSERT INTO {self.name} ({names}) SELECT {values} FROM {staging}"]
        keys = ", ".join(map(quoted, self.keys))
        images = ", ".join(f"{column.moved} AS {quoted(column.name)}" for column in self.columns)
        last = (
            f"SELECT DISTINCT ON ({keys}) {images}, etl_deleted FROM {staging}"
            f" ORDER BY {keys}, etl_offset DESC, etl_topic, etl_partition"
        )
        same = " AND ".join(f"target.{quoted(key)} = last.{quoted(key)}" for key in self.keys)
        others = [quoted(column.name) for column in self.columns if column.name not in self.keys]
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        action = f"DO UPDATE SET {changes}" if others else "DO NOTHING"
        return [
            f"DELETE FROM {self.name} AS target USING ({last}) AS last WHERE {same} AND last.etl_deleted",
            f"INSERT INTO {self.name} ({names}) SELECT {names} FROM ({last}) AS last WHERE NOT last.etl_deleted"
            f" ON CONFLICT ({keys}) {action}",
        ]


def staged(rows: DataFrame, table: Table) -> DataFrame:
    """Return the rows as a staging table has them."""
    deletions = DELETED in rows.columns
    deleted = F.coalesce(DELETED, F.lit(False)) if deletions else F.lit(False)
    return rows.select(
        *(_staged_value(column, table, deletions).alias(column.name) for column in table.columns),
        F.col("_topic").alias("etl_topic"),
        F.col("_partition").alias("etl_partition"),
        F.col("_offset").alias("etl_offset"),
        deleted.alias("etl_deleted"),
    )


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
        day = _day(column, _value(column, table, deletions))
        if day is not None:
            beyond = ~day.between(_DAYS_MIN, _DAYS_MAX) | day.between(*_LACKING)
            message = f"{column.name} is before 4713 BC, after 5874897 or from 1582-10-05 to 1582-10-14"
            reason = reason.when(beyond, _reason("out_of_range", message))
    sizes = [F.octet_length(_text(column, table, deletions)) for column in table.columns if column.is_long_key(table)]
    if sizes:
        limit = _INDEX_ENTRY_BYTES - _BYTES_OF_A_KEY * len(table.keys)
        message = f"the keys ({', '.join(table.keys)}) have more than {limit} bytes"
        reason = reason.when((sum(sizes, F.lit(0)) > limit) & ~deleted, _reason("key_too_long", message))
    return reason


def _has_zero(column: TableColumn, text: Column) -> Column | None:
    """Return whether a text has U+0000, which `jsonb` holds in no form; None for a column that holds every value."""
    if not column.nested:
        return F.contains(text, F.lit("\0")) if column.staging_type == "text" else None
    if column.type != "jsonb":
        return None
    escape = "\\u0000"  # of U+0000; with one more backslash before it, of a backslash
    return F.contains(text, F.lit(escape)) & F.rlike(text, F.lit(r"(^|[^\\])(\\\\)*\\u0000"))


def _day(column: TableColumn, value: Column) -> Column | None:
    """Return the day of a date or time, in days since 1970; None for other columns."""
    match column.kind:
        case DateType():
            return F.unix_date(value)
        case TimestampType():
            return F.floor(F.unix_micros(value) / F.lit(_DAY_MICROS))
    return None


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(column: TableColumn, table: Table, deletions: bool) -> Column:
    """Return a row's value of a column. A deletion has its keys in the record's key."""
    value = F.col(column.name)
    if not deletions or column.name not in table.keys:
        return value
    key = key_column(table.record_key, StructField(column.name, column.kind), table.keys)
    return F.when(F.coalesce(DELETED, F.lit(False)), key).otherwise(value)


def _text(column: TableColumn, table: Table, deletions: bool) -> Column:
    value = _value(column, table, deletions)
    return F.to_json(value, TIMES) if column.nested else value


def _staged_value(column: TableColumn, table: Table, deletions: bool) -> Column:
    return _text(column, table, deletions) if column.nested else _value(column, table, deletions)


def _reason(rule: str, message: str) -> Column:
    return F.struct(F.lit(rule).alias("rule"), F.lit(message).alias("message"))


def _fitting(kind: DataType) -> tuple[str, ...]:
    if isinstance(kind, DecimalType):
        return (f"numeric({kind.precision},{kind.scale})", "numeric")
    return _FITTING.get(type(kind), _NESTED)


def _created(name: str, config: PostgresSinkConfig, schema: StructType) -> str:
    columns = [f"{quoted(field.name)} {_new_type(field.dataType)}" for field in schema]
    if config.mode == "upsert":
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, config.keys))})")
    return f"CREATE TABLE {name} ({', '.join(columns)})"


def _new_type(kind: DataType) -> str:
    return _fitting(kind)[0]


def _check_name(table: str, name: str) -> None:
    if name in (*_PLACE, _DELETED):
        raise ConfigError(f"sink {table}: the column {name} has a name of the staging table's own columns")
    if len(name) > NAME_MAX:  # names are ASCII
        raise ConfigError(f"sink {table}: the column {name} is longer than the {NAME_MAX} bytes that PostgreSQL keeps")


def _check_type(table: str, name: str, kind: DataType, type_: str) -> None:
    allowed = _fitting(kind)
    if type_ not in allowed:
        raise ConfigError(
            f"sink {table}: the column {name} is {type_}, and rows have {kind.simpleString()}: it must be"
            f" {' or '.join(allowed)}"
        )
