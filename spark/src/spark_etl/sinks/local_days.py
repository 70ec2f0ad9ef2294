"""Windows of whole days in a time zone: from one local midnight to another one, 23 or 25 hours where clocks change.

Spark's own windows are in UTC. These have the watermark of the event time, so Spark ends them like its own.
"""

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.config import Aggregate
from spark_etl.config.model import seconds
from spark_etl.errors import ConfigError

_DAY_SECONDS = 86_400


def window(at: Column, aggregate: Aggregate) -> Column:
    """Return the window of an event time as an object of `start` and `end`. Days are counted from 1970-01-01."""
    assert aggregate.window is not None
    assert aggregate.timezone is not None
    days, zone = seconds(aggregate.window) // _DAY_SECONDS, aggregate.timezone
    day = F.unix_date(F.to_date(F.from_utc_timestamp(at, zone)))
    first = day - F.pmod(day, F.lit(days))
    start, end = (
        F.to_utc_timestamp(F.date_from_unix_date(each).cast("timestamp"), zone) for each in (first, first + days)
    )
    return F.struct(start.alias("start"), end.alias("end"))


def with_windows(rows: DataFrame, field: str, aggregate: Aggregate) -> DataFrame:
    """Return the rows that have an event time, with their window as `window`. ConfigError: there is no such zone."""
    jvm: Any = rows.sparkSession._jvm
    if not jvm.java.time.ZoneId.getAvailableZoneIds().contains(aggregate.timezone):
        raise ConfigError(f"timezone: there is no zone {aggregate.timezone}")
    made = window(F.col(field), aggregate).alias("window", metadata=rows.schema[field].metadata)
    return rows.where(F.col(field).isNotNull()).select("*", made)
