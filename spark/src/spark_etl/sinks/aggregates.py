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
TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}  # Spark's default cuts to milliseconds
KEEP_NULLS = {"ignoreNullFields": "false", **TIMES}


def selected(expressions: Mapping[str, str]) -> list[Column]:
    return [F.expr(expression).alias(name) for name, expression in expressions.items()]


def group_key(group: Sequence[str]) -> Column:
    """Return a group as text: the value of its one column, or a JSON object of several."""
    return F.col(group[0]).cast("string") if len(group) == 1 else F.to_json(F.struct(*group), KEEP_NULLS)


def records(groups: DataFrame, key: Column, headers: Mapping[str, Column]) -> DataFrame:
    """Return (key, value, headers) of aggregated rows; the value has all their columns."""
    return groups.select(
        key.cast("binary").alias("key"),
        F.to_json(F.struct(*groups.columns), KEEP_NULLS).cast("binary").alias("value"),
        F.array(*(header(name, text) for name, text in headers.items())).alias("headers"),
    )
