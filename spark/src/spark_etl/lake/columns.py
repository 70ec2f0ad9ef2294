"""The columns of a table and of the rows written to it: which difference passes, and how rows are fitted.

A column (or a field of a nested object) that only the pipeline has is added to the table, empty in the rows before. One
that only the table has stays, empty in new rows. Every column of a table may be null. Another type, or a name that
differs in case only, is refused: readers could no longer read the column.

With `widen` a number may become wider: an integer a longer one or a double, a float a double. The table is rewritten
(lake/widening.py), and rows of the narrower type fit as well. A double takes 64-bit integers only from a column of the
table, whose values are looked at.

Delta keeps the least and the greatest value of a column in each file as statistics, by which readers skip files. Values
of a text are seldom in the order of their records, and cost most of all statistics. So a new table has none of texts,
unless they are keys.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NumericType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_etl.errors import ConfigError

ORDERED = (NumericType, DateType, TimestampType, TimestampNTZType)  # kinds whose statistics are cheap
_INTEGERS = (ByteType(), ShortType(), IntegerType(), LongType())  # the shortest first


def nullable(kind: DataType) -> DataType:
    """Return a type whose every part may be null, without the notes (metadata) that Spark keeps at columns."""
    match kind:
        case StructType():
            return StructType([StructField(field.name, nullable(field.dataType), True) for field in kind.fields])
        case ArrayType():
            return ArrayType(nullable(kind.elementType), True)
        case MapType():
            return MapType(nullable(kind.keyType), nullable(kind.valueType), True)
        case _:
            return kind


def table_schema(rows: StructType) -> StructType:
    """Return the schema of a table for such rows."""
    return StructType([StructField(field.name, nullable(field.dataType), True) for field in rows.fields])


def merged(table: StructType, rows: StructType, place: str = "", *, widen: bool = False) -> StructType:
    """Return the table's schema with the additions of the rows. Raise ConfigError for a difference that is refused."""
    fields = list(table.fields)
    present = {field.name: number for number, field in enumerate(fields)}
    folded = {field.name.lower(): field.name for field in fields}
    for field in rows.fields:
        name = f"{place}{field.name}"
        if field.name in present:
            old = fields[present[field.name]]
            kind = _merged_type(old.dataType, field.dataType, name, widen=widen, nested=bool(place))
            fields[present[field.name]] = StructField(old.name, kind, old.nullable, old.metadata)
        elif field.name.lower() in folded:
            raise ConfigError(f"column {name}: the table has {place}{folded[field.name.lower()]}, other in case only")
        else:
            fields.append(StructField(field.name, nullable(field.dataType), True))
    return StructType(fields)


def _merged_type(table: DataType, rows: DataType, name: str, *, widen: bool, nested: bool) -> DataType:
    def part(table: DataType, rows: DataType, place: str) -> DataType:
        return _merged_type(table, rows, f"{name}.{place}", widen=widen, nested=True)

    match table, rows:
        case StructType(), StructType():
            return merged(table, rows, f"{name}.", widen=widen)
        case ArrayType(), ArrayType():
            return ArrayType(part(table.elementType, rows.elementType, "element"), table.containsNull)
        case MapType(), MapType():
            key = part(table.keyType, rows.keyType, "key")
            return MapType(key, part(table.valueType, rows.valueType, "value"), table.valueContainsNull)
    if widen and (widens(table, rows) or (is_long_to_double(table, rows) and not nested)):
        return rows
    if widen and widens(rows, table):
        return table
    if table != rows:  # mutant: column-types-kept
        raise ConfigError(f"column {name}: {table.simpleString()} in the table, {rows.simpleString()} in the pipeline")
    return table


def with_statistics(table: StructType, kinds: tuple[type[DataType], ...] = ORDERED) -> list[str]:
    """Return the columns of some kinds, and such fields of objects, by names as Delta's properties have them."""
    found = []
    for field in table.fields:
        name = "`" + field.name.replace("`", "``") + "`"
        if isinstance(field.dataType, StructType):
            found += [f"{name}.{part}" for part in with_statistics(field.dataType, kinds)]
        elif isinstance(field.dataType, kinds):
            found.append(name)
    return found


def widens(narrow: DataType, wide: DataType) -> bool:
    """Return whether a number of the type `wide` has every value of another type, which is narrower."""
    if narrow in _INTEGERS and wide in _INTEGERS:
        return _INTEGERS.index(narrow) < _INTEGERS.index(wide)
    return wide == DoubleType() and narrow in (*_INTEGERS[:-1], FloatType())


def is_long_to_double(narrow: DataType, wide: DataType) -> bool:
    return (narrow, wide) == (LongType(), DoubleType())


def differences(table: StructType, rows: StructType, *, widen: bool = False) -> list[dict[str, str]]:
    """Return one entry for each column: its name, both types, and the outcome.

    The outcome is `same`, `added`, `kept empty`, `widened` or `refused`.
    """
    found = []
    offered = {field.name: field for field in rows.fields}
    for field in table.fields:
        new = offered.pop(field.name, None)
        outcome = "kept empty" if new is None else _outcome(field, new, widen)
        found.append(_difference(field.name, field.dataType, None if new is None else new.dataType, outcome))
    for name, new in offered.items():
        found.append(_difference(name, None, new.dataType, _outcome_of_new(table, new)))
    return found


def _difference(name: str, table: DataType | None, rows: DataType | None, outcome: str) -> dict[str, str]:
    return {
        "column": name,
        "table": "" if table is None else table.simpleString(),
        "pipeline": "" if rows is None else rows.simpleString(),
        "outcome": outcome,
    }


def _outcome(old: StructField, new: StructField, widen: bool) -> str:
    if nullable(old.dataType) == nullable(new.dataType):
        return "same"
    before, offered = StructType([old]), StructType([new])
    try:
        return "added" if merged(before, offered) != before else "kept empty"
    except ConfigError:
        pass
    try:
        return "widened" if merged(before, offered, widen=widen) != before else "same"
    except ConfigError:
        return "refused"


def _outcome_of_new(table: StructType, new: StructField) -> str:
    return "refused" if new.name.lower() in {field.name.lower() for field in table.fields} else "added"


def fitted(table: StructType, rows: StructType) -> list[Column]:
    """Return the columns of the table, computed from rows whose schema was merged into it."""
    offered = {field.name: field.dataType for field in rows.fields}
    return [
        _fitted(F.col(f"`{field.name}`"), field.dataType, offered[field.name]).alias(field.name)
        if field.name in offered
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in table.fields
    ]


def fitted_parts(place: str, rows: StructType, table: StructType) -> list[Column]:
    """Return the fields of the object column `place`, each fitted to the table's column of its name."""
    return [
        _fitted(F.col(f"{place}.`{field.name}`"), table[field.name].dataType, field.dataType) for field in rows.fields
    ]


def _fitted(column: Column, table: DataType, rows: DataType) -> Column:
    if nullable(table) == nullable(rows):
        return column
    match table, rows:
        case StructType(), StructType():
            offered = {field.name: field.dataType for field in rows.fields}
            parts = [
                _fitted(column[field.name], field.dataType, offered[field.name]).alias(field.name)
                if field.name in offered
                else F.lit(None).cast(field.dataType).alias(field.name)
                for field in table.fields
            ]
            return F.when(column.isNotNull(), F.struct(*parts))
        case ArrayType(), ArrayType():
            return F.transform(column, _fitting(table.elementType, rows.elementType))
        case MapType(), MapType():
            values: Callable[[Column, Column], Column] = lambda _, value: _fitted(  # noqa: E731
                value, table.valueType, rows.valueType
            )
            return F.transform_values(column, values)
    return column.cast(table)


def _fitting(table: DataType, rows: DataType) -> Callable[[Column], Column]:
    return lambda element: _fitted(element, table, rows)
