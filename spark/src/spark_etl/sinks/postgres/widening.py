"""Changes of an existing table that `widen` allows, before its columns are compared with those of the rows.

    columns   a column that the table lacks is added; it is null in the rows before
    numbers   smallint and integer become integer or bigint, and these and real become double precision, as the rows are
    nulls     NOT NULL goes from the columns that the rows have, other than keys

PostgreSQL writes the whole table again for another type, and nobody reads it until it is done.
"""

from collections.abc import Iterator, Mapping

from pyspark.sql.types import StructType

from spark_etl.config import PostgresSinkConfig
from spark_etl.errors import ConfigError
from spark_etl.sinks.postgres.columns import TableColumn, new_type
from spark_etl.sinks.postgres.connection import Connection
from spark_etl.sinks.postgres.upsert import quoted

_WIDER = {
    "smallint": ("integer", "bigint", "double precision"),
    "integer": ("bigint", "double precision"),
    "bigint": ("double precision",),
    "real": ("double precision",),
}
_EXACT_MAX = 2**53  # a double has every integer up to here
_PRIMARY = """
SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
WHERE indrelid = to_regclass(?) AND indisprimary"""


def widen(
    connection: Connection,
    config: PostgresSinkConfig,
    name: str,
    found: Mapping[str, TableColumn],
    rows: StructType,
) -> bool:
    """Change the table `name` for such rows; return whether anything changed. ConfigError: a number would be cut."""
    changes = []
    if "columns" in config.widen:
        changes += [
            f"ADD COLUMN {quoted(field.name)} {new_type(field.dataType)}" for field in rows if field.name not in found
        ]
    if "numbers" in config.widen:
        changes += list(_numbers(connection, config, name, found, rows))
    if "nulls" in config.widen:
        keys = {*connection.column(_PRIMARY, name), *config.keys}
        names = [field.name for field in rows if field.name in found and field.name not in keys]
        changes += [f"ALTER COLUMN {quoted(each)} DROP NOT NULL" for each in names if found[each].declared_not_null]
    if changes:
        connection.execute(f"ALTER TABLE {name} {', '.join(changes)}")
    return bool(changes)


def _numbers(
    connection: Connection,
    config: PostgresSinkConfig,
    name: str,
    found: Mapping[str, TableColumn],
    rows: StructType,
) -> Iterator[str]:
    for field in rows:
        column, wanted = found.get(field.name), new_type(field.dataType)
        if column is None or wanted not in _WIDER.get(column.type, ()):
            continue
        key = quoted(field.name)
        if (column.type, wanted) == ("bigint", "double precision"):
            beyond = f"SELECT 1 FROM {name} WHERE {key} NOT BETWEEN -{_EXACT_MAX} AND {_EXACT_MAX} LIMIT 1"
            if connection.value(beyond) is not None:
                raise ConfigError(
                    f"sink {config.table}: column {field.name} has integers beyond {_EXACT_MAX}, which a double cannot"
                    " hold"
                )
        yield f"ALTER COLUMN {key} TYPE {wanted}"
