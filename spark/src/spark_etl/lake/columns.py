"""The columns of a table and of the rows written to it: which difference passes, and how rows are fitted.

A column (or a field of a nested object) that only the pipeline has is added to the table, empty in the rows before. One
that only the table has stays, empty in new rows. Every column of a table may be null. Another type, or a name that
differs in case only, is refused: readers could no longer read the column.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from spark_etl.errors import ConfigError


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


def merged(table: StructType, rows: StructType, place: str = "") -> StructType:
    """Return the table's schema with the additions of the rows. Raise ConfigError for a difference that is refused."""
    fields = list(table.fields)
    present = {field.name: number for number, field in enumerate(fields)}
    folded = {field.name.lower(): field.name for field in fields}
    for field in rows.fields:
        name = f"{place}{field.name}"
        if field.name in present:
            old = fields[present[field.name]]
            kind = _merged_type(old.dataType, field.dataType, name)
            fields[present[field.name]] = StructField(old.name, kind, old.nullable, old.metadata)
        elif field.name.lower() in folded:
            raise ConfigError(f"column {name}: the table has {place}{folded[field.name.lower()]}, other in case only")
        else:
            fields.append(StructField(field.name, nullable(field.dataType), True))
    return StructType(fields)


def _merged_type(table: DataType, rows: DataType, name: str) -> DataType:
    match table, rows:
        case StructType(), StructType():
            return merged(table, rows, f"{name}.")
        case ArrayType(), ArrayType():
            return ArrayType(_merged_type(table.elementType, rows.elementType, f"{name}.element"), table.containsNull)
        case MapType(), MapType():
            value = _merged_type(table.valueType, rows.valueType, f"{name}.value")
            return MapType(_merged_type(table.keyType, rows.keyType, f"{name}.key"), value, table.valueContainsNull)
    if table != rows:  # mutant: column-types-kept
        raise ConfigError(f"column {name}: {table.simpleString()} in the table, {rows.simpleString()} in the pipeline")
    return table


def differences(table: StructType, rows: StructType) -> list[dict[str, str]]:
    """Return one entry for each column: its name, both types, and `same`, `added`, `kept empty` or `refused`."""
    found = []
    offered = {field.name: field for field in rows.fields}
    for field in table.fields:
        new = offered.pop(field.name, None)
        outcome = "kept empty" if new is None else _outcome(field, new)
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


def _outcome(old: StructField, new: StructField) -> str:
    if nullable(old.dataType) == nullable(new.dataType):
        return "same"
    try:
        changed = merged(StructType([old]), StructType([new])) != StructType([old])
    except ConfigError:
        return "refused"
    return "added" if changed else "kept empty"


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
    return column


def _fitting(table: DataType, rows: DataType) -> Callable[[Column], Column]:
    return lambda element: _fitted(element, table, rows)
