"""Joins of a static table: its columns for each record whose key is in the table.

The table must have one row per key, or a record would become two. The plan checks it, and each batch that reads the
table again does so too.

Each batch of a stream reads the table again, once. A static frame is read by several jobs, which must agree. It gets
the table as it was when the frame was planned.
"""

from dataclasses import replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.checkpoint import notes
from spark_etl.config import Join
from spark_etl.decode.faults import fault
from spark_etl.errors import ConfigError
from spark_etl.transform.table_files import TableFiles

STAGE = "join"
_OPTIONS = {
    "csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
    "parquet": {},
    "delta": {},
}


def joined(session: SparkSession, frame: DataFrame, join: Join, aside: Column) -> tuple[DataFrame, TableFiles]:
    """Return the frame with the table's columns, and the table's files; rows for which `aside` holds match nothing.

    ConfigError: the table has two rows for a key, or a key's types differ. PySparkException: it cannot be read.
    TableError: its files changed meanwhile.
    """
    files = TableFiles.listed(session, join)
    table = _table(session, join)
    keys = [f"_join_{number}" for number in range(len(join.on))]
    selected = table.select(
        *(F.col(theirs).alias(key) for key, theirs in zip(keys, join.on.values(), strict=True)),
        *(F.expr(expression).alias(name) for name, expression in join.select.items()),
    )
    _check_types(frame, selected, join, keys)
    if not frame.isStreaming:
        selected = selected.localCheckpoint()
        files.check()
        files = replace(files, copied=True)
    _check_unique(selected, join, keys)
    selected = _once(selected, join, keys)  # mutant: one-row-a-key
    same = ~aside
    for key, ours in zip(keys, join.on, strict=True):
        same = same & (F.col(ours) == F.col(key))
    rows = frame.join(F.broadcast(selected), same, "left").drop(*keys)
    if join.unmatched != "keep":
        message = f"no row in {join.name} for its {', '.join(join.on)}"
        unmatched = F.when(~aside & F.col("_matched").isNull(), fault(STAGE, join.name, F.lit(message)))
        rows = rows.withColumn("_error", F.coalesce("_error", unmatched))
    return rows.drop("_matched"), files


def _table(session: SparkSession, join: Join) -> DataFrame:
    reader = session.read.format(join.format).options(**_OPTIONS[join.format])
    return (reader.schema(join.schema_) if join.schema_ is not None else reader).load(notes.absolute(join.path))


def _once(table: DataFrame, join: Join, keys: list[str]) -> DataFrame:
    """Return the table with one row per key, and `_matched`. A batch fails if the table has two by then.

    One task reads the table: each batch broadcasts it whole, and a shuffle of it would cost more.
    """
    names = list(join.select)
    rows = (
        table.coalesce(1).groupBy(*keys).agg(F.count(F.lit(1)).alias("_rows"), F.first(F.struct(*names)).alias("_it"))
    )
    there = reduce(and_, (F.col(key).isNotNull() for key in keys))
    twice = F.raise_error(F.lit(f"join {join.name}: the table has several rows for one key"))
    checked = rows.select(*keys, F.when(there & (F.col("_rows") > 1), twice).otherwise(F.col("_it")).alias("_it"))
    return checked.select(*keys, *(F.col(f"_it.{name}").alias(name) for name in names), F.lit(True).alias("_matched"))


def _check_types(frame: DataFrame, table: DataFrame, join: Join, keys: list[str]) -> None:
    for key, (ours, theirs) in zip(keys, join.on.items(), strict=True):
        types = frame.schema[ours].dataType.simpleString(), table.schema[key].dataType.simpleString()
        if types[0] != types[1]:
            raise ConfigError(f"{ours} is {types[0]}, {theirs} of {join.name} is {types[1]}")


def _check_unique(table: DataFrame, join: Join, keys: list[str]) -> None:
    twice = table.dropna(subset=keys).groupBy(*keys).count().where("count > 1").limit(1).collect()
    if twice:
        values = ", ".join(f"{theirs} = {twice[0][key]}" for key, theirs in zip(keys, join.on.values(), strict=True))
        raise ConfigError(f"{join.name} has {twice[0]['count']} rows for {values}")
