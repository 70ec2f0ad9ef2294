"""What a table takes of the good rows: `where` chooses records, `columns` chooses columns.

    {type: delta, path: lake/paid, where: amount > 0, columns: [id, amount]}

A record for which the condition is false or null is left out of this table. The condition sees the columns of records,
so it has one answer for all rows that `explode` makes of one. In a table of the last row of each key it sees the keys,
`_key` and `_topic` only. Else a row would stay whose later change is left out. Deletions are never left out.

Columns whose names begin with `_` are in each table: they say where a row is from. `_rescued` is chosen as others are.
"""

from collections.abc import Collection

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_etl.config import DeltaSinkConfig, Explode
from spark_etl.errors import ConfigError
from spark_etl.lake import changes
from spark_etl.transform import statements
from spark_etl.transform.explode import INDEX


def condition(config: DeltaSinkConfig, columns: Collection[str]) -> Column:
    """Return whether the table takes a good row with such columns."""
    if config.where is None:
        return F.lit(True)
    taken = F.coalesce(F.expr(config.where).cast("boolean"), F.lit(False))  # mutant: table-takes-its-rows
    return taken | F.coalesce(F.col(changes.DELETED), F.lit(False)) if changes.DELETED in columns else taken


def chosen(config: DeltaSinkConfig, rows: DataFrame) -> DataFrame:
    """Return what the table takes of good rows."""
    if config.takes_all:
        return rows
    taken = rows if config.where is None else rows.where(condition(config, rows.columns))
    return taken.select(*(f"`{name}`" for name in rows.columns if _has(config, name)))


def target(config: DeltaSinkConfig, rows: StructType) -> StructType:
    """Return the columns of the table, given those of good rows. ConfigError: the mode cannot use them."""
    return changes.target_schema(config, StructType([field for field in rows.fields if _has(config, field.name)]))


def check(config: DeltaSinkConfig, good: DataFrame, explode: Explode | None) -> None:
    """Raise ConfigError if `where` or `columns` is wrong for good rows."""
    for name in config.columns:
        if name not in good.columns:
            raise ConfigError(f"no column {name} in the rows")
    if config.where is None:
        return
    of_items = {INDEX, *explode.select} if explode is not None else set()
    seen = [name for name in good.columns if name not in of_items]
    if config.mode == "upsert":
        keys = config.keys if config.envelope == "none" else []
        seen = [name for name in seen if name in (*keys, "_key", "_topic")]
    try:
        selected = good.select(*(f"`{name}`" for name in seen)).select(F.expr(config.where).cast("boolean"))
    except PySparkException as error:
        why = " (mode: upsert: of the keys, _key and _topic only)" if config.mode == "upsert" else ""
        raise ConfigError(f"where{why}: {str(error).strip().splitlines()[0]}") from None
    if not statements.repeatable(selected):
        raise ConfigError(f"where: {statements.NOT_REPEATABLE}")


def _has(config: DeltaSinkConfig, name: str) -> bool:
    own = name.startswith("_") and name != "_rescued"
    return own or not config.columns or name in config.columns
