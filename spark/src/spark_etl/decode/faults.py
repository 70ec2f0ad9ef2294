"""Reasons why a record is refused: a struct of stage, rule and message, null for a good record."""

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

MESSAGE_CHARACTERS_MAX = 500
Finding = tuple[Column, str, Column]  # condition (null: does not apply), rule, message


def fault(stage: str, rule: str, message: Column) -> Column:
    return F.struct(F.lit(stage).alias("stage"), F.lit(rule).alias("rule"), message.alias("message"))


def first(stage: str, findings: Iterable[Finding]) -> Column:
    """Return the fault of the first finding that applies, else null."""
    (condition, rule, message), *others = findings
    start = F.when(condition, fault(stage, rule, message))
    return reduce(lambda chain, one: chain.when(one[0], fault(stage, one[1], one[2])), others, start)


def listing(text: str, names: Column) -> Column:
    """Return a message that ends in names, cut to MESSAGE_CHARACTERS_MAX."""
    return F.concat(F.lit(text), F.substring(names, 1, MESSAGE_CHARACTERS_MAX))


def listed(names: Iterable[Column]) -> Column:
    """Return the non-null names as one text. (concat_ws is compiled, array functions with lambdas are not.)"""
    return F.concat_ws(", ", *names)


def time(text: Column) -> Column:
    """Return a text as a time, null if it is none or has no date: Spark would add that of today."""
    date, hours = F.instr(text, "-"), F.instr(text, ":")
    return F.when((date >= 5) & ((hours == 0) | (hours > date)), F.try_to_timestamp(text))


def utf8(column: str) -> Column:
    """Return bytes as text, null if they are not UTF-8."""
    return F.expr(f"CASE WHEN is_valid_utf8({column}) THEN CAST({column} AS STRING) END")


def barrier(column: Column) -> Column:
    """Return the same column, computed where it stands and once.

    Spark would push a filter on it below the projection, and so repeat the decoding for each mention of it: six times
    the work. It does not move an expression that depends on the task.
    """
    return F.when(F.spark_partition_id() >= 0, column)  # mutant: verdict-once
