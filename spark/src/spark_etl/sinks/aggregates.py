"""Aggregated rows as records: one per group, alike for summaries of a table and for windows of a stream.

A record's value is a JSON object of the group's columns and the selected ones. Its key is the group: the value as text,
or a JSON object if there are several columns. Headers say which state of the group it shows.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.sinks.topics import header

PIPELINE_HEADER = "__etl.pipeline"
VERSION_HEADER = "__etl.version"


def selected(expressions: Mapping[str, str]) -> list[Column]:
    return [F.expr(expression).alias(name) for name, expression in expressions.items()]


def records(groups: DataFrame, keys: Sequence[str], columns: Sequence[str], headers: Mapping[str, Column]) -> DataFrame:
    """Return (key, value, headers) of aggregated rows. `keys` name a group, `columns` are in the value."""
    key = F.col(keys[0]).cast("string") if len(keys) == 1 else F.to_json(F.struct(*keys))
    return groups.select(
        key.cast("binary").alias("key"),
        F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).cast("binary").alias("value"),
        F.array(*(header(name, text) for name, text in headers.items())).alias("headers"),
    )
