"""A column of a PostgreSQL table: how a row's value is staged, and the SQL that brings it into the column's type.

A value is staged in the type that a new column would have. For a column of another type PostgreSQL reads the value's
text, and every type of a column can be read from text. What is not of the type is an error of PostgreSQL's, and the row
a dead letter. So nothing is cut, and no number wraps around:

- the length of `varchar(n)` and `char(n)` is left to the INSERT, because a cast would cut a text;
- the other modifiers are part of the cast. So the keys of two rows compare as they are stored;
- `numeric(p,s)` rounds to its digits, `timestamptz(n)` to fractions of a second, `real` to its precision;
- a domain is left to the INSERT, too: the cast goes to the type under it;
- a fraction is no integer, and a time of day no date;
- times are in UTC, and so are texts without a zone; the transaction has set TimeZone (`SESSION`);
- arrays and composite types are read from JSON, all others from their text.

`now` and its like, which PostgreSQL would read as the time of writing, are refused by `unfit` in table.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import (
    ArrayType,
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
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from spark_etl.errors import ConfigError, OutputError
from spark_etl.lake import unchanged
from spark_etl.sinks.postgres.connection import Connection, RowRefusedError
from spark_etl.sinks.postgres.upsert import quoted

#: The settings of a batch's transaction, whatever those of the server are.
SESSION = "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL bytea_output = 'hex'"
#: Spark's type: the type of a new and of a staged column, and a text that such a value has in PostgreSQL.
_KINDS: dict[type[DataType], tuple[str, str | None]] = {
    StringType: ("text", None),  # any
    BooleanType: ("boolean", "true"),
    ByteType: ("smallint", "0"),
    ShortType: ("smallint", "0"),
    IntegerType: ("integer", "0"),
    LongType: ("bigint", "0"),
    FloatType: ("real", "0"),
    DoubleType: ("double precision", "0"),
    DateType: ("date", "2026-01-31"),
    TimestampType: ("timestamp with time zone", "2026-01-31 00:00:00+00"),
    BinaryType: ("bytea", "\\x00"),
}
#: The same of types that are staged as text: JSON, and a time without a zone, which JDBC would move.
_AS_TEXT: dict[type[DataType], tuple[str, str]] = {
    ArrayType: ("jsonb", "[]"),
    MapType: ("jsonb", "{}"),
    StructType: ("jsonb", "{}"),
    VariantType: ("jsonb", "{}"),
    TimestampNTZType: ("timestamp without time zone", "2026-01-31 00:00:00"),
}
_FRACTIONS = (FloatType, DoubleType, DecimalType)
_INTEGERS = ("smallint", "integer", "bigint")
_CUTTING = ("name", '"char"')  # types that cut a text
#: Whether a type has one of these inside: of an array, a composite type or a domain.
_CUTS_INSIDE = """
WITH RECURSIVE inside AS (SELECT to_regtype(?)::oid AS type UNION SELECT part.type FROM inside
  JOIN pg_type ON pg_type.oid = inside.type CROSS JOIN LATERAL (
    SELECT typbasetype AS type WHERE typtype = 'd' UNION ALL SELECT typelem WHERE typcategory = 'A' UNION ALL
    SELECT atttypid FROM pg_attribute WHERE typtype = 'c' AND attrelid = typrelid AND attnum > 0 AND NOT attisdropped
  ) AS part)
SELECT 1 FROM inside WHERE type IN ('name'::regtype, '"char"'::regtype)"""
#: The names and types of the fields of a composite type.
_FIELDS = """
SELECT attname, format_type(atttypid, -1) FROM pg_type JOIN pg_attribute ON attrelid = typrelid
WHERE pg_type.oid = to_regtype(?) AND typtype = 'c' AND attnum > 0 AND NOT attisdropped"""
_TIMES_OF_DAY = {
    "time without time zone": r"^[0-9]{1,2}:[0-9:.]+$",
    "time with time zone": r"^[0-9]{1,2}:[0-9:.]+([+-][0-9:]+|Z)?$",
}
_ROUNDED = "NDT"  # categories of types (numbers, times, spans) to whose modifier a cast rounds as an INSERT does
_COLUMNS = """
WITH RECURSIVE base AS (
  SELECT attnum, atttypid AS type, atttypmod AS modifier FROM pg_attribute
  WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped
  UNION ALL SELECT attnum, typbasetype, typtypmod FROM base JOIN pg_type ON oid = type WHERE typtype = 'd')
SELECT attname, format_type(atttypid, atttypmod), format_type(base.type, -1), format_type(base.type, modifier),
typcategory, CASE WHEN modifier > 3 AND base.type
  IN ('varchar'::regtype, 'bpchar'::regtype, 'varchar[]'::regtype, 'bpchar[]'::regtype) THEN modifier - 4 END,
CASE WHEN attcollation <> typcollation THEN format('%I.%I', nspname, collname) END,
attnotnull, atthasdef, attgenerated <> '' OR attidentity = 'a'
FROM base JOIN pg_type ON pg_type.oid = base.type AND typtype <> 'd'
JOIN pg_attribute ON attrelid = to_regclass(?) AND pg_attribute.attnum = base.attnum
LEFT JOIN pg_collation ON pg_collation.oid = attcollation LEFT JOIN pg_namespace ON pg_namespace.oid = collnamespace
ORDER BY pg_attribute.attnum"""


@dataclass(frozen=True)
class TableColumn:
    """A column of the table."""

    name: str
    type: str  # as the table declares it
    base: str  # the type under a domain, without modifiers
    sized: str  # the same with modifiers
    category: str  # typcategory of `base`
    length: int | None  # most characters of a varchar(n) or char(n), or of each item of an array of them
    collation: str | None  # if it is not that of `base`
    declared_not_null: bool
    has_default: bool
    generated: bool
    kind: DataType = field(default_factory=StringType)  # of the rows, if they have the column

    @property
    def nested(self) -> bool:
        return is_nested(self.kind)

    @property
    def not_null(self) -> bool:
        """Whether a row needs a value of the column."""
        return self.declared_not_null and not self.has_default

    @property
    def reads_times(self) -> bool:
        """Whether PostgreSQL reads texts of the rows as dates or times."""
        timed = self.category == "D" or (self.base.endswith("[]") and self.base.startswith(("date", "time")))
        return timed and self.staging_type == "text"

    def may_be_unchanged(self, keys: Sequence[str]) -> bool:
        """Return whether a value may be Debezium's mark of a value that did not change."""
        return bool(unchanged.columns(StructType([StructField(self.name, self.kind)]), keys))

    @property
    def staging_type(self) -> str:
        return "text" if type(self.kind) in _AS_TEXT else new_type(self.kind)

    @property
    def moved(self) -> str:
        """The SQL expression that turns a staged value into the table's."""
        collated = f" COLLATE {self.collation}" if self.collation is not None else ""
        return self._converted() + collated

    def _converted(self) -> str:
        name, staging = quoted(self.name), self.staging_type
        text = name if staging == "text" else f"{name}::text"
        at = name if staging == "timestamp with time zone" else f"{text}::timestamptz"
        target = self.sized if self.category in _ROUNDED else self.base
        if self.nested and self.category in "AC":
            return self._from_json(name)
        if staging.partition("(")[0] == self.base:
            return name if staging == target else f"{name}::{target}"
        if self.base == "timestamp without time zone":
            return f"({at} AT TIME ZONE 'UTC')::{target}"
        if self.base == "date":
            local = f"({at} AT TIME ZONE 'UTC')"
            refused = f"({text} || ' has a time of day')::date"
            return f"CASE WHEN {local} = {local}::date THEN {local}::date ELSE {refused} END"
        if self.base in _TIMES_OF_DAY:
            refused = f"({text} || ' is not only a time of day')::{target}"
            return f"CASE WHEN {text} ~ '{_TIMES_OF_DAY[self.base]}' THEN {text}::{target} ELSE {refused} END"
        if self.base in _INTEGERS and isinstance(self.kind, _FRACTIONS):
            return f"trim_scale({text}::numeric)::text::{target}"
        if self.base == "money":  # its text depends on the server's language
            return f"{text}::numeric::money"
        return f"{text}::{target}"

    def _from_json(self, name: str) -> str:
        type_, cast = self.type, ""
        if self.base == "timestamp without time zone[]":  # it would leave out a zone
            type_, cast = "timestamp with time zone[]", f"::{self.sized}"
        return f"(SELECT v{cast} FROM json_to_record(json_build_object('v', {name}::json)) AS r(v {type_}))"

    def check(self, connection: Connection, table: str) -> None:
        """Raise ConfigError if no value of the rows can be in the column."""
        inside = self.category in "AC" and connection.value(_CUTS_INSIDE, self.base) is not None
        if self.base in _CUTTING or inside:  # mutant: cutting-type-refused
            raise ConfigError(f"sink {table}: the column {self.name} is {self.type}, which cuts texts: make it text")
        if self.sized.startswith("interval "):
            raise ConfigError(
                f"sink {table}: the column {self.name} is {self.type}, which cuts spans: make it interval"
            )
        if self.nested and self.category in "AC":
            self._check_fields(connection, table, self.base, self.kind, self.name)
        sample = sample_of(self.kind)
        if sample is None or self.base in (self.staging_type, new_type(self.kind)):
            return
        connection.execute("SAVEPOINT etl_sample")
        try:
            connection.execute(SESSION)
            connection.value(
                f"SELECT ({self.moved})::text FROM (SELECT '{sample}'::{self.staging_type} AS {quoted(self.name)}) AS s"
            )
        except RowRefusedError as error:
            if error.rule != "constraint":
                raise ConfigError(self._never(table, error)) from None
        except OutputError as error:
            raise ConfigError(self._never(table, error)) from None
        finally:
            connection.execute("ROLLBACK TO SAVEPOINT etl_sample")

    def _check_fields(self, connection: Connection, table: str, of: str, kind: DataType, place: str) -> None:
        """Raise ConfigError if an object has fields that its composite type lacks: PostgreSQL would leave them out."""
        if isinstance(kind, ArrayType):
            self._check_fields(connection, table, of.removesuffix("[]"), kind.elementType, f"{place}[]")
            return
        fields = {str(name): str(type_) for name, type_ in connection.rows(_FIELDS, of)}
        if isinstance(kind, MapType) and fields:
            raise ConfigError(f"sink {table}: {place} is {of}, and rows have a map, which may have any names")
        for field_ in kind if isinstance(kind, StructType) and fields else ():
            if field_.name not in fields:  # mutant: fields-of-types-compared
                raise ConfigError(f"sink {table}: {place} is {of}, which has no field {field_.name}")
            self._check_fields(connection, table, fields[field_.name], field_.dataType, f"{place}.{field_.name}")

    def _never(self, table: str, error: OutputError) -> str:
        return (
            f"sink {table}: the column {self.name} is {self.type}, and rows have {self.kind.simpleString()}, which"
            f" never fits: {error}"
        )


def of_table(connection: Connection, name: str) -> dict[str, TableColumn]:
    """Return the columns of a table by their names, in its order. `name` is quoted."""
    found = {}
    for row in connection.rows(_COLUMNS, name, name):
        column, type_, base, sized, category, length, collation, *flags = row
        not_null, default, generated = (flag == "t" for flag in flags)
        limit = int(length) if length is not None else None
        texts = (str(column), str(type_), str(base), str(sized), str(category))
        found[str(column)] = TableColumn(*texts, limit, collation, not_null, default, generated)
    return found


def new_type(kind: DataType) -> str:
    """Return the type of a new column. ConfigError: there is none."""
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    found = _KINDS.get(type(kind)) or _AS_TEXT.get(type(kind))
    if found is None:
        raise ConfigError(f"{kind.simpleString()}, which PostgreSQL cannot take: cast it to a string or a number")
    return found[0]


def sample_of(kind: DataType) -> str | None:
    """Return the text of a value that a type of Spark has; None for texts, of which any may fit."""
    if isinstance(kind, DecimalType):
        return "0"
    return (_KINDS.get(type(kind)) or _AS_TEXT[type(kind)])[1]


def is_nested(kind: DataType) -> bool:
    """Return whether values are staged as JSON."""
    return isinstance(kind, ArrayType | MapType | StructType | VariantType)
