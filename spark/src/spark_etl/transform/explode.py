"""`explode`: a good record becomes one row for each item of an array.

    explode: {column: lines, select: {sku: item.sku, total: item.quantity * price}}

Records are judged first, each as a whole. The rows have the columns of the record but the array, the selected ones, and
`_index`: the item's place in the array, from 0. An expression sees the item as `item`, next to the record's columns.
With `empty: keep` a record without items stays one row, whose `item` and `_index` are null.
"""

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType

from spark_etl.config import Explode
from spark_etl.errors import ConfigError
from spark_etl.transform import statements

ROWS, INDEX = "_rows", "_index"  # the array of a judged record's rows, and the column of a good row
EMPTY = ("explode", "empty")  # the check of records without items


def check(frame: DataFrame, explode: Explode, data: Sequence[str]) -> None:
    """Raise ConfigError if the column is no array, or a selected column is there already."""
    if explode.column not in data:
        raise ConfigError(f"no column {explode.column!r}")
    kind = frame.schema[explode.column].dataType
    if not isinstance(kind, ArrayType):
        raise ConfigError(f"{explode.column} is {kind.simpleString()}, not an array")
    present = {name.lower() for name in data if name != explode.column}
    for name in explode.select:
        if name.lower() in present:
            raise ConfigError(f"there is a column {name}")


def check_item(frame: DataFrame, explode: Explode, name: str) -> None:
    """Raise ConfigError if the expression of a selected column is wrong."""
    try:
        selected = frame.select(F.expr(f"transform(`{explode.column}`, item -> ({explode.select[name]}\n))"))
    except PySparkException as error:
        raise ConfigError(str(error).strip().splitlines()[0]) from None
    if not statements.repeatable(selected):
        raise ConfigError(statements.NOT_REPEATABLE)


def rows(explode: Explode) -> Column:
    """Return the rows of each record as an array of objects with `_index` and the selected columns, never empty."""
    fields = ", ".join(f"'{name}', ({expression}\n)" for name, expression in explode.select.items())
    # an array of one null in place of an empty one has the same path, and so the same types
    items = f"IF(size(`{explode.column}`) > 0, `{explode.column}`, array(NULL))"
    index = f"IF(size(`{explode.column}`) > 0, _place, NULL)"
    return F.expr(f"transform({items}, (item, _place) -> named_struct('{INDEX}', {index}, {fields}))")


def is_empty(explode: Explode) -> Column:
    return ~F.coalesce(F.size(F.col(f"`{explode.column}`")) > 0, F.lit(False))


def exploded(rows: DataFrame) -> DataFrame:
    """Return a row for each one in `_rows`."""
    return rows.select("*", F.inline(ROWS))
