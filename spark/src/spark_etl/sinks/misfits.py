"""Good rows that one sink cannot hold: they become dead letters of the stage `sink`."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.sinks.topics import HEADERS

STAGE = "sink"
_RAW = {"key": "binary", "value": "binary", "headers": HEADERS}


def misfits(rows: DataFrame, rule: str, message: Column) -> DataFrame:
    """Return rows in the form of refused ones. Raw parts that a good row no longer has are null in its letter."""
    raw = [F.col(name) if name in rows.columns else F.lit(None).cast(kind).alias(name) for name, kind in _RAW.items()]
    error = F.struct(F.lit(STAGE).alias("stage"), F.lit(rule).alias("rule"), message.alias("message"))
    return rows.select("_topic", "_partition", "_offset", "_timestamp", *raw, error.alias("_error"))
